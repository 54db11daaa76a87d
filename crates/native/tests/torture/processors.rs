//! Lists of instructions of several processors, by the extensions in `/proc/cpuinfo` that [`crate::instructions`]
//! knows: the processor at hand does not decide what is tested.

use std::collections::BTreeSet;

/// A processor's name, the one whose extensions it has too, and what it adds.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// Each before those that refer to it.
const PROCESSORS: &[Row] = &[
    (
        "nehalem",
        "",
        &["fpu", "sse2", "cx16", "ssse3", "sse4_1", "sse4_2", "popcnt"],
    ),
    (
        "ivy-bridge",
        "nehalem",
        &["aes", "pclmulqdq", "avx", "f16c", "fsgsbase"],
    ),
    (
        "haswell",
        "ivy-bridge",
        &["avx2", "fma", "abm", "bmi1", "bmi2", "movbe"],
    ),
    ("skylake", "haswell", &["adx"]),
    (
        "cascade-lake",
        "skylake",
        &["avx512f", "avx512bw", "avx512vl"],
    ),
    (
        "sapphire-rapids",
        "cascade-lake",
        &["sha_ni", "vaes", "vpclmulqdq", "gfni", "avx512_vbmi2"],
    ),
    ("zen-2", "skylake", &["sha_ni", "sse4a"]),
    ("zen-3", "zen-2", &["vaes", "vpclmulqdq"]),
    (
        "zen-4",
        "zen-3",
        &["avx512f", "avx512bw", "avx512vl", "gfni", "avx512_vbmi2"],
    ),
];

/// The names of all lists.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROCESSORS.iter().map(|row| row.0)
}

/// The extensions of a processor.
pub fn extensions(name: &str) -> BTreeSet<String> {
    let row = PROCESSORS.iter().find(|row| row.0 == name);
    let Some((_, before, added)) = row else {
        let known: Vec<&str> = names().collect();
        panic!("no processor {name}; known: this, {}", known.join(", "));
    };
    let mut all = match *before {
        "" => BTreeSet::new(),
        before => extensions(before),
    };
    all.extend(added.iter().map(|&added| added.to_owned()));
    all
}

/// The extensions of the processor at hand, as `/proc/cpuinfo` names them.
pub fn at_hand() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
    let flags = text.lines().find(|line| line.starts_with("flags"));
    let flags = flags.and_then(|line| line.split_once(':'));
    let flags = flags.expect("flags").1;
    flags.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions::EXTENSIONS;

    #[test]
    fn each_extension_is_on_a_list_and_each_list_has_known_ones() {
        let all: BTreeSet<String> = names().flat_map(extensions).collect();
        let known = EXTENSIONS.iter().map(|(name, _)| (*name).to_owned());
        assert_eq!(all, known.collect());
    }
}
