//! Instructions in place of those that the processor at hand lacks: with the same operands in memory, loaded or stored,
//! and the same registers as far as there are any, so that a block has the same accesses, branches and paths.

/// Mnemonics between others of a template that every processor has.
const COMMON: [&str; 4] = ["mov", "xor", "or", "lea"];

/// An operand.
#[derive(Clone, Copy)]
enum Operand<'a> {
    /// Bytes, and what is between the brackets.
    Memory(usize, &'a str),
    /// Its number; only the lower 16 registers have others in their place.
    Vector(&'a str),
    General(&'a str),
    Other,
}

impl<'a> Operand<'a> {
    fn of(text: &'a str) -> Self {
        let text = text.split('{').next().unwrap_or(text).trim();
        if let Some((size, rest)) = text.split_once(" ptr [") {
            let bytes = match size {
                "byte" => 1,
                "word" => 2,
                "dword" => 4,
                "qword" => 8,
                "xmmword" => 16,
                "ymmword" => 32,
                _ => 64,
            };
            return Self::Memory(bytes, rest.trim_end_matches(']'));
        }
        if let Some(number) = text.get(1..).and_then(|rest| rest.strip_prefix("mm")) {
            return Self::Vector(number);
        }
        let mask = text.len() == 2 && text.starts_with('k');
        match text.starts_with(|first: char| first.is_ascii_alphabetic()) && !mask {
            true => Self::General(text),
            false => Self::Other,
        }
    }
}

/// Bytes of a general register.
fn width(register: &str) -> usize {
    let numbered = register.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    match (numbered, register.chars().last()) {
        (true, Some('d')) => 4,
        (true, Some('w')) => 2,
        (true, Some('b')) | (false, Some('l')) => 1,
        (true, _) => 8,
        (false, _) if register.starts_with('r') => 8,
        (false, _) if register.starts_with('e') => 4,
        (false, _) => 2,
    }
}

/// An access of `bytes` bytes.
fn access(bytes: usize, at: &str, stores: bool, operands: &[Operand]) -> String {
    let vector = operands.iter().find_map(|operand| match operand {
        Operand::Vector(number) => Some(*number),
        _ => None,
    });
    let general = operands.iter().find_map(|operand| match operand {
        Operand::General(name) if width(name) == bytes => Some(*name),
        _ => None,
    });
    let moved = |name: &str, register: &str, size: &str, at: &str| match stores {
        true => format!("{name} {size} ptr [{at}], {register}"),
        false => format!("{name} {register}, {size} ptr [{at}]"),
    };
    let register = format!("xmm{}", vector.unwrap_or("0"));
    let size = ["byte", "word", "dword", "qword"][bytes.min(8).ilog2() as usize];
    match (bytes, general) {
        (16.., _) => {
            let part = |from| moved("movups", &register, "xmmword", &format!("{at} + {from}"));
            let parts: Vec<String> = (0..bytes).step_by(16).map(part).collect();
            parts.join("\n")
        }
        (_, Some(general)) => moved("mov", general, size, at),
        (8, None) => moved("movlps", &register, size, at),
        (4, None) => moved("movd", &register, size, at),
        (_, None) if stores => format!("mov {size} ptr [{at}], 7"),
        (_, None) => format!("cmp {size} ptr [{at}], 7"),
    }
}

/// What takes the place of an instruction.
pub fn of(instruction: &str) -> String {
    let (mnemonic, rest) = instruction.split_once(' ').unwrap_or((instruction, ""));
    if COMMON.contains(&mnemonic) {
        return instruction.to_owned();
    }
    let operands: Vec<Operand> = rest.split(", ").map(Operand::of).collect();
    for (n, operand) in operands.iter().enumerate() {
        if let Operand::Memory(bytes, at) = *operand {
            // Of a gather or scatter, the place of the first element.
            let simple: Vec<&str> = at.split(" + ").filter(|one| !one.contains("mm")).collect();
            return access(bytes, &simple.join(" + "), n == 0, &operands);
        }
    }
    match operands[..] {
        [Operand::Vector(to), Operand::Vector(from), ..] => format!("pxor xmm{to}, xmm{from}"),
        [Operand::Vector(to), ..] => format!("pxor xmm{to}, xmm{to}"),
        [Operand::General(to), Operand::Vector(from), ..] if width(to) == 8 => {
            format!("movq {to}, xmm{from}")
        }
        [Operand::General(to), Operand::Vector(from), ..] => format!("movd {to}, xmm{from}"),
        [Operand::General(to), Operand::General(from), ..] if width(to) == width(from) => {
            format!("add {to}, {from}")
        }
        [Operand::General(to), ..] => format!("not {to}"),
        [_, Operand::General(from), ..] => format!("test {from}, {from}"),
        _ => "nop".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn accesses_and_registers_stay() {
        let cases = [
            ("sha1nexte xmm3, xmm4", "pxor xmm3, xmm4"),
            (
                "sha256msg1 xmm3, xmmword ptr [r15 + 64]",
                "movups xmm3, xmmword ptr [r15 + 64 + 0]",
            ),
            (
                "vmovdqu8 ymmword ptr [r15]{k3}, ymm5",
                "movups xmmword ptr [r15 + 0], xmm5\nmovups xmmword ptr [r15 + 16], xmm5",
            ),
            (
                "movbe r9, qword ptr [r15 + 1]",
                "mov r9, qword ptr [r15 + 1]",
            ),
            (
                "movbe dword ptr [r15 + 1], ebp",
                "mov dword ptr [r15 + 1], ebp",
            ),
            (
                "vbroadcastsd ymm1, qword ptr [r15]",
                "movlps xmm1, qword ptr [r15]",
            ),
            (
                "vpgatherdd ymm1, dword ptr [r15 + ymm2 * 4 + 16], ymm3",
                "movd xmm1, dword ptr [r15 + 16]",
            ),
            ("vpmovmskb r8d, ymm1", "movd r8d, xmm1"),
            ("adcx rax, r10", "add rax, r10"),
            ("kmovq k1, rdx", "test rdx, rdx"),
            ("kandw k1, k2, k3", "nop"),
            ("mov rax, -1", "mov rax, -1"),
            ("vzeroupper", "nop"),
        ];
        for (instruction, expected) in cases {
            assert_eq!(of(instruction), expected);
        }
    }
}
