//! The terminal of `top`: its second screen, keys without Enter, and its own state again at the end, also after a
//! panic.

use std::io::{self, Read, Write, stdin, stdout};
use std::sync::Arc;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// Second screen, no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor again, first screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// First column of the first line; what was there is overwritten, so that nothing flickers.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST: &str = "\x1b[J";

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Quit,
    Sort,
    Up,
    Down,
    Open,
    Close,
}

/// The keys in what a terminal has sent.
fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        // Arrows are three bytes, all others one.
        let length = if bytes.starts_with(b"\x1b") { 3 } else { 1 };
        let (first, rest) = bytes.split_at(length.min(bytes.len()));
        found.extend(key(first));
        bytes = rest;
    }
    found
}

/// What a terminal sends for a key.
fn key(bytes: &[u8]) -> Option<Key> {
    Some(match bytes {
        b"q" | b"Q" => Key::Quit,
        b"s" | b"S" => Key::Sort,
        b"k" | b"\x1b[A" | b"\x1bOA" => Key::Up,
        b"j" | b"\x1b[B" | b"\x1bOB" => Key::Down,
        b"\n" | b"\r" | b"\x1b[C" | b"\x1bOC" => Key::Open,
        b"\x1b[D" | b"\x1bOD" => Key::Close,
        _ => return None,
    })
}

/// The terminal, as `top` uses it.
pub struct Terminal {
    before: Arc<Termios>,
}

impl Terminal {
    /// Takes it.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        // A key, or nothing after a tenth of a second.
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 1;
        // A stopped process would leave the terminal like this.
        raw.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        let before = Arc::new(before);
        write(ENTER);
        let (saved, usual) = (before.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            // The message belongs on the first screen.
            restore(&saved);
            usual(panic);
        }));
        Ok(Self { before })
    }

    /// Columns and lines.
    pub fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(stdout());
        let (columns, lines) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
        // Some terminals do not report their size.
        let or = |value: u16, usual: usize| if value == 0 { usual } else { value.into() };
        (or(columns, 80), or(lines, 24))
    }

    /// Shows a text.
    pub fn draw(&self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines.join(&format!("{REST_OF_LINE}\r\n"));
        write(&format!("{HOME}{shown}{REST_OF_LINE}{REST}"));
    }

    /// The keys that were pressed; waits for at most a tenth of a second.
    pub fn keys(&self) -> Vec<Key> {
        let mut bytes = [0; 64];
        match stdin().lock().read(&mut bytes) {
            Ok(0) => {
                // Without a terminal's wait, this would spin.
                std::thread::sleep(std::time::Duration::from_millis(10));
                Vec::new()
            }
            Ok(count) => keys(&bytes[..count]),
            Err(_) => Vec::new(),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

fn restore(before: &Termios) {
    write(LEAVE);
    let _ = tcsetattr(stdin(), OptionalActions::Now, before);
}

fn write(text: &str) {
    let mut out = stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_keys_in_both_modes_of_terminals() {
        assert_eq!(key(b"\x1b[A"), Some(Key::Up));
        assert_eq!(key(b"\x1bOB"), Some(Key::Down));
        assert_eq!(key(b"\r"), Some(Key::Open));
        assert_eq!(key(b"x"), None);
        // What was typed quickly comes in one piece.
        assert_eq!(keys(b"s\x1b[Bxq"), [Key::Sort, Key::Down, Key::Quit]);
        assert_eq!(keys(b"\x1b["), []);
    }
}
