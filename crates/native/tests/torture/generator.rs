//! Makes random blocks of assembly. r15 is the address of the memory that blocks may change, r14 an index into it, r13
//! counts iterations.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::instructions::EXTENSIONS;
use crate::stand_in;

const R64: [&str; 12] = [
    "rax", "rcx", "rdx", "rbx", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
];
const R32: [&str; 12] = [
    "eax", "ecx", "edx", "ebx", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d",
];
const R16: [&str; 12] = [
    "ax", "cx", "dx", "bx", "bp", "si", "di", "r8w", "r9w", "r10w", "r11w", "r12w",
];
const R8: [&str; 12] = [
    "al", "cl", "dl", "bl", "bpl", "sil", "dil", "r8b", "r9b", "r10b", "r11b", "r12b",
];
const CONDITIONS: [&str; 16] = [
    "o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g",
];
const SIZES: [(&str, &str); 8] = [
    ("m8", "byte"),
    ("m16", "word"),
    ("m32", "dword"),
    ("m64", "qword"),
    ("m128", "xmmword"),
    ("m256", "ymmword"),
    ("m512", "zmmword"),
    ("a128", "xmmword"),
];

/// An instruction, or several.
#[derive(Clone, Copy)]
struct Template {
    text: &'static str,
    /// The processor at hand lacks it: see [`stand_in`].
    lacking: bool,
}

/// A generator of blocks.
pub struct Generator {
    seed: u64,
    templates: Vec<Template>,
    avx: bool,
    /// Loads a mask register, if the processor has any.
    mask: Option<&'static str>,
    /// Number of the next local label.
    label: u64,
}

impl Generator {
    /// A generator for a processor with the extensions `listed`, of which the one at hand lacks some.
    pub fn new(seed: u64, listed: &BTreeSet<String>, at_hand: &BTreeSet<String>) -> Self {
        let has = |name: &str| listed.contains(name) && at_hand.contains(name);
        let groups = EXTENSIONS.iter().filter(|(name, _)| listed.contains(*name));
        let templates = groups.flat_map(|(name, list)| {
            let lacking = !at_hand.contains(*name);
            list.iter().map(move |&text| Template { text, lacking })
        });
        Self {
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            templates: templates.collect(),
            avx: has("avx"),
            mask: match has("avx512bw") {
                true => Some("kmovq"),
                false => has("avx512f").then_some("kmovw"),
            },
            label: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        ((self.seed >> 11) % limit as u64) as usize
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn label(&mut self) -> String {
        self.label += 1;
        format!(".L{}", self.label)
    }

    /// An operand in memory, after instructions that it needs.
    fn memory(&mut self, size: &str, aligned: bool, before: &mut String) -> String {
        let place = if aligned {
            format!("r15 + {}", 64 * self.below(32))
        } else {
            match self.below(4) {
                0 => format!("rip + arena + {}", self.below(3900)),
                1 => {
                    let register = self.pick(&R8);
                    let _ = writeln!(before, "movzx r14d, {register}");
                    format!("r15 + r14 * 8 + {}", self.below(1900))
                }
                _ => format!("r15 + {}", self.below(3900)),
            }
        };
        format!("{size} ptr [{place}]")
    }

    /// An instruction of a template with operands.
    fn filled(&mut self, Template { text, lacking }: Template) -> String {
        let (mut before, mut rest) = (String::new(), text);
        let mut text = String::new();
        while let Some((head, tail)) = rest.split_once('{') {
            let (name, tail) = tail.split_once('}').expect("a closing brace");
            rest = tail;
            text += head;
            text += &match name {
                "r64" | "q64" => self.pick(&R64).to_owned(),
                "r32" => self.pick(&R32).to_owned(),
                "r16" => self.pick(&R16).to_owned(),
                "r8" => self.pick(&R8).to_owned(),
                "cc" => self.pick(&CONDITIONS).to_owned(),
                "i8" => (1 + self.below(127)).to_string(),
                "i32" => self.below(1 << 31).to_string(),
                "x" => format!("xmm{}", self.below(16)),
                "y" => format!("ymm{}", self.below(16)),
                "z" => format!("zmm{}", self.below(16)),
                "k" => format!("k{}", 1 + self.below(7)),
                "by k" => format!("{{k{}}}", 1 + self.below(7)),
                "by k or 0" => format!("{{k{}}}{{z}}", 1 + self.below(7)),
                _ => {
                    let size = SIZES.iter().find(|size| size.0 == name).expect("a size");
                    self.memory(size.1, name == "a128", &mut before)
                }
            };
        }
        for line in (text + rest).split("; ") {
            match lacking {
                true => before += &stand_in::of(line),
                false => before += line,
            }
            before.push('\n');
        }
        before
    }

    fn plain(&mut self, count: usize) -> String {
        (0..count)
            .map(|_| {
                let chosen = self.below(self.templates.len());
                self.filled(self.templates[chosen])
            })
            .collect()
    }

    /// Branches around and between random instructions; `functions` gets what the block calls.
    fn branch(&mut self, functions: &mut String) -> String {
        let (here, there) = (self.label(), self.label());
        let (a, b, c) = (self.plain(2), self.plain(1), self.plain(2));
        let condition = self.pick(&CONDITIONS);
        let count = 1 + self.below(5);
        match self.below(12) {
            0 => format!("{a}j{condition} {here}\n{b}{here}:\n{c}"),
            1 => format!("mov r13d, {count}\n{here}:\n{a}dec r13d\njnz {here}\n"),
            2 => format!("mov ecx, {count}\n{here}:\nadd rax, rdx\nadc rbx, rax\nloop {here}\n{a}"),
            3 => format!("{a}jrcxz {here}\n{b}{here}:\n"),
            4 => {
                // A function that is called twice, with flags and registers alive around it.
                let _ = write!(functions, "{here}:\n{b}ret\n");
                format!("{a}call {here}\nset{condition} r8b\ncall {here}\nadc r9, rcx\n")
            }
            5 => {
                let _ = write!(functions, "{here}:\n{b}ret 16\n");
                format!("push rax\npush rbx\n{a}call {here}\nset{condition} r8b\nadd r9, rcx\n")
            }
            6 => {
                let _ = write!(
                    functions,
                    "{here}:\nset{condition} bl\nadc rdx, rcx\n{b}ret\n"
                );
                let register = self.pick(&R64);
                format!("{a}lea {register}, [rip + {here}]\ncall {register}\n{c}")
            }
            7 => {
                let _ = write!(
                    functions,
                    "{here}:\n{b}ret\n.section .data\n{there}: .quad {here}\n.text\n"
                );
                format!("{a}call [rip + {there}]\nset{condition} al\nmov rcx, rbx\n{c}")
            }
            8 => {
                let register = self.pick(&R64);
                format!(
                    "{a}lea {register}, [rip + {here}]\njmp {register}\nud2\n{here}:\nset{condition} al\nadc r8, rcx\n{c}"
                )
            }
            9 => {
                let cases: Vec<String> = (0..4).map(|_| self.label()).collect();
                let mut text = format!("{a}mov r14d, edx\nand r14d, 3\njmp [r14 * 8 + {there}]\n");
                for case in &cases {
                    let body = self.plain(1);
                    let _ = write!(text, "{case}:\n{body}jmp {here}\n");
                }
                let _ = write!(
                    functions,
                    ".section .data\n{there}: .quad {}\n.text\n",
                    cases.join(", ")
                );
                format!("{text}{here}:\nset{condition} al\n{c}")
            }
            10 => {
                let turns = self.turns(&here);
                format!("{a}{turns}set{condition} al\nadc rdx, rcx\n{c}")
            }
            _ => format!(
                "{a}lea rax, [rip + {here}]\npush rax\nret\nud2\n{here}:\nset{condition} al\nadd rdx, rcx\n{c}"
            ),
        }
    }

    /// A loop whose accesses move by constants, of any length up to that of the memory.
    fn turns(&mut self, label: &str) -> String {
        let scale = [1, 2, 4, 8][self.below(4)];
        let step = 1 + self.below(5);
        let last = 2 + self.below(3500 / scale);
        let accesses: String = (0..1 + self.below(4))
            .map(|_| {
                let place = format!("[r15 + r14 * {scale} + {}]", self.below(500));
                let (wide, narrow) = (self.pick(&R64), self.pick(&R32));
                let vector = format!("xmm{}", self.below(16));
                match self.below(7) {
                    0 => format!("mov {wide}, {place}\n"),
                    1 => format!("add {place}, {narrow}\n"),
                    2 => format!("mov {place}, {wide}\n"),
                    3 => format!("xor {wide}, {place}\n"),
                    4 => format!("movups {vector}, {place}\n"),
                    5 => format!("movups {place}, {vector}\n"),
                    _ => format!("imul {narrow}, {place}\n"),
                }
            })
            .collect();
        match self.below(4) {
            0 => format!(
                "xor r14d, r14d\n{label}:\n{accesses}add r14, {step}\ncmp r14, {last}\njb {label}\n"
            ),
            1 => format!(
                "mov r14d, {last}\n{label}:\n{accesses}sub r14, {step}\njg {label}\nadd r14, {step}\n"
            ),
            2 => format!(
                "mov r13d, {}\nxor r14d, r14d\n{label}:\n{accesses}lea r14, [r14 + {step}]\ndec r13\njnz {label}\n",
                1 + last / step
            ),
            _ => {
                let register = self.pick(&R64);
                format!(
                    "xor r14d, r14d\n{label}:\nadd r14, {step}\n{accesses}lea {register}, [r15 + r14]\n\
                     cmp r14d, {last}\njl {label}\n"
                )
            }
        }
    }

    /// A block: instructions and branches, and the functions it calls.
    pub fn block(&mut self, number: u64) -> String {
        let (mut text, mut functions) = (format!("block{number}:\n"), String::new());
        for _ in 0..1 + self.below(4) {
            let count = 1 + self.below(6);
            text += &self.plain(count);
            text += &self.branch(&mut functions);
        }
        format!("{text}cld\nret\n{functions}")
    }

    /// A block for each instruction.
    pub fn one_block_each(&mut self) -> Vec<String> {
        let templates = self.templates.clone();
        let block = |(number, &template): (usize, &Template)| {
            let (a, b) = (self.filled(template), self.filled(template));
            format!("block{number}:\n{a}{b}cld\nret\n")
        };
        templates.iter().enumerate().map(block).collect()
    }

    /// The assembly of a program with these blocks; the harness calls `run_block`.
    pub fn program(&self, blocks: &[String]) -> String {
        let registers = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        let mut text = String::from(
            ".intel_syntax noprefix\n.globl blocks, count, arena, run_block, stack_pointer\n.text\nrun_block:\n\
             push rbx\npush rbp\npush r12\npush r13\npush r14\npush r15\nmov [rip + target], rdi\n\
             mov [rip + stack_pointer], rsp\n",
        );
        let (load, vector) = if self.avx {
            ("vmovdqu", "ymm")
        } else {
            ("movdqu", "xmm")
        };
        if self.avx {
            // The upper parts are in their initial state, and XSAVE may leave them out.
            text += "vzeroupper\n";
        }
        for n in 0..16 {
            let _ = writeln!(text, "{load} {vector}{n}, [rsi + {}]", 144 + 32 * n);
        }
        if let Some(load) = self.mask {
            for n in 1..8 {
                let _ = writeln!(text, "{load} k{n}, [rsi + {}]", 8 * n);
            }
        }
        text += "push [rsi + 128]\npopfq\n";
        let others = registers
            .iter()
            .enumerate()
            .filter(|(_, name)| !matches!(**name, "rsp" | "rsi"));
        for (n, name) in others {
            let _ = writeln!(text, "mov {name}, [rsi + {}]", 8 * n);
        }
        text += "mov rsi, [rsi + 48]\ncall [rip + target]\n";
        for (n, name) in registers.iter().enumerate() {
            let _ = writeln!(text, "mov [rip + out + {}], {name}", 8 * n);
        }
        text += "pushfq\npop [rip + out + 128]\n";
        for n in 0..16 {
            let _ = writeln!(text, "{load} [rip + out + {}], {vector}{n}", 144 + 32 * n);
        }
        text += "pop r15\npop r14\npop r13\npop r12\npop rbp\npop rbx\nret\n";
        for block in blocks {
            text += block;
        }
        text += ".section .data\n.balign 64\narena: .space 4096\ntarget: .quad 0\nstack_pointer: .quad 0\n";
        let _ = writeln!(text, "count: .quad {}\nblocks:", blocks.len());
        for n in 0..blocks.len() {
            let _ = writeln!(text, ".quad block{n}");
        }
        text
    }
}
