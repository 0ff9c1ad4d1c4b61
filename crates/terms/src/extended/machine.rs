//! Runs an extended program.

use alloc::vec::Vec;

use super::Surroundings;
use super::instruction::{
    ALU, ALU64, BY_REGISTER, CALL, END, EXIT, FUNCTION, Instruction, JA, JMP, JMP32, LD, LDX,
    MEMSX, MODE, MOV, OPERATION, ST, STX, helper,
};
use super::memory::{FRAMES_MAX, Memory, Seen};

/// Instructions that one run takes at most.
const STEPS_MAX: usize = 100_000;
/// Instructions as which a look into a map counts, which is a system call.
const LOOK_STEPS: usize = 1_000;
/// Bytes that are read for the time of one instruction.
const BYTES_A_STEP: usize = 8;
const REGISTERS: usize = 11;
/// The register with the end of the stack.
const FRAME_POINTER: usize = 10;
/// Registers that a function leaves as they were.
const SAVED: core::ops::Range<usize> = 6..10;
/// Longest key of a map.
const KEY_MAX: usize = 512;

/// Errors of the kernel as helpers return them.
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
/// BPF_HDR_START_MAC, BPF_HDR_START_NET.
const FROM_NETWORK: u64 = 1;

struct Machine<'a> {
    registers: [u64; REGISTERS],
    memory: Memory<'a>,
    /// Instructions that the run may still take.
    left: usize,
    around: &'a mut dyn Surroundings,
    /// Places to return to, with the saved registers.
    calls: Vec<(usize, [u64; 4])>,
}

/// Continuation of a program.
enum Next {
    At(usize),
    Ended,
}

/// Returns the program's result.
pub(super) fn run(
    code: &[Instruction],
    seen: &Seen<'_>,
    around: &mut dyn Surroundings,
) -> Option<u64> {
    let mut machine = Machine {
        registers: [0; REGISTERS],
        memory: Memory::new(seen),
        left: STEPS_MAX,
        around,
        calls: Vec::new(),
    };
    machine.registers[1] = Memory::context_at();
    machine.registers[FRAME_POINTER] = Memory::frame_end(0);
    let mut at = 0;
    loop {
        machine.spend(1)?;
        match machine.step(code, at)? {
            Next::At(next) => at = next,
            Next::Ended => return Some(machine.registers[0]),
        }
    }
}

impl Machine<'_> {
    fn step(&mut self, code: &[Instruction], at: usize) -> Option<Next> {
        let one = code.get(at)?;
        match one.class() {
            LD => {
                let value = match one.map() {
                    Some(id) => Memory::address_of_map(id),
                    None => low(one.imm) | low(code.get(at + 1)?.imm) << 32,
                };
                *self.register(one.dst)? = value;
                return Some(Next::At(at + 2));
            }
            LDX => self.load(one)?,
            ST | STX => self.store(one)?,
            ALU | ALU64 => {
                let (to, by) = (*self.register(one.dst)?, self.operand(one)?);
                *self.register(one.dst)? = compute(one, to, by)?;
            }
            JMP if one.code == JMP | CALL => return self.call(one, at),
            JMP if one.code == JMP | EXIT => return self.leave(),
            _ => {
                let is_taken = self.compare(one)?;
                let distance = match one.code {
                    code if code == JMP32 | JA => one.imm,
                    _ => one.off.into(),
                };
                return after(at, if is_taken { distance } else { 0 });
            }
        }
        Some(Next::At(at + 1))
    }

    /// Returns `None` if the run has lasted too long.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }

    fn register(&mut self, number: u8) -> Option<&mut u64> {
        self.registers.get_mut(usize::from(number))
    }

    fn operand(&self, one: &Instruction) -> Option<u64> {
        match one.code & BY_REGISTER != 0 {
            true => self.registers.get(usize::from(one.src)).copied(),
            false => Some(i64::from(one.imm).cast_unsigned()),
        }
    }

    fn load(&mut self, one: &Instruction) -> Option<()> {
        let address = self.registers.get(usize::from(one.src))?;
        let address = address.wrapping_add_signed(one.off.into());
        let (mut bytes, width) = ([0; 8], one.width());
        self.memory.read(address, &mut bytes[..width])?;
        let value = number_of(bytes, width);
        let unused = 64 - 8 * width as u32;
        *self.register(one.dst)? = match one.code & MODE {
            MEMSX => (value << unused)
                .cast_signed()
                .wrapping_shr(unused)
                .cast_unsigned(),
            _ => value,
        };
        Some(())
    }

    fn store(&mut self, one: &Instruction) -> Option<()> {
        let address = self.registers.get(usize::from(one.dst))?;
        let address = address.wrapping_add_signed(one.off.into());
        let value = match one.class() {
            STX => *self.registers.get(usize::from(one.src))?,
            _ => i64::from(one.imm).cast_unsigned(),
        };
        let place = self.memory.place(address, one.width())?;
        match place.len() {
            1 => place.copy_from_slice(&(value as u8).to_ne_bytes()),
            2 => place.copy_from_slice(&(value as u16).to_ne_bytes()),
            4 => place.copy_from_slice(&(value as u32).to_ne_bytes()),
            _ => place.copy_from_slice(&value.to_ne_bytes()),
        }
        Some(())
    }

    fn compare(&self, one: &Instruction) -> Option<bool> {
        let to = *self.registers.get(usize::from(one.dst))?;
        let by = self.operand(one)?;
        let (to, by) = match one.class() {
            JMP32 => (to & 0xffff_ffff, by & 0xffff_ffff),
            _ => (to, by),
        };
        let signed = |value: u64| match one.class() {
            JMP32 => i64::from(value as i32),
            _ => value.cast_signed(),
        };
        Some(match one.code & OPERATION {
            JA => true,
            0x10 => to == by,
            0x20 => to > by,
            0x30 => to >= by,
            0x40 => to & by != 0,
            0x50 => to != by,
            0x60 => signed(to) > signed(by),
            0x70 => signed(to) >= signed(by),
            0xa0 => to < by,
            0xb0 => to <= by,
            0xc0 => signed(to) < signed(by),
            0xd0 => signed(to) <= signed(by),
            _ => return None,
        })
    }

    fn call(&mut self, one: &Instruction, at: usize) -> Option<Next> {
        if one.src == FUNCTION {
            if self.calls.len() + 1 >= FRAMES_MAX {
                return None;
            }
            let saved = self.registers[SAVED].try_into().ok()?;
            self.calls.push((at + 1, saved));
            self.registers[FRAME_POINTER] = Memory::frame_end(self.calls.len());
            return after(at, one.imm);
        }
        self.registers[0] = self.help(one.imm)?;
        Some(Next::At(at + 1))
    }

    fn leave(&mut self) -> Option<Next> {
        let Some((back, saved)) = self.calls.pop() else {
            return Some(Next::Ended);
        };
        self.registers[SAVED].copy_from_slice(&saved);
        self.registers[FRAME_POINTER] = Memory::frame_end(self.calls.len());
        Some(Next::At(back))
    }

    /// Returns the result of a helper.
    fn help(&mut self, number: i32) -> Option<u64> {
        let [_, a, b, c, d, e, ..] = self.registers;
        Some(match number {
            helper::LOOK_UP => {
                self.spend(LOOK_STEPS)?;
                let (map, key) = self.element(a, b)?;
                let value = self.around.look_up(map, &key);
                value.map_or(0, |value| self.memory.keep(&value))
            }
            helper::SELECT => {
                self.spend(LOOK_STEPS)?;
                let (map, key) = self.element(b, c)?;
                let result = match d {
                    0 => self.around.select(map, &key),
                    _ => EINVAL,
                };
                result.cast_unsigned()
            }
            helper::LOAD_BYTES => self.load_bytes(b, (c, d), None)?,
            helper::LOAD_BYTES_RELATIVE => self.load_bytes(b, (c, d), Some(e))?,
            helper::NOW => self.around.now_ns(),
            helper::RANDOM => self.around.random().into(),
            helper::PROCESSOR => self.around.processor().into(),
            _ => return None,
        })
    }

    /// The map at an address, and the key at another.
    fn element(&self, map: u64, key: u64) -> Option<(u32, Vec<u8>)> {
        let map = Memory::map_at(map)?;
        let len = self.around.key_len(map).filter(|len| *len <= KEY_MAX)?;
        let mut bytes = alloc::vec![0; len];
        self.memory.read(key, &mut bytes)?;
        Some((map, bytes))
    }

    /// bpf_skb_load_bytes(), and bpf_skb_load_bytes_relative() if it is said `from` where. What
    /// cannot be read is zero.
    fn load_bytes(&mut self, at: u64, (to, len): (u64, u64), from: Option<u64>) -> Option<u64> {
        let (at, len) = (at as u32 as usize, len as u32 as usize);
        self.spend(len / BYTES_A_STEP)?;
        let seen = self.memory.seen;
        let place = self.memory.place(to, len)?;
        let read = match from {
            None => seen.read(at, place),
            Some(FROM_NETWORK) => seen.read_network(at, place),
            // The datagram has no link-layer header any more.
            Some(_) => None,
        };
        Some(match read {
            Some(()) => 0,
            None => {
                place.fill(0);
                EFAULT.cast_unsigned()
            }
        })
    }
}

/// The instruction that is `distance` beyond the next one.
fn after(at: usize, distance: i32) -> Option<Next> {
    let next = (at + 1).checked_add_signed(isize::try_from(distance).ok()?)?;
    Some(Next::At(next))
}

fn low(imm: i32) -> u64 {
    imm.cast_unsigned().into()
}

/// The number in the first `width` bytes.
fn number_of(bytes: [u8; 8], width: usize) -> u64 {
    let [a, b, c, d, ..] = bytes;
    match width {
        1 => a.into(),
        2 => u16::from_ne_bytes([a, b]).into(),
        4 => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => u64::from_ne_bytes(bytes),
    }
}

fn compute(one: &Instruction, to: u64, by: u64) -> Option<u64> {
    let operation = one.code & OPERATION;
    if operation == END {
        return swap(one, to);
    }
    if operation == MOV {
        return Some(moved(one, by));
    }
    let is_signed = one.off == 1;
    match one.class() {
        ALU64 => wide(operation, (to, by), is_signed),
        _ => narrow(operation, (to as u32, by as u32), is_signed).map(u64::from),
    }
}

/// A move, with the sign of the lowest `off` bits if it says so.
fn moved(one: &Instruction, by: u64) -> u64 {
    let value = match one.off {
        8 => i64::from(by as i8).cast_unsigned(),
        16 => i64::from(by as i16).cast_unsigned(),
        32 => i64::from(by as i32).cast_unsigned(),
        _ => by,
    };
    match one.class() {
        ALU => value & 0xffff_ffff,
        _ => value,
    }
}

/// The order of bytes: to little or big endian, or the other one.
fn swap(one: &Instruction, value: u64) -> Option<u64> {
    let is_big = one.code & BY_REGISTER != 0;
    let is_swapped = one.class() == ALU64 || is_big == cfg!(target_endian = "little");
    Some(match (one.imm, is_swapped) {
        (16, false) => (value as u16).into(),
        (16, true) => (value as u16).swap_bytes().into(),
        (32, false) => (value as u32).into(),
        (32, true) => (value as u32).swap_bytes().into(),
        (64, false) => value,
        (64, true) => value.swap_bytes(),
        _ => return None,
    })
}

/// Defines the arithmetic of one width. A division by zero is zero, its remainder the dividend.
macro_rules! arithmetic {
    ($name:ident, $number:ty) => {
        fn $name(operation: u8, (to, by): ($number, $number), is_signed: bool) -> Option<$number> {
            let (signed_to, signed_by) = (to.cast_signed(), by.cast_signed());
            Some(match operation {
                0x00 => to.wrapping_add(by),
                0x10 => to.wrapping_sub(by),
                0x20 => to.wrapping_mul(by),
                0x30 if by == 0 => 0,
                0x30 if is_signed => signed_to.wrapping_div(signed_by).cast_unsigned(),
                0x30 => to / by,
                0x40 => to | by,
                0x50 => to & by,
                0x60 => to.wrapping_shl(by as u32),
                0x70 => to.wrapping_shr(by as u32),
                0x80 => to.wrapping_neg(),
                0x90 if by == 0 => to,
                0x90 if is_signed => signed_to.wrapping_rem(signed_by).cast_unsigned(),
                0x90 => to % by,
                0xa0 => to ^ by,
                0xc0 => signed_to.wrapping_shr(by as u32).cast_unsigned(),
                _ => return None,
            })
        }
    };
}
arithmetic!(wide, u64);
arithmetic!(narrow, u32);
