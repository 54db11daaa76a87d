//! Writes a folder as `numaloc record --mpi` leaves it when it is killed, with synthetic rank files:
//! `generate-ranks FOLDER X Y Z SECONDS PERIOD_MS LAUNCHER...`: X * Y * Z ranks that exchange halos with 26 neighbours
//! every PERIOD_MS.

#[path = "../tests/support/ranks.rs"]
mod ranks;

use std::path::Path;

use numaloc_mpi::Launcher;
use numaloc_mpi::shims::MpiLibrary;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, numbers @ ..] = &words[..] else {
        return Err("generate-ranks FOLDER X Y Z SECONDS PERIOD_MS LAUNCHER...".into());
    };
    let (numbers, launcher) = numbers.split_at_checked(5).ok_or("five numbers")?;
    let number = |at: usize| numbers[at].parse::<u64>();
    let halo = ranks::Halo {
        grid: [number(0)? as u32, number(1)? as u32, number(2)? as u32],
        seconds: number(3)?,
        period_ms: number(4)?,
    };
    let spool = Path::new(folder).join("ranks");
    std::fs::create_dir_all(&spool)?;
    let argv: Vec<_> = launcher.iter().map(Into::into).collect();
    let library = MpiLibrary::of_command(&argv, Launcher::of_command(&argv));
    let library = library.ok_or("a launcher of an MPI library")?;
    std::fs::write(spool.join(library.shim_name()), library.shim())?;
    std::fs::write(spool.join("command"), launcher.join("\0"))?;
    for rank in 0..halo.ranks() {
        halo.write(rank, &spool)?;
    }
    Ok(())
}
