//! A small assembler for eBPF: instructions are appended one by one, jumps name labels.
//!
//! Encoding: Documentation/bpf/standardization/instruction-set.rst (RFC 9669).

use std::os::fd::{AsRawFd, BorrowedFd};

/// Registers. R0 returns, R1 to R5 are arguments and lost over calls, R6 to R9 stay, R10 is the
/// frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Width of a memory access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    B1,
    B2,
    B4,
    B8,
}

impl Width {
    fn bits(self) -> u8 {
        match self {
            Self::B4 => 0x00,
            Self::B2 => 0x08,
            Self::B1 => 0x10,
            Self::B8 => 0x18,
        }
    }
}

/// 64-bit arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
}

/// Conditions of jumps; orderings are unsigned unless named signed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum If {
    Eq = 0x10,
    AnySet = 0x40,
    Ne = 0x50,
    Gt = 0x20,
    SignedGt = 0x60,
    Lt = 0xa0,
}

/// Helper functions of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    KtimeNs = 5,
    TailCall = 12,
    SkbLoadBytes = 26,
    RedirectMap = 51,
    XdpFrameLen = 188,
    XdpLoadBytes = 189,
}

/// A place in the program, bound once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

const CLASS_LDX: u8 = 0x01;
const CLASS_STX: u8 = 0x03;
const CLASS_JMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const SOURCE_REG: u8 = 0x08;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const LOAD_IMM64: u8 = 0x18;
const TO_BIG_ENDIAN: u8 = 0xdc;
const ATOMIC_WORD: u8 = 0xc3;
const FETCH_AND_ADD: i32 = 1;
const PSEUDO_CALL: u8 = 1;
const PSEUDO_KERNEL_CALL: u8 = 2;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Program {
    code: Vec<u64>,
    labels: Vec<Option<usize>>,
    /// Jumps to be filled in: instruction and target.
    jumps: Vec<(usize, Label)>,
    /// Calls of the program's own functions, alike.
    calls: Vec<(usize, Label)>,
}

impl Program {
    fn push(&mut self, op: u8, dst: u8, src: u8, offset: i16, imm: i32) {
        self.code.push(
            u64::from(op)
                | u64::from(dst | src << 4) << 8
                | u64::from(offset.cast_unsigned()) << 16
                | u64::from(imm.cast_unsigned()) << 32,
        );
    }

    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction, the target of its jumps.
    pub(crate) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `dst = dst op imm`
    pub(crate) fn alu(&mut self, op: Alu, dst: Reg, imm: i32) {
        self.push(CLASS_ALU64 | op as u8, dst as u8, 0, 0, imm);
    }

    /// `dst = dst op src`
    pub(crate) fn alu_reg(&mut self, op: Alu, dst: Reg, src: Reg) {
        let opcode = CLASS_ALU64 | op as u8 | SOURCE_REG;
        self.push(opcode, dst as u8, src as u8, 0, 0);
    }

    /// A 64-bit constant.
    pub(crate) fn load_u64(&mut self, dst: Reg, value: u64) {
        self.wide(dst, 0, value as u32 as i32, (value >> 32) as i32);
    }

    /// The map itself, for helper calls.
    pub(crate) fn load_map(&mut self, dst: Reg, map: BorrowedFd<'_>) {
        self.wide(dst, PSEUDO_MAP_FD, map.as_raw_fd(), 0);
    }

    /// The address `offset` bytes into the only value of an array map.
    pub(crate) fn load_map_value(&mut self, dst: Reg, map: BorrowedFd<'_>, offset: i32) {
        self.wide(dst, PSEUDO_MAP_VALUE, map.as_raw_fd(), offset);
    }

    fn wide(&mut self, dst: Reg, src: u8, low: i32, high: i32) {
        self.push(LOAD_IMM64, dst as u8, src, 0, low);
        self.push(0, 0, 0, 0, high);
    }

    /// `dst = *(width *)(src + offset)`
    pub(crate) fn load(&mut self, width: Width, dst: Reg, src: Reg, offset: i16) {
        let opcode = CLASS_LDX | MODE_MEM | width.bits();
        self.push(opcode, dst as u8, src as u8, offset, 0);
    }

    /// `*(width *)(dst + offset) = src`
    pub(crate) fn store(&mut self, width: Width, dst: Reg, offset: i16, src: Reg) {
        let opcode = CLASS_STX | MODE_MEM | width.bits();
        self.push(opcode, dst as u8, src as u8, offset, 0);
    }

    /// Swaps the low 16 bits between network and host order and clears the rest.
    pub(crate) fn swap_u16(&mut self, dst: Reg) {
        self.push(TO_BIG_ENDIAN, dst as u8, 0, 0, 16);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(CLASS_JMP, 0, 0, 0, 0);
    }

    pub(crate) fn jump_if(&mut self, condition: If, dst: Reg, imm: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(CLASS_JMP | condition as u8, dst as u8, 0, 0, imm);
    }

    pub(crate) fn jump_if_reg(&mut self, condition: If, dst: Reg, src: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        let opcode = CLASS_JMP | condition as u8 | SOURCE_REG;
        self.push(opcode, dst as u8, src as u8, 0, 0);
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CLASS_JMP | CALL, 0, 0, 0, helper as i32);
    }

    /// `src = *(u32 *)dst`, and adds the former `src` to it, at once (Linux 5.12).
    pub(crate) fn fetch_and_add(&mut self, dst: Reg, src: Reg) {
        self.push(ATOMIC_WORD, dst as u8, src as u8, 0, FETCH_AND_ADD);
    }

    /// Calls a function of this program.
    pub(crate) fn call_local(&mut self, function: Label) {
        self.calls.push((self.code.len(), function));
        self.push(CLASS_JMP | CALL, 0, PSEUDO_CALL, 0, 0);
    }

    /// Calls a function of the kernel, named by its number in the kernel's type information.
    pub(crate) fn call_kernel(&mut self, function: u32) {
        let function = function.cast_signed();
        self.push(CLASS_JMP | CALL, 0, PSEUDO_KERNEL_CALL, 0, function);
    }

    /// Position of the next instruction.
    pub(crate) fn here(&self) -> usize {
        self.code.len()
    }

    /// Returns a constant.
    pub(crate) fn exit_with(&mut self, value: i32) {
        self.alu(Alu::Mov, Reg::R0, value);
        self.exit();
    }

    pub(crate) fn exit(&mut self) {
        self.push(CLASS_JMP | EXIT, 0, 0, 0, 0);
    }

    /// The finished instructions. Every label that a jump names has been bound.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let Some(target) = self.labels[label.0] else {
                debug_assert!(false, "a jump goes to a label that was never bound");
                continue;
            };
            let distance = (target as i64 - at as i64 - 1) as i16;
            self.code[at] |= u64::from(distance.cast_unsigned()) << 16;
        }
        for (at, label) in self.calls {
            let target = self.labels[label.0].unwrap_or(at);
            let distance = (target as i64 - at as i64 - 1) as i32;
            self.code[at] |= u64::from(distance.cast_unsigned()) << 32;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        let mut program = Program::default();
        program.alu(Alu::Mov, Reg::R0, 2);
        program.load(Width::B4, Reg::R3, Reg::R1, 16);
        program.load_u64(Reg::R4, 0x1122_3344_5566_7788);
        program.exit();
        assert_eq!(
            program.finish(),
            [
                0x0000_0002_0000_00b7,
                0x0000_0000_0010_1361,
                0x5566_7788_0000_0418,
                0x1122_3344_0000_0000,
                0x0000_0000_0000_0095,
            ]
        );
    }

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let mut program = Program::default();
        let (start, end) = (program.label(), program.label());
        program.bind(start);
        program.jump_if(If::Eq, Reg::R1, 7, end);
        program.jump(start);
        program.bind(end);
        program.exit();
        let code = program.finish();
        assert_eq!(code[0] >> 16 & 0xffff, 1);
        assert_eq!(code[1] >> 16 & 0xffff, 0xfffe);
    }
}
