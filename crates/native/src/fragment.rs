//! What translation makes: a fragment of code, its exits, and the landings through which indirect branches reach it.

use iced_x86::Instruction;

use crate::record::turns::Turns;

/// A position in a fragment where the program's state is known: the next instruction is the program's at `pc`, or
/// implements it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Offset from the fragment's first byte.
    pub offset: u16,
    /// The program's address, relative to that of the fragment.
    pub delta: i32,
    /// A register whose value is temporarily in a slot of the thread's state: register, slot.
    pub borrowed: Option<(u8, u8)>,
    /// Bits of the registers whose values are in [`crate::state::State::borrowed`].
    pub lost: u16,
    /// Accesses of the instruction have been recorded: it must be executed before the program may leave the cache.
    pub recorded: bool,
}

/// Kinds of translated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Code that records accesses, or of a program that is not recorded.
    Usual,
    /// Code for the time between bursts, which only counts accesses.
    Counting,
    /// Code that records each access by itself: of a segment whose accesses could not be recorded together.
    Apart,
    /// The same, a block at a time: all exits lead to the engine, which notes the blocks ([`crate::paths`]).
    Noting,
}

/// Translated code of the program's block at one address.
pub struct Fragment {
    /// The program's address.
    pub pc: u64,
    /// What kind of code it is.
    pub version: Version,
    /// Address of its first byte, below 2 GiB like all of the cache.
    pub start: u32,
    /// Entry for direct branches.
    pub body: u32,
    /// In ascending order.
    pub points: Box<[Point]>,
    /// Exits linked to this fragment.
    pub links: Vec<u32>,
    /// Whether it overwrites rcx before it reads it.
    pub rcx_is_dead: bool,
    /// Numbers of the landings that lead to it, for each kind of branch.
    pub landings: [Option<u32>; 2],
    /// What its code refers to; few fragments have any.
    pub kept: Option<Box<Kept>>,
}

/// What the code of a fragment refers to.
#[derive(Default)]
pub struct Kept {
    /// Instructions that its code refers to.
    #[expect(clippy::vec_box, reason = "their addresses are in the code")]
    pub instructions: Vec<Box<Instruction>>,
    /// Loops that its code refers to.
    #[expect(clippy::vec_box, reason = "their addresses are in the code")]
    pub turns: Vec<Box<Turns>>,
}

impl Fragment {
    /// A fragment without points, and without links to it.
    pub fn new(pc: u64, start: u64) -> Self {
        Self {
            pc,
            version: Version::Usual,
            start: start as u32,
            body: start as u32,
            points: Box::default(),
            links: Vec::new(),
            rcx_is_dead: false,
            landings: [None; 2],
            kept: None,
        }
    }

    /// What its code refers to.
    pub fn kept(&mut self) -> &mut Kept {
        self.kept.get_or_insert_default()
    }
}

/// A direct branch out of a fragment.
pub struct Exit {
    /// Target address in the program.
    pub target: u64,
    /// Address of the jump's displacement, in the cache.
    pub patch: u32,
    /// The code that returns to the engine, in the cache.
    pub stub: u32,
    /// The version of the code that it leads to.
    pub version: Version,
}

/// Kinds of indirect branches; each has its own table of landings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// Jumps and calls.
    Jump,
    /// Returns.
    Return,
}

/// Code that an indirect branch reaches through a table: compares the branch's target with its own, and continues with
/// the next candidate of the same table entry if they differ.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    /// Which branches use it.
    pub branch: Branch,
    /// The program's address that it stands for.
    pub target: u64,
    /// Its first byte.
    pub entry: u64,
    /// Address of the displacement of its jump to the next candidate.
    pub next_candidate: u64,
    /// The code after it, where the program's registers are complete.
    pub body: u64,
}

/// Result of a translation; addresses are final.
pub struct Translation {
    /// The fragment.
    pub fragment: Fragment,
    /// Its exits.
    pub exits: Vec<Exit>,
    /// The landing at its beginning.
    pub landing: Option<Landing>,
    /// Its code, for the address it was translated for.
    pub code: Vec<u8>,
    /// The code of its exits, for their address.
    pub stubs: Vec<u8>,
    /// Pages of the program that it was translated from.
    pub pages: Vec<u64>,
}
