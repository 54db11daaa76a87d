//! Later moves: sets up the agent's board in the program, and carries moves out when the agent calls.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use numaloc_model::marks::{ENTRY_POINTS, NAME_BYTES, board};
use numaloc_model::{MarkKind, MarkPlace};

use super::Supervisor;
use super::live::Live;
use super::patch::Patches;
use crate::agent::{LIBRARY, files, symbol};
use crate::image::{Map, maps};
use crate::tracee::{Memory, Stopped};

/// Pages moved in one system call.
const BATCH: usize = 512;
/// Bytes moved per second at most: a tenth of a link of the 2010s.
const BYTES_PER_S: f64 = 2e9;

/// The agent in a process, and the places it counts.
#[derive(Debug)]
pub(super) struct Marks {
    tgid: i32,
    board: u64,
    /// Address of the breakpoint that calls the controller.
    reached: u64,
    places: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    place: MarkPlace,
    /// Number on the board.
    number: usize,
    /// Passes up to which moves were carried out.
    passed: u64,
}

impl Marks {
    /// Whether the breakpoint at `at` is the agent's.
    pub fn calls(&self, at: u64) -> bool {
        self.reached == at
    }

    /// In a process that has a copy of the board, or is no longer traced: the agent calls nobody from now on.
    pub fn disarm(&self, memory: &Memory) -> io::Result<()> {
        // A process that has executed another program has no board.
        if word(memory, self.board).ok() != Some(board::MAGIC) {
            return Ok(());
        }
        self.places.iter().try_for_each(|counted| {
            let to = self.board + board::passes(counted.number) + board::TARGET;
            memory.write(to, &0_u64.to_le_bytes())
        })
    }

    /// Whether the passes of process `tgid` are counted.
    pub fn is_of(&self, tgid: i32) -> bool {
        self.tgid == tgid
    }
}

fn word(memory: &Memory, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    memory.read(at, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Writes to a board which places are counted.
struct Writer<'a> {
    memory: &'a Memory,
    /// Address of the board.
    at: u64,
    /// The files of the process, each at its lowest mapping.
    files: &'a [Map],
    /// Slots in use.
    regions: usize,
    users: usize,
}

impl Writer<'_> {
    /// The number of a place on the board; `None` if it has none there: an unknown function, or too many places.
    fn number(&mut self, place: &MarkPlace) -> io::Result<Option<usize>> {
        let is_entry = |(name, kind): &(&str, MarkKind)| *name == place.name && *kind == place.kind;
        if let Some(entry) = ENTRY_POINTS.iter().position(is_entry) {
            return Ok(Some(entry));
        }
        match place.kind {
            MarkKind::Region if self.regions < board::SLOTS => {
                let files = self.files.iter();
                let found: Vec<u64> = files.flat_map(|file| symbol(file, &place.name)).collect();
                let [function] = found[..] else {
                    return Ok(None);
                };
                let to = self.at + board::function(self.regions);
                self.memory.write(to, &function.to_le_bytes())?;
                self.regions += 1;
                Ok(Some(ENTRY_POINTS.len() + self.regions - 1))
            }
            MarkKind::User if self.users < board::SLOTS => {
                let name = place.name.as_bytes();
                let name = &name[..name.len().min(NAME_BYTES)];
                self.memory.write(self.at + board::name(self.users), name)?;
                self.users += 1;
                Ok(Some(ENTRY_POINTS.len() + board::SLOTS + self.users - 1))
            }
            _ => Ok(None),
        }
    }

    /// Writes the numbers of slots in use: from here on they are counted.
    fn finish(&self) -> io::Result<()> {
        let numbers = [(self.regions, board::REGIONS), (self.users, board::USERS)];
        for (number, offset) in numbers {
            let bytes = (number as u64).to_le_bytes();
            self.memory.write(self.at + offset, &bytes)?;
        }
        Ok(())
    }
}

impl Supervisor {
    /// The program is loaded: writes to the board which places the agent counts. Without agent, the program's own
    /// functions are patched. If that fails too, no later move is carried out.
    pub(super) fn set_up_marks(&mut self, tgid: i32, stopped: &mut Stopped) {
        if tgid != self.main || self.marks.is_some() || !self.controller.moves().any() {
            return;
        }
        match self.try_set_up_marks(tgid, stopped) {
            Ok(marks) => self.marks = Some(marks),
            Err(why) => self
                .controller
                .tally()
                .note(format!("no later moves: {why}; the first mapping remains")),
        }
    }

    fn try_set_up_marks(&mut self, tgid: i32, stopped: &mut Stopped) -> Result<Marks, String> {
        let failed = |what: &str, error: &io::Error| format!("cannot {what}: {error}");
        let maps = maps(tgid).map_err(|error| failed("read its mappings", &error))?;
        let files = files(maps.clone());
        let agent = files
            .iter()
            .find(|map| map.name.ends_with(&format!("/{LIBRARY}")));
        let space = self.spaces.get(&tgid).ok_or("its memory is not known")?;
        let memory = &space.memory;
        let io = |error: io::Error| failed("write to its memory", &error);
        let mut patched = None;
        let (at, reached) = match agent {
            Some(agent) => {
                let one = |name: &str| match symbol(agent, name)[..] {
                    [address] => Ok(address),
                    _ => Err(format!("{} is not this version's", agent.name)),
                };
                let at = one("numaloc_marks_board")?;
                if word(memory, at).map_err(io)? != board::MAGIC {
                    return Err(format!("{} is not this version's", agent.name));
                }
                (at, one("numaloc_marks_reached")?)
            }
            None => {
                let program = std::fs::read_link(format!("/proc/{tgid}/exe"));
                let program = program.map_err(|error| failed("find its file", &error))?;
                let image = files.iter().find(|map| Path::new(&map.name) == program);
                let image = image.ok_or("the program's file is not known")?;
                let patches = Patches::map(stopped, space, &maps, image)?;
                patched = Some((patches, image));
                (patches.board(), patches.reached())
            }
        };
        let mut writer = Writer {
            memory,
            at,
            files: &files,
            regions: 0,
            users: 0,
        };
        let (mut places, mut unknown) = (Vec::new(), Vec::new());
        for place in self.controller.moves().places() {
            match writer.number(&place).map_err(io)? {
                Some(number) => places.push(Counted {
                    place,
                    number,
                    passed: 0,
                }),
                None => unknown.push(place),
            }
        }
        writer.finish().map_err(io)?;
        for counted in &places {
            let next = self.controller.moves().next(&counted.place, 0).unwrap_or(0);
            let to = at + board::passes(counted.number) + board::TARGET;
            memory.write(to, &next.to_le_bytes()).map_err(io)?;
        }
        let mut refused = Vec::new();
        if let Some((patches, image)) = patched {
            let places: Vec<(MarkPlace, usize)> = places
                .iter()
                .map(|counted| (counted.place.clone(), counted.number))
                .collect();
            let (functions, others) = patches.install(memory, image, &places).map_err(io)?;
            refused = others;
            if functions == 0 {
                let why = match refused.is_empty() {
                    true => "it has no symbols or probes of these marks",
                    false => "the functions that are its marks cannot be patched",
                };
                return Err(why.to_owned());
            }
            self.controller.tally().note(format!(
                "marks are counted in {functions} patched functions of the program"
            ));
        }
        self.note_uncounted(&refused, &unknown);
        Ok(Marks {
            tgid,
            board: at,
            reached,
            places,
        })
    }

    /// Reports which functions and marks are not counted.
    fn note_uncounted(&mut self, refused: &[String], unknown: &[MarkPlace]) {
        for name in refused {
            self.controller.tally().note(format!(
                "calls of {name} are not counted: its first instructions cannot be patched"
            ));
        }
        for place in unknown {
            self.controller.tally().note(format!(
                "no moves at the mark {:?}: the program has no such {}, or several",
                place.name,
                place.kind.name()
            ));
        }
    }

    /// The agent calls in a stopped thread: carries out the moves that are due.
    pub(super) fn at_mark(&mut self, stopped: &mut Stopped) -> io::Result<()> {
        let number = stopped.regs().rdi as usize;
        let Some(marks) = &self.marks else {
            return Ok(());
        };
        let (tgid, at) = (marks.tgid, marks.board + board::passes(number));
        let Some(which) = marks
            .places
            .iter()
            .position(|counted| counted.number == number)
        else {
            return Ok(());
        };
        loop {
            let Some(space) = self.spaces.get(&tgid) else {
                return Ok(());
            };
            let passed = word(&space.memory, at)?;
            let Some(counted) = self.marks.as_mut().and_then(|m| m.places.get_mut(which)) else {
                return Ok(());
            };
            let (place, from) = (counted.place.clone(), counted.passed);
            counted.passed = passed;
            let due = self.controller.moves_mut().take_due(&place, from, passed);
            for of in due {
                self.carry_out(&of, tgid, stopped);
            }
            let Some(space) = self.spaces.get(&tgid) else {
                return Ok(());
            };
            let next = self.controller.moves().next(&place, passed).unwrap_or(0);
            space
                .memory
                .write(at + board::TARGET, &next.to_le_bytes())?;
            // Other threads go on meanwhile and may have passed it by now.
            if next == 0 || word(&space.memory, at)? < next {
                return Ok(());
            }
        }
    }

    /// Carries out a move; pages in batches, no faster than [`BYTES_PER_S`].
    fn carry_out(&mut self, of: &crate::moves::Move, tgid: i32, stopped: &mut Stopped) {
        let mut act = Live {
            stopped: Some(stopped),
            space: self.spaces.get(&tgid),
            filters: self.filters,
        };
        let pages = self.controller.carry_out(of, tgid, &mut act);
        for batch in pages.chunks(BATCH) {
            let begun = Instant::now();
            self.controller.move_batch(tgid, batch, &mut act);
            let least = Duration::from_secs_f64(batch.len() as f64 * 4096.0 / BYTES_PER_S);
            if let Some(rest) = least.checked_sub(begun.elapsed()) {
                std::thread::sleep(rest);
            }
        }
    }
}
