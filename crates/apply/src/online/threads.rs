//! What `/proc` says of a process and its threads.

use std::io;

/// A thread at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// When it began, in ticks since the boot: with its id, it names the thread for ever.
    pub began: u64,
    /// The PU on which it ran last.
    pub pu: u32,
    /// Whether it has ended and waits to be reaped.
    pub ended: bool,
}

/// Parses the text of `/proc/PID/stat`: the fields after the name, which may contain anything, are counted from 3.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3);
    Some(Stat {
        began: field(22)?.parse().ok()?,
        pu: field(39)?.parse().ok()?,
        ended: matches!(*field(3)?, "Z" | "X"),
    })
}

/// A thread of any process; `None` if there is none.
pub fn stat(tid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{tid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&text))
}

/// Nanoseconds for which thread `tid` has run; `None` if there is none, or the kernel does not count them.
pub fn ran_ns(tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The threads of process `pid`, in order.
pub fn of(pid: i32) -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut threads: Vec<i32> = names.filter_map(|name| name.parse().ok()).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// The processes that thread `tid` of process `pid` created and that still are its children.
pub fn children(pid: i32, tid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_and_parentheses_do_not_shift_the_fields() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let text = format!("7 (a) (b c) S {}", fields.join(" "));
        let expected = Stat {
            began: 22,
            pu: 39,
            ended: false,
        };
        assert_eq!(parse(&text), Some(expected));
        assert!(parse(&text.replace(" S ", " Z ")).unwrap().ended);
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn this_process_has_this_thread() {
        let pid = std::process::id() as i32;
        assert!(of(pid).unwrap().contains(&pid));
        assert!(!stat(pid).unwrap().ended);
        assert!(of(0).is_err() && stat(0).is_none());
    }
}
