//! Damage drawn from a seed.

/// SplitMix64.
pub struct Random(u64);

/// Numbers that are often forgotten, as text.
const NUMBERS: [&str; 14] = [
    "-1",
    "0",
    "1",
    "nan",
    "inf",
    "1e309",
    "1e-320",
    "255",
    "32768",
    "65536",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
];

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Below `limit`, which is above 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn choice<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Damages bytes in one to three places.
pub fn bytes(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bad = good.to_owned();
    for _ in 0..=random.below(3) {
        if bad.is_empty() {
            bad.push(random.next() as u8);
            continue;
        }
        let at = random.below(bad.len());
        let end = (at + 1 + random.below(32)).min(bad.len());
        match random.below(7) {
            0 => bad[at] ^= 1 << random.below(8),
            1 => bad[at] = *random.choice(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => bad.truncate(at),
            3 => drop(bad.drain(at..end)),
            4 => {
                let again = bad[at..end].to_owned();
                bad.splice(at..at, again);
            }
            5 => {
                let value = *random.choice(&[0, 1, 1 << 31, u64::MAX >> 1, 1 << 63, u64::MAX]);
                let width = *random.choice(&[4, 8]);
                let end = (at + width).min(bad.len());
                bad[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            _ => {
                let noise: Vec<u8> = (at..end).map(|_| random.next() as u8).collect();
                bad[at..end].copy_from_slice(&noise);
            }
        }
    }
    bad
}

/// Damages text: mostly its numbers, words and lines, sometimes its bytes.
pub fn text(good: &[u8], random: &mut Random) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(good) else {
        return bytes(good, random);
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=random.below(2) {
        if lines.is_empty() {
            break;
        }
        let at = random.below(lines.len());
        match random.below(8) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            3 => return bytes(good, random),
            _ => {
                let numbered: Vec<usize> = (0..lines.len())
                    .filter(|&line| lines[line].bytes().any(|b| b.is_ascii_digit()))
                    .collect();
                if !numbered.is_empty() {
                    let line = *random.choice(&numbered);
                    lines[line] = another_number(&lines[line], random);
                }
            }
        }
    }
    let mut bad = lines.join("\n");
    bad.push('\n');
    bad.into_bytes()
}

/// The line with one of its numbers replaced.
fn another_number(line: &str, random: &mut Random) -> String {
    let of_number = |c: char| c.is_ascii_digit();
    let starts: Vec<usize> = line
        .char_indices()
        .filter(|&(at, c)| of_number(c) && !line[..at].ends_with(of_number))
        .map(|(at, _)| at)
        .collect();
    let start = *random.choice(&starts);
    let end = line[start..]
        .find(|c| !of_number(c))
        .map_or(line.len(), |length| start + length);
    format!(
        "{}{}{}",
        &line[..start],
        random.choice(&NUMBERS),
        &line[end..]
    )
}
