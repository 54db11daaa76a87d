//! Parses lists of host names: Slurm's bracket form, Open MPI's and MPICH's host files.

/// Largest number of hosts in a list.
const MAX_HOSTS: usize = 1 << 20;

/// Why a text is no list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostListError {
    /// A bracket that is not closed.
    #[error("{part:?} has a [ without a ]")]
    NotClosed {
        /// The part of the list.
        part: String,
    },
    /// A bracket that is not opened.
    #[error("{part:?} has a ] without a [")]
    NotOpened {
        /// The part of the list.
        part: String,
    },
    /// Something other than numbers and ranges in brackets.
    #[error("[{inside}] in {part:?} is not a list such as [01-16,20]")]
    Numbers {
        /// What the brackets hold.
        inside: String,
        /// The part of the list.
        part: String,
    },
    /// A part that names too many hosts.
    #[error("{part:?} names more than {MAX_HOSTS} hosts")]
    TooManyInPart {
        /// The part of the list.
        part: String,
    },
    /// A list that names too many hosts.
    #[error("more than {MAX_HOSTS} hosts")]
    TooMany,
    /// Something other than names between commas.
    #[error("{list:?} is not a list of host names such as n[01-16],m1")]
    NotNames {
        /// The list.
        list: String,
    },
    /// A line of a host file that names no hosts.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: Box<HostListError>,
    },
    /// A host file without hosts.
    #[error("no host in it")]
    NoHost,
}

/// Expands `n[001-003,7],m1` to `n001 n002 n003 n7 m1`.
///
/// # Errors
/// [`HostListError`] with the part that is not a valid host list.
pub fn expand(list: &str) -> Result<Vec<String>, HostListError> {
    let mut names = Vec::new();
    for part in split(list)? {
        let mut found = vec![String::new()];
        let mut rest = part;
        while let Some((before, bracket)) = rest.split_once('[') {
            let of = || part.to_owned();
            let (inside, after) = bracket
                .split_once(']')
                .ok_or_else(|| HostListError::NotClosed { part: of() })?;
            let numbers = numbers(inside).ok_or_else(|| HostListError::Numbers {
                inside: inside.to_owned(),
                part: of(),
            })?;
            if numbers.len().saturating_mul(found.len()) > MAX_HOSTS {
                return Err(HostListError::TooManyInPart { part: of() });
            }
            found = found
                .iter()
                .flat_map(|name| numbers.iter().map(move |n| format!("{name}{before}{n}")))
                .collect();
            rest = after;
        }
        if rest.contains(']') {
            return Err(HostListError::NotOpened {
                part: part.to_owned(),
            });
        }
        names.extend(found.into_iter().map(|name| name + rest));
        if names.len() > MAX_HOSTS {
            return Err(HostListError::TooMany);
        }
    }
    Ok(names)
}

/// Splits at the commas outside brackets.
fn split(list: &str) -> Result<Vec<&str>, HostListError> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[start..].trim());
    if parts
        .iter()
        .any(|part| part.is_empty() || part.contains(char::is_whitespace))
    {
        return Err(HostListError::NotNames {
            list: list.to_owned(),
        });
    }
    Ok(parts)
}

fn numbers(inside: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for part in inside.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let digits = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| text.parse::<usize>().ok())?
        };
        let (from, to) = (digits(first)?, digits(last)?);
        if to < from || to - from >= MAX_HOSTS {
            return None;
        }
        all.extend((from..=to).map(|n| format!("{n:0width$}", width = first.len())));
    }
    Some(all)
}

/// The hosts of a host file, each once, in order. Lines are `name`, `name slots=4` or `name:4`; `#` starts a comment.
///
/// # Errors
/// [`HostListError::Line`] with the invalid line, [`HostListError::NoHost`].
pub fn from_hostfile(text: &str) -> Result<Vec<String>, HostListError> {
    let mut names: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        let Some(word) = line
            .split('#')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .next()
        else {
            continue;
        };
        // A user name may precede the host, and a count may follow it.
        let word = word.rsplit('@').next().unwrap_or(word);
        let list = word.split(':').next().unwrap_or(word);
        let found = expand(list).map_err(|why| HostListError::Line {
            line: at + 1,
            why: Box::new(why),
        })?;
        names.extend(found.into_iter().filter(|name| seen.insert(name.clone())));
    }
    if names.is_empty() {
        return Err(HostListError::NoHost);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_expand_with_leading_zeros() {
        assert_eq!(
            expand("n[08-11,3],m1").unwrap(),
            ["n08", "n09", "n10", "n11", "n3", "m1"]
        );
        assert_eq!(
            expand("r[1-2]n[0-1]x").unwrap(),
            ["r1n0x", "r1n1x", "r2n0x", "r2n1x"]
        );
        for bad in [
            "",
            "a b",
            "n[1",
            "n1]",
            "n[2-1]",
            "n[a]",
            "n[0-9999999999]",
            "n[1-],x",
        ] {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn host_files_of_both_libraries() {
        let text = "# cluster\nn1 slots=16\nuser@n2:8 # more\n\nn1\nn[3-4]\n";
        assert_eq!(from_hostfile(text).unwrap(), ["n1", "n2", "n3", "n4"]);
        assert!(from_hostfile("# nothing\n").is_err());
        let error = from_hostfile("n[1\n").unwrap_err();
        assert!(error.to_string().contains("line 1"));
    }
}
