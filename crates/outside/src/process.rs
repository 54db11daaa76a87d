//! What `/proc` says of a process and its threads.

use std::fs;

/// A process or thread at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name, as the kernel keeps it: at most 15 bytes.
    pub name: String,
    /// The process that created this one, or took it over.
    pub parent: i32,
    /// When it began, in ticks since the boot: with its id, it names the thread for ever.
    pub began: u64,
    /// The PU on which it ran last.
    pub pu: u32,
    /// Ticks for which it has run, in the program and in the kernel.
    pub ticks: u64,
    /// Whether it has ended and waits to be reaped.
    pub ended: bool,
}

/// Parses the text of a file `stat`: the fields after the name, which may contain anything, are counted from 3.
fn parse(text: &str) -> Option<Stat> {
    let (before, rest) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at)?.parse::<u64>().ok();
    Some(Stat {
        name: name.to_owned(),
        parent: field(4)?.parse().ok()?,
        began: number(22)?,
        pu: field(39)?.parse().ok()?,
        ticks: number(14)?.saturating_add(number(15)?),
        ended: matches!(field(3)?, "Z" | "X"),
    })
}

fn text(path: &str) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A process; `None` if there is none. Its ticks are those of all its threads.
#[must_use]
pub fn stat(pid: i32) -> Option<Stat> {
    parse(&text(&format!("/proc/{pid}/stat"))?)
}

/// A thread of a process; `None` if there is none.
#[must_use]
pub fn thread_stat(pid: i32, tid: i32) -> Option<Stat> {
    parse(&text(&format!("/proc/{pid}/task/{tid}/stat"))?)
}

/// The entries of a folder of `/proc` that are numbers, ascending.
fn numbers(folder: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<i32> = names.filter_map(|name| name.parse().ok()).collect();
    found.sort_unstable();
    found
}

/// The process of a process or thread; `None` if there is none. Its number may be above those of its threads, as
/// numbers begin again at the kernel's limit.
#[must_use]
pub fn of_thread(tid: i32) -> Option<i32> {
    process_in(&text(&format!("/proc/{tid}/status"))?)
}

fn process_in(status: &str) -> Option<i32> {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}

/// The threads of a process, ascending; none if it has ended.
#[must_use]
pub fn threads(pid: i32) -> Vec<i32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// All processes, ascending.
#[must_use]
pub fn all() -> Vec<i32> {
    numbers("/proc")
}

/// The title by which a process has replaced its arguments, such as `postgres: checkpointer`.
#[must_use]
pub fn title(pid: i32) -> Option<String> {
    title_in(&fs::read(format!("/proc/{pid}/cmdline")).ok()?)
}

/// Arguments end with a zero byte each; a title is one text with blanks, and the name of a program rarely has any.
fn title_in(arguments: &[u8]) -> Option<String> {
    let first = arguments.split(|byte| *byte == 0).next()?;
    let first = String::from_utf8_lossy(first).trim().to_owned();
    (first.contains(' ') && !first.starts_with('/')).then_some(first)
}

/// The command line of a process.
#[must_use]
pub fn command(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    words
        .map(|word| String::from_utf8_lossy(word).trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_a_thread_may_have_the_larger_number() {
        let own = std::process::id() as i32;
        assert_eq!(of_thread(own), Some(own));
        assert_eq!(of_thread(i32::MAX), None);
        // Numbers of threads may be below that of their process.
        assert_eq!(
            process_in("Name:\ta\nTgid:\t32706\nPid:\t301\n"),
            Some(32706)
        );
    }

    #[test]
    fn names_with_blanks_and_parentheses_do_not_shift_the_fields() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let text = format!("7 (a) (b c) S {}", fields.join(" "));
        let found = parse(&text).unwrap();
        assert_eq!(found.name, "a) (b c");
        assert_eq!((found.parent, found.began, found.pu), (4, 22, 39));
        assert_eq!(found.ticks, 14 + 15);
        assert!(!found.ended && parse(&text.replace(" S ", " Z ")).unwrap().ended);
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn titles_are_distinguished_from_arguments() {
        let found = |text: &[u8]| title_in(text);
        assert_eq!(
            found(b"postgres: checkpointer \0\0\0"),
            Some("postgres: checkpointer".to_owned())
        );
        assert_eq!(found(b"redis-server\0--port\x007777\0"), None);
        assert_eq!(found(b"/opt/a b/server\0"), None);
        assert_eq!(found(b""), None);
    }

    #[test]
    fn this_process_is_there() {
        let pid = std::process::id() as i32;
        assert!(threads(pid).contains(&pid) && all().contains(&pid));
        assert!(!stat(pid).unwrap().ended);
        assert_eq!((stat(0), threads(0)), (None, Vec::new()));
    }
}
