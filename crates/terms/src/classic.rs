//! Classic BPF (linux/filter.h): runs a program that the kernel has accepted over the bytes of a
//! packet. Such a program jumps forward only, ends with a return and uses only registers that exist
//! (bpf_check_classic()).

/// Offsets of ancillary data (SKF_AD_OFF and the offsets from it).
const BESIDE_AT: u32 = (-0x1000i32).cast_unsigned();
const CPU: u32 = 36;
const RANDOM: u32 = 56;

/// Bytes of an instruction: `struct sock_filter`.
const INSTRUCTION: usize = 8;
/// BPF_MEMWORDS.
const WORDS: usize = 16;

const CLASS: u16 = 0x07;
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;

const SIZE: u16 = 0x18;
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;

const MODE: u16 = 0xe0;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;

const OPERATION: u16 = 0xf0;
/// The operand is X.
const BY_X: u16 = 0x08;
/// A return's value is A.
const OF_A: u16 = 0x10;
const TXA: u16 = 0x80;

struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    words: [u32; WORDS],
}

/// Ancillary data that a program loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The number of the processor that handles the packet.
    Cpu,
    /// A random number.
    Random,
}

impl Beside {
    fn at(place: u32) -> Option<Beside> {
        match place.wrapping_sub(BESIDE_AT) {
            CPU => Some(Beside::Cpu),
            RANDOM => Some(Beside::Random),
            _ => None,
        }
    }
}

/// Returns the result of a program; 0 if it loads from beyond the packet's end or divides by zero.
/// `beside` returns ancillary data.
pub fn run_classic(
    program: &[u8],
    packet: &[u8],
    beside: &mut dyn FnMut(Beside) -> Option<u32>,
) -> u32 {
    execute(program, packet, beside).unwrap_or(0)
}

fn execute(
    program: &[u8],
    packet: &[u8],
    beside: &mut dyn FnMut(Beside) -> Option<u32>,
) -> Option<u32> {
    let mut machine = Machine::default();
    let mut at = 0;
    loop {
        let one = Instruction::at(program, at)?;
        at += 1;
        match one.code & CLASS {
            LD => {
                machine.a = match one.beside() {
                    Some(asked) => beside(asked)?,
                    None => machine.load(&one, packet)?,
                };
            }
            LDX => machine.x = machine.load(&one, packet)?,
            ST => *machine.words.get_mut(one.k as usize)? = machine.a,
            STX => *machine.words.get_mut(one.k as usize)? = machine.x,
            ALU => machine.a = machine.compute(&one)?,
            JMP => at += machine.jump(&one)?,
            RET if one.code & OF_A != 0 => return Some(machine.a),
            RET => return Some(one.k),
            _ if one.code & TXA != 0 => machine.a = machine.x,
            _ => machine.x = machine.a,
        }
    }
}

impl Instruction {
    fn at(program: &[u8], index: usize) -> Option<Instruction> {
        let bytes = program.chunks_exact(INSTRUCTION).nth(index)?;
        Some(Instruction {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            if_true: bytes[2],
            if_false: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
    }

    fn beside(&self) -> Option<Beside> {
        let is_absolute = self.code & MODE == ABS;
        is_absolute.then(|| Beside::at(self.k)).flatten()
    }
}

impl Machine {
    fn load(&self, one: &Instruction, packet: &[u8]) -> Option<u32> {
        match one.code & MODE {
            IMM => Some(one.k),
            ABS => read(packet, one.k, one.code & SIZE),
            IND => read(packet, self.x.wrapping_add(one.k), one.code & SIZE),
            MEM => self.words.get(one.k as usize).copied(),
            LEN => u32::try_from(packet.len()).ok(),
            MSH => Some((read(packet, one.k, BYTE)? & 0xf) << 2),
            _ => None,
        }
    }

    fn operand(&self, one: &Instruction) -> u32 {
        match one.code & BY_X {
            0 => one.k,
            _ => self.x,
        }
    }

    /// `None`: a division by nothing.
    fn compute(&self, one: &Instruction) -> Option<u32> {
        let (a, by) = (self.a, self.operand(one));
        Some(match one.code & OPERATION {
            0x00 => a.wrapping_add(by),
            0x10 => a.wrapping_sub(by),
            0x20 => a.wrapping_mul(by),
            0x30 => a.checked_div(by)?,
            0x40 => a | by,
            0x50 => a & by,
            0x60 => a.wrapping_shl(by),
            0x70 => a.wrapping_shr(by),
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(by)?,
            0xa0 => a ^ by,
            _ => return None,
        })
    }

    /// Number of instructions that are left out.
    fn jump(&self, one: &Instruction) -> Option<usize> {
        let (a, by) = (self.a, self.operand(one));
        let holds = match one.code & OPERATION {
            0x00 => return usize::try_from(one.k).ok(),
            0x10 => a == by,
            0x20 => a > by,
            0x30 => a >= by,
            0x40 => a & by != 0,
            _ => return None,
        };
        Some(usize::from(if holds { one.if_true } else { one.if_false }))
    }
}

/// In the network's order.
fn read(packet: &[u8], at: u32, size: u16) -> Option<u32> {
    let bytes = packet.get(at as usize..)?;
    match size {
        BYTE => bytes.first().map(|byte| u32::from(*byte)),
        HALF => bytes
            .first_chunk()
            .map(|two| u16::from_be_bytes(*two).into()),
        _ => bytes.first_chunk().map(|four| u32::from_be_bytes(*four)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn run(program: &[u8], packet: &[u8]) -> usize {
        run_classic(program, packet, &mut |_| None) as usize
    }

    /// Instructions as `tcpdump -dd` prints them.
    fn program(all: &[(u16, u8, u8, u32)]) -> Vec<u8> {
        let one = |&(code, if_true, if_false, k): &(u16, u8, u8, u32)| {
            let ([a, b], [c, d, e, f]) = (code.to_ne_bytes(), k.to_ne_bytes());
            [a, b, if_true, if_false, c, d, e, f]
        };
        all.iter().flat_map(one).collect()
    }

    const PACKET: &[u8] = &[0x12, 0x34, 0x56, 0x78, 0x9a];

    /// Returns A after an instruction, with A and X set before.
    fn after(a: u32, x: u32, one: (u16, u8, u8, u32)) -> usize {
        let all = [
            (0x00, 0, 0, x),
            (0x07, 0, 0, 0),
            (0x00, 0, 0, a),
            one,
            (0x16, 0, 0, 0),
        ];
        run(&program(&all), PACKET)
    }

    #[test]
    fn loads_end_with_the_packet() {
        let table = [
            (0x20, 0, 0x1234_5678),
            (0x20, 1, 0x3456_789a),
            (0x20, 2, 0),
            (0x28, 3, 0x789a),
            (0x28, 4, 0),
            (0x30, 4, 0x9a),
            (0x30, 5, 0),
            (0x80, 0, 5),
            (0x00, 77, 77),
            // With X = 1.
            (0x40, 0, 0x3456_789a),
            (0x48, u32::MAX, 0x1234),
            (0x50, u32::MAX - 1, 0),
        ];
        for (code, k, expected) in table {
            assert_eq!(after(9, 1, (code, 0, 0, k)), expected, "{code:#x} {k}");
        }
    }

    #[test]
    fn arithmetic_wraps_and_nothing_is_divided_by_nothing() {
        let table = [
            (0x04, 2, 0, 6),
            (0x0c, 0, 7, 11),
            (0x14, 5, 0, u32::MAX as usize),
            (0x24, 1 << 31, 0, 0),
            (0x34, 3, 0, 1),
            (0x3c, 0, 0, 0),
            (0x44, 3, 0, 7),
            (0x54, 6, 0, 4),
            (0x64, 1, 0, 8),
            (0x6c, 0, 33, 8),
            (0x74, 2, 0, 1),
            (0x84, 0, 0, u32::MAX as usize - 3),
            (0x94, 3, 0, 1),
            (0x9c, 0, 0, 0),
            (0xa4, 5, 0, 1),
        ];
        for (code, k, x, expected) in table {
            assert_eq!(after(4, x, (code, 0, 0, k)), expected, "{code:#x} {k} {x}");
        }
    }

    #[test]
    fn jumps_go_the_way_of_the_comparison() {
        let table = [
            (0x15, 4, 1),
            (0x15, 5, 2),
            (0x25, 3, 1),
            (0x25, 4, 2),
            (0x35, 4, 1),
            (0x35, 5, 2),
            (0x45, 6, 1),
            (0x45, 3, 2),
            (0x05, 1, 2),
        ];
        for (code, k, expected) in table {
            let all = [(0, 0, 0, 4), (code, 0, 1, k), (6, 0, 0, 1), (6, 0, 0, 2)];
            assert_eq!(run(&program(&all), PACKET), expected, "{code:#x} {k}");
        }
    }

    #[test]
    fn registers_and_memory_keep_their_values() {
        // x = 4 * ([0] & 0xf); M[3] = x; a = [0]; x = a; M[4] = a; a = M[3] + x
        let all = [
            (0xb1, 0, 0, 0),
            (0x03, 0, 0, 3),
            (0x30, 0, 0, 0),
            (0x07, 0, 0, 0),
            (0x02, 0, 0, 4),
            (0x60, 0, 0, 3),
            (0x0c, 0, 0, 0),
            (0x61, 0, 0, 4),
            (0x0c, 0, 0, 0),
            (0x16, 0, 0, 0),
        ];
        assert_eq!(run(&program(&all), PACKET), 8 + 0x12 + 0x12);
    }

    #[test]
    fn spread_rules_load_the_cpu_or_a_random_number() {
        let of = |place: i32| {
            program(&[
                (0x20, 0, 0, (-0x1000 + place).cast_unsigned()),
                (0x16, 0, 0, 0),
            ])
        };
        let mut answer = |asked| Some(if asked == Beside::Cpu { 3 } else { 77 });
        assert_eq!(run_classic(&of(36), PACKET, &mut answer), 3);
        assert_eq!(run_classic(&of(56), PACKET, &mut answer), 77);
        assert_eq!(run_classic(&of(8), PACKET, &mut answer), 0, "the interface");
        assert_eq!(run(&of(36), PACKET), 0);
    }

    #[test]
    fn programs_that_no_kernel_accepts_are_refused() {
        for one in [
            (0x02, 0, 0, 16),
            (0x60, 0, 0, 16),
            (0xe0, 0, 0, 0),
            (0xf4, 0, 0, 1),
        ] {
            assert_eq!(after(1, 1, one), 0, "{one:?}");
        }
        assert_eq!(run(&program(&[(0x05, 0, 0, u32::MAX)]), PACKET), 0);
        assert_eq!(run(&[], PACKET), 0);
    }
}
