//! The text of `top`. Pure.

use numaloc_model::number;
use numaloc_model::profile::Resident;

use super::rows::{Role, Shown, missing};
use super::terminal::Key;

/// Columns of a role's name.
const NAME: usize = 32;
/// Threads of an opened role that are shown where there is no terminal.
const THREADS: usize = 16;

/// What the user has chosen to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The chosen role, from 0; `None` without a terminal.
    chosen: Option<usize>,
    /// The role that is open, by name.
    open: Option<String>,
    columns: usize,
    lines: usize,
}

impl View {
    /// Of a result that is printed once, in lines of at most this many columns.
    pub fn once(columns: usize) -> Self {
        Self {
            columns,
            lines: usize::MAX,
            ..Self::default()
        }
    }

    /// The size of the terminal; the choice stays on a role that is there.
    pub fn fit(&mut self, (columns, lines): (usize, usize), shown: &Shown) {
        (self.columns, self.lines) = (columns, lines);
        let last = shown.roles.len().saturating_sub(1);
        self.chosen = Some(self.chosen.unwrap_or(0).min(last));
    }

    /// Does what a key says.
    pub fn take(&mut self, key: Key, shown: &Shown) {
        let chosen = self.chosen.unwrap_or(0);
        match key {
            Key::Up => self.chosen = Some(chosen.saturating_sub(1)),
            Key::Down => self.chosen = Some((chosen + 1).min(shown.roles.len().saturating_sub(1))),
            Key::Open => {
                let name = shown.roles.get(chosen).map(|role| role.name.clone());
                self.open = name.filter(|name| self.open.as_ref() != Some(name));
            }
            Key::Close => self.open = None,
            Key::Quit | Key::Sort => {}
        }
    }
}

/// The whole text, a line each.
pub fn text(shown: &Shown, view: &View) -> String {
    let mut lines = head(shown);
    for (at, role) in shown.roles.iter().enumerate() {
        let is_open = view.open.as_ref() == Some(&role.name);
        let mark = match (view.chosen == Some(at), is_open) {
            (true, _) => ">",
            (false, true) => "-",
            (false, false) => " ",
        };
        lines.push(format!("{mark}{}", row(role)));
        if is_open {
            let threads = role.threads.iter().take(THREADS);
            lines.extend(threads.map(|thread| {
                let node = thread
                    .node
                    .map_or_else(|| "-".to_owned(), |node| node.to_string());
                let name = format!("  {} {}", thread.tid, thread.name);
                let pus = number::fixed(thread.pus, 2);
                format!(
                    " {} {:>7} {pus:>7}  PU {} of node {node}",
                    padded(&name),
                    "",
                    thread.pu
                )
            }));
            if role.threads.len() > THREADS {
                lines.push(format!("   and {} more", role.threads.len() - THREADS));
            }
        }
    }
    let foot = foot(shown, view.chosen.is_some());
    let room = view.lines.saturating_sub(foot.len());
    if lines.len() > room {
        let hidden = lines.len() - room.saturating_sub(1);
        lines.truncate(room.saturating_sub(1));
        lines.push(format!(" and {hidden} lines more"));
    }
    lines.extend(foot);
    let cut = |line: String| line.chars().take(view.columns).collect::<String>();
    lines.into_iter().map(|line| cut(line) + "\n").collect()
}

fn head(shown: &Shown) -> Vec<String> {
    vec![
        format!(
            "{}: {}, {}, {} PUs used in {} s, by {}",
            shown.of,
            plural(shown.processes, "process", "processes"),
            plural(shown.threads, "thread", "threads"),
            number::fixed(shown.pus, 2),
            number::fixed(shown.seconds, 1),
            shown.sort.name(),
        ),
        format!("memory: {}", by_node(&shown.resident)),
        format!(
            " {} {:>7} {:>7}  {:<22} memory by node",
            padded("role"),
            "threads",
            "PUs",
            "PUs by node"
        ),
    ]
}

fn row(role: &Role) -> String {
    let nodes = role.pus_by_node.iter();
    let nodes: Vec<String> = nodes
        .map(|(node, pus)| format!("{node}: {}", number::fixed(*pus, 2)))
        .collect();
    let nodes = if nodes.is_empty() {
        "-".to_owned()
    } else {
        nodes.join(", ")
    };
    let name = match role.processes {
        0 | 1 => role.name.clone(),
        processes => format!("{} ({processes} processes)", role.name),
    };
    format!(
        "{} {:>7} {:>7}  {nodes:<22} {}",
        padded(&name),
        role.threads.len(),
        number::fixed(role.pus, 2),
        by_node(&role.resident)
    )
}

fn foot(shown: &Shown, is_live: bool) -> Vec<String> {
    let per_s = |value: f64| number::fixed(value, 0);
    let mut lines = vec![format!(
        "machine, per second: {} hint faults, {} pages moved by balancing, {} pages moved in all",
        per_s(shown.hint_faults_per_s),
        per_s(shown.pages_balanced_per_s),
        per_s(shown.pages_moved_per_s)
    )];
    if let Some(share) = shown.remote_share {
        let share = number::percent(share);
        lines.push(format!(
            "remote share: {share} of the machine's hint faults"
        ));
    }
    lines.extend(missing(shown).into_iter().map(str::to_owned));
    if is_live {
        lines.push("q quit  s sort  j/k choose  Enter open".to_owned());
    }
    lines
}

fn plural(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// A name in its column.
fn padded(name: &str) -> String {
    let length = name.chars().count();
    match length > NAME {
        true => name.chars().take(NAME - 1).chain(['~']).collect(),
        false => name.to_owned() + &" ".repeat(NAME - length),
    }
}

fn by_node(resident: &Resident) -> String {
    let nodes = resident.iter();
    let nodes: Vec<String> = nodes
        .map(|(node, bytes)| format!("{node}: {}", number::bytes(*bytes as f64)))
        .collect();
    match nodes.is_empty() {
        true => "-".to_owned(),
        false => nodes.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Sort, sort, tests::example};
    use super::*;

    fn shown() -> Shown {
        let mut shown = example();
        sort(&mut shown.roles, Sort::Time);
        shown
    }

    #[test]
    fn a_role_opens_and_closes_where_the_choice_is() {
        let shown = shown();
        let mut view = View::default();
        view.fit((200, 40), &shown);
        let closed = text(&shown, &view);
        assert!(
            closed.contains(">server: client N (2 processes)"),
            "{closed}"
        );
        assert!(!closed.contains("PU 3 of node 1"));
        view.take(Key::Open, &shown);
        assert!(
            text(&shown, &view).contains("40 server"),
            "{}",
            text(&shown, &view)
        );
        assert!(text(&shown, &view).contains("PU 3 of node 1"));
        view.take(Key::Open, &shown);
        assert_eq!(text(&shown, &view), closed);
        for _ in 0..9 {
            view.take(Key::Down, &shown);
        }
        assert!(text(&shown, &view).contains(">server "));
        view.take(Key::Up, &shown);
        assert!(text(&shown, &view).contains(">log"));
    }

    #[test]
    fn lines_fit_the_terminal() {
        let shown = shown();
        let mut view = View::default();
        view.fit((30, 8), &shown);
        let text = text(&shown, &view);
        assert!(text.lines().count() <= 8, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 30));
        assert!(text.contains("lines more"), "{text}");
    }
}
