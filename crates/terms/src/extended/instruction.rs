//! Instructions (RFC 9669), and those of them that are supported.

/// Bytes of an instruction: `struct bpf_insn`.
pub(super) const LEN: usize = 8;

pub(super) const CLASS: u8 = 0x07;
pub(super) const LD: u8 = 0x00;
pub(super) const LDX: u8 = 0x01;
pub(super) const ST: u8 = 0x02;
pub(super) const STX: u8 = 0x03;
pub(super) const ALU: u8 = 0x04;
pub(super) const JMP: u8 = 0x05;
pub(super) const JMP32: u8 = 0x06;
pub(super) const ALU64: u8 = 0x07;

pub(super) const MODE: u8 = 0xe0;
pub(super) const MEM: u8 = 0x60;
pub(super) const MEMSX: u8 = 0x80;

pub(super) const OPERATION: u8 = 0xf0;
/// The operand is a register.
pub(super) const BY_REGISTER: u8 = 0x08;

pub(super) const MOV: u8 = 0xb0;
pub(super) const END: u8 = 0xd0;
pub(super) const JA: u8 = 0x00;
pub(super) const CALL: u8 = 0x80;
pub(super) const EXIT: u8 = 0x90;

/// Loads 64 bits that follow, in the space of two instructions.
pub(super) const WIDE: u8 = 0x18;
/// The source of a wide load: a number; a map by its descriptor (here its id), or by the index of
/// that in an array.
const NUMBER: u8 = 0;
const MAP: u8 = 1;
const MAP_INDEX: u8 = 5;
/// The source of a call: a helper, or a function of the program.
pub(super) const HELPER: u8 = 0;
pub(super) const FUNCTION: u8 = 1;

/// Numbers of helpers (`enum bpf_func_id`).
pub(super) mod helper {
    pub const LOOK_UP: i32 = 1;
    pub const NOW: i32 = 5;
    pub const RANDOM: i32 = 7;
    pub const PROCESSOR: i32 = 8;
    pub const LOAD_BYTES: i32 = 26;
    pub const LOAD_BYTES_RELATIVE: i32 = 68;
    pub const SELECT: i32 = 82;
    pub const ALL: [i32; 7] = [
        LOOK_UP,
        NOW,
        RANDOM,
        PROCESSOR,
        LOAD_BYTES,
        LOAD_BYTES_RELATIVE,
        SELECT,
    ];
}

/// A map as a program that is loaded refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapReference {
    Descriptor(i32),
    /// The index of a descriptor in the array beside the program.
    Index(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u8,
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) off: i16,
    pub(super) imm: i32,
}

impl Instruction {
    pub(super) fn of([code, registers, a, b, imm @ ..]: [u8; LEN]) -> Instruction {
        let (low, high) = (registers & 0xf, registers >> 4);
        // A bit field begins at the end where the machine's numbers begin.
        let (dst, src) = match cfg!(target_endian = "little") {
            true => (low, high),
            false => (high, low),
        };
        Instruction {
            code,
            dst,
            src,
            off: i16::from_ne_bytes([a, b]),
            imm: i32::from_ne_bytes(imm),
        }
    }

    pub(super) fn bytes(&self) -> [u8; LEN] {
        let registers = match cfg!(target_endian = "little") {
            true => self.dst | self.src << 4,
            false => self.src | self.dst << 4,
        };
        let ([a, b], [c, d, e, f]) = (self.off.to_ne_bytes(), self.imm.to_ne_bytes());
        [self.code, registers, a, b, c, d, e, f]
    }

    /// Replaces a program's reference to a map by its id.
    pub(super) fn resolve(&mut self, id_of: impl FnOnce(MapReference) -> Option<u32>) {
        let reference = match self.src {
            MAP => MapReference::Descriptor(self.imm),
            MAP_INDEX => MapReference::Index(self.imm.cast_unsigned()),
            _ => return,
        };
        if let Some(id) = id_of(reference) {
            (self.src, self.imm) = (MAP, id.cast_signed());
        }
    }

    pub(super) fn class(&self) -> u8 {
        self.code & CLASS
    }

    pub(super) fn is_wide(&self) -> bool {
        self.code == WIDE
    }

    /// Returns the id of the map that it loads.
    pub(super) fn map(&self) -> Option<u32> {
        (self.is_wide() && self.src == MAP).then_some(self.imm.cast_unsigned())
    }

    /// Bytes of what is loaded or stored.
    pub(super) fn width(&self) -> usize {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    fn is_supported(&self) -> bool {
        let is_plain = self.code & MODE == MEM;
        match self.class() {
            LD => self.is_wide() && matches!(self.src, NUMBER | MAP),
            LDX => is_plain || self.code & MODE == MEMSX,
            // Atomic operations change a map's value, of which the program sees a copy.
            ST | STX => is_plain,
            JMP if self.code == JMP | CALL => match self.src {
                HELPER => helper::ALL.contains(&self.imm),
                source => source == FUNCTION,
            },
            // A load from an address space, and a jump that may go either way.
            ALU64 | ALU => self.code & OPERATION <= END,
            _ => self.code & OPERATION <= 0xd0,
        }
    }
}

/// Returns whether a program has nothing but supported instructions.
pub(super) fn are_supported(code: &[Instruction]) -> bool {
    let mut all = code.iter();
    while let Some(one) = all.next() {
        if !one.is_supported() || one.is_wide() && all.next().is_none_or(|it| it.code != 0) {
            return false;
        }
    }
    true
}
