//! What threads and processes of one role are called in every run: the names that programs give them, without the
//! parts that differ between members and over time.
//!
//! | in a name | becomes |
//! |---|---|
//! | a number, but not that of a word such as `C2` | `N` |
//! | of a title with the address of a client (`[local]`, `HOST(PORT)`): all after the program | `client backend`, or `walsender` where that is the title's first word |
//! | of the title of an autovacuum worker: the database | nothing |
//!
//! PostgreSQL's titles have the user, the database, the client and the present command of a connection in them
//! (PostgreSQL's manual, 28.1), so no two connections, and no two moments of one, need to have the same. `client
//! backend`, `walsender` and `autovacuum worker` are its own names for these processes, those of
//! `pg_stat_activity.backend_type`.

use std::borrow::Cow;

/// What all members of a role are called, from the name or the title of one.
#[must_use]
pub fn called(name: &str) -> String {
    pattern(&title(name))
}

/// A title without what differs between connections and over their time.
fn title(name: &str) -> Cow<'_, str> {
    let Some((program, rest)) = name.rsplit_once(": ") else {
        return Cow::Borrowed(name);
    };
    let kind = match rest.split(' ').next() {
        Some("walsender") => "walsender",
        _ if rest.starts_with("autovacuum worker ") => "autovacuum worker",
        _ if rest.split(' ').any(is_client) => "client backend",
        _ => return Cow::Borrowed(name),
    };
    Cow::Owned(format!("{program}: {kind}"))
}

/// Whether a word of a title is the address of a client.
fn is_client(word: &str) -> bool {
    let port = word.strip_suffix(')').and_then(|word| word.split_once('('));
    let is_port = |(host, port): (&str, &str)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    word == "[local]" || port.is_some_and(is_port)
}

/// A name with `N` for each number in it. The digit of a word such as `C2` or `G1` is none, nor is a digit that letters
/// follow.
fn pattern(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut out = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit());
        let end = at + digits.count();
        if end == at {
            let next = name[at..].chars().next().map_or(1, char::len_utf8);
            out += &name[at..at + next];
            at += next;
            continue;
        }
        let letters = bytes[..at]
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_alphabetic());
        let is_word = letters.count() == 1 && end < bytes.len();
        let goes_on = bytes.get(end).is_some_and(u8::is_ascii_alphabetic);
        match is_word || goes_on {
            true => out += &name[at..end],
            false => out.push('N'),
        }
        at = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::called;

    #[test]
    fn numbers_are_replaced_but_not_those_of_words() {
        for (name, expected) in [
            ("io_thd_1", "io_thd_N"),
            ("GC Thread#12", "GC Thread#N"),
            ("C2 CompilerThre", "C2 CompilerThre"),
            ("G1 Conc#0", "G1 Conc#N"),
            ("pool-1-thread-27", "pool-N-thread-N"),
            ("worker3", "workerN"),
            ("utf8mb4", "utf8mbN"),
            ("größe7", "größeN"),
        ] {
            assert_eq!(called(name), expected);
        }
    }

    #[test]
    fn connections_are_one_role_whoever_is_connected_and_whatever_they_do() {
        for title in [
            "postgres: ann shop [local] idle",
            "postgres: ann shop [local] idle in transaction",
            "postgres: bob wiki 10.0.0.7(40312) UPDATE waiting",
            "postgres: bob wiki db-3.example.org(5) startup",
        ] {
            assert_eq!(called(title), "postgres: client backend");
        }
        for (title, expected) in [
            (
                "postgres: 15/main: ann shop [local] COMMIT",
                "postgres: N/main: client backend",
            ),
            (
                "postgres: walsender ann 10.0.0.7(1) streaming 0/30",
                "postgres: walsender",
            ),
            (
                "postgres: autovacuum worker shop",
                "postgres: autovacuum worker",
            ),
            (
                "postgres: autovacuum launcher",
                "postgres: autovacuum launcher",
            ),
            (
                "postgres: parallel worker for PID 77",
                "postgres: parallel worker for PID N",
            ),
            // No address of a client.
            ("nginx: worker (1) process", "nginx: worker (N) process"),
            ("server: cache(a)", "server: cache(a)"),
        ] {
            assert_eq!(called(title), expected);
        }
    }
}
