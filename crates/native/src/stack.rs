//! Builds a program's initial stack in the kernel's layout: pure.

/// Types of the auxiliary vector that a loader sets.
pub mod aux {
    /// End of the vector.
    pub const NULL: u64 = 0;
    /// Address of the program headers.
    pub const PHDR: u64 = 3;
    /// Their size.
    pub const PHENT: u64 = 4;
    /// Their number.
    pub const PHNUM: u64 = 5;
    /// Address of the dynamic linker.
    pub const BASE: u64 = 7;
    /// The program's first instruction.
    pub const ENTRY: u64 = 9;
    /// The second word of the processor's capabilities.
    pub const HWCAP2: u64 = 26;
    /// Address of the vDSO.
    pub const VDSO: u64 = 33;
    /// Name of the file.
    pub const EXECFN: u64 = 31;
}

/// A stack: bytes for the address that is the stack pointer.
#[derive(Debug)]
pub struct Stack {
    /// The stack pointer.
    pub sp: u64,
    /// Contents from there on.
    pub bytes: Vec<u8>,
    /// First and last address of the arguments' strings.
    pub arguments: (u64, u64),
    /// Address of the auxiliary vector, and its bytes.
    pub auxiliary: (u64, u64),
}

/// Builds the stack below `top`. Of `auxiliary`, the entries in `own` and that of the file's name are replaced. The
/// variables follow the arguments, as the kernel has them: programs write their titles over both.
pub fn build(
    top: u64,
    file: &[u8],
    arguments: &[Vec<u8>],
    environment: &[&[u8]],
    auxiliary: &[(u64, u64)],
    own: &[(u64, u64)],
) -> Stack {
    let mut strings = Vec::new();
    let mut offsets = Vec::new();
    for argument in arguments {
        offsets.push(strings.len() as u64);
        strings.extend(argument);
        strings.push(0);
    }
    let end = strings.len() as u64;
    let mut variables = Vec::new();
    for variable in environment {
        variables.push(strings.len() as u64);
        strings.extend(*variable);
        strings.push(0);
    }
    let file_at = strings.len() as u64;
    strings.extend(file);
    strings.push(0);
    let at = (top - strings.len() as u64) & !15;
    let mut words = vec![arguments.len() as u64];
    words.extend(offsets.iter().map(|offset| at + offset));
    words.push(0);
    words.extend(variables.iter().map(|offset| at + offset));
    words.push(0);
    let name = [(aux::EXECFN, at + file_at)];
    let before = words.len() as u64;
    for &(kind, value) in auxiliary {
        let replaced = own.iter().chain(&name).find(|entry| entry.0 == kind);
        let value = replaced.map_or(value, |entry| entry.1);
        if kind != aux::NULL {
            words.extend([kind, value]);
        }
    }
    words.extend([aux::NULL, 0]);
    let sp = (at - 8 * words.len() as u64) & !15;
    let auxiliary = (sp + 8 * before, 8 * (words.len() as u64 - before));
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize((at - sp) as usize, 0);
    bytes.extend(&strings);
    Stack {
        sp,
        bytes,
        arguments: (at, at + end),
        auxiliary,
    }
}

#[cfg(test)]
mod tests {
    use super::{aux, build};

    #[test]
    fn arguments_environment_and_auxiliary_entries_in_order() {
        let arguments = [b"prog".to_vec(), b"-x".to_vec()];
        let auxiliary = [(aux::PHDR, 1), (6, 4096), (aux::EXECFN, 2), (0, 0)];
        let stack = build(
            0x8000,
            b"/bin/prog",
            &arguments,
            &[b"A=1"],
            &auxiliary,
            &[(aux::PHDR, 9)],
        );
        assert_eq!(stack.sp % 16, 0);
        assert!(stack.sp + stack.bytes.len() as u64 <= 0x8000);
        let word = |n: usize| u64::from_le_bytes(stack.bytes[8 * n..8 * n + 8].try_into().unwrap());
        let text = |at: u64| {
            let bytes = &stack.bytes[(at - stack.sp) as usize..];
            bytes.split(|&byte| byte == 0).next().unwrap().to_vec()
        };
        assert_eq!(word(0), 2);
        assert_eq!(text(word(1)), b"prog");
        assert_eq!(text(word(2)), b"-x");
        assert_eq!([word(3), word(5)], [0, 0]);
        assert_eq!(text(word(4)), b"A=1");
        assert_eq!(word(4), word(2) + 3);
        assert_eq!(
            [word(6), word(7), word(8), word(9)],
            [aux::PHDR, 9, 6, 4096]
        );
        assert_eq!(word(10), aux::EXECFN);
        assert_eq!(text(word(11)), b"/bin/prog");
        assert_eq!([word(12), word(13)], [0, 0]);
        assert_eq!(stack.arguments, (word(1), word(2) + 3));
        assert_eq!(stack.auxiliary, (stack.sp + 6 * 8, 8 * 8));
    }
}
