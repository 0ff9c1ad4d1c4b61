//! BPF programs: SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF and SO_ATTACH_REUSEPORT_EBPF are
//! recorded with their instructions, because the program's array or descriptor may be gone when
//! they are needed.

use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use slipstack_channel::{CHOOSER_MAX, ChooserPart, Extended};

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::socket::options::{Options, Set};

/// SO_GET_FILTER has the number of SO_ATTACH_FILTER (asm-generic/socket.h).
pub(crate) const ATTACH: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
pub(crate) const DETACH: (i32, i32) = (libc::SOL_SOCKET, libc::SO_DETACH_FILTER);
pub(crate) const CHOOSE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
pub(crate) const CHOOSE_EXTENDED: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF);
pub(crate) const UNCHOOSE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF);
/// Ancillary offsets that a program which chooses a socket may read (SKF_AD_CPU, SKF_AD_RANDOM).
const BESIDE: [i32; 2] = [-0x1000 + 36, -0x1000 + 56];
/// BPF_MAXINSNS (linux/bpf_common.h).
const INSTRUCTIONS_MAX: usize = 4096;
/// Bytes of one: `struct sock_filter`.
const INSTRUCTION: usize = 8;

/// Gives a kernel socket the filter of these instructions.
pub(crate) fn attach_filter(kernel: &dyn Kernel, fd: i32, code: &[u8]) -> Result<(), Errno> {
    attach_program(kernel, fd, ATTACH, code)
}

/// Repeats a recorded SO_ATTACH_REUSEPORT_CBPF on a kernel socket. An extended program has been
/// attached to the kernel's group, which keeps it.
pub(crate) fn attach_chooser(kernel: &dyn Kernel, fd: i32, value: &[u8]) -> Result<(), Errno> {
    match value.get(STAMP..) {
        Some(code) if !code.is_empty() && !Extended::is_marked(code) => {
            attach_program(kernel, fd, CHOOSE, code)
        }
        _ => Ok(()),
    }
}

fn attach_program(
    kernel: &dyn Kernel,
    fd: i32,
    (level, name): (i32, i32),
    code: &[u8],
) -> Result<(), Errno> {
    kernel.setsockopt(fd, level, name, &program(code))
}

/// Returns the `struct sock_fprog` of these instructions: how many, and where.
pub(crate) fn program(code: &[u8]) -> [u8; 16] {
    let count = u16::try_from(code.len() / INSTRUCTION).unwrap_or(u16::MAX);
    let mut program = [0; 16];
    program[..2].copy_from_slice(&count.to_ne_bytes());
    let at = code.as_ptr().expose_provenance() as u64;
    program[8..].copy_from_slice(&at.to_ne_bytes());
    program
}

/// Returns the instructions of a `struct sock_fprog` of the program, read back from a kernel socket
/// that accepted them.
pub(crate) fn read_filter(kernel: &dyn Kernel, value: &[u8]) -> Result<Vec<u8>, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let judge = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    kernel.setsockopt(judge.as_raw_fd(), ATTACH.0, ATTACH.1, value)?;
    let mut code = vec![0; INSTRUCTIONS_MAX * INSTRUCTION];
    let count = kernel.getsockopt(judge.as_raw_fd(), ATTACH.0, ATTACH.1, &mut code)?;
    code.truncate(count * INSTRUCTION);
    Ok(code)
}

/// Bytes before the instructions of a recorded program that chooses: when it was set.
const STAMP: usize = 4;

/// Returns the value under which a program that chooses a socket is recorded; `code` is empty where
/// the program is taken away.
pub(crate) fn chooser_value(code: &[u8], now_ns: u64) -> Vec<u8> {
    [&set_ms(now_ns).to_ne_bytes(), code].concat()
}

/// Milliseconds since the machine began: 49 days until they begin again.
fn set_ms(now_ns: u64) -> u32 {
    (now_ns / 1_000_000) as u32
}

/// The parts of the recorded program that chooses among the sockets of a group.
pub(crate) fn chooser_in(options: &Options) -> Option<impl Iterator<Item = ChooserPart> + '_> {
    let recorded = options.bytes(CHOOSE.0, CHOOSE.1)?;
    let (stamp, code) = recorded.split_first_chunk::<STAMP>()?;
    Some(ChooserPart::all(code, u32::from_ne_bytes(*stamp)))
}

/// Whether a recorded program that chooses is one of eBPF, which counts for its process alone.
pub(crate) fn is_extended(set: &Set) -> bool {
    let code = set.value.get(STAMP..).unwrap_or_default();
    (set.level, set.name) == CHOOSE && Extended::is_marked(code)
}

/// The recorded one.
pub(crate) fn filter_in(options: &Options) -> Option<&[u8]> {
    let code = options.bytes(ATTACH.0, ATTACH.1)?;
    (!code.is_empty()).then_some(code)
}

/// Classic BPF (linux/filter.h): from this interface only packets to this host.
pub(crate) fn group_filter(interface: u32) -> Vec<u8> {
    const LOAD: u16 = 0x20;
    const JUMP_IF: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const PACKET_KIND: u32 = (-0x1000i32 + 4).cast_unsigned();
    const INTERFACE: u32 = (-0x1000i32 + 8).cast_unsigned();
    let code = |op: u16, is: u8, is_not: u8, k: u32| {
        let ([a, b], [c, d, e, f]) = (op.to_ne_bytes(), k.to_ne_bytes());
        [a, b, is, is_not, c, d, e, f]
    };
    [
        code(LOAD, 0, 0, INTERFACE),
        code(JUMP_IF, 0, 3, interface),
        code(LOAD, 0, 0, PACKET_KIND),
        // PACKET_HOST
        code(JUMP_IF, 1, 0, 0),
        code(RETURN, 0, 0, 0),
        code(RETURN, 0, 0, u32::MAX),
    ]
    .concat()
}

/// Whether a filter is that of [`group_filter`].
pub(crate) fn is_group_filter(code: &[u8]) -> bool {
    let interface = code.get(INSTRUCTION + 4..).and_then(<[u8]>::first_chunk);
    interface.is_some_and(|it| code == group_filter(u32::from_ne_bytes(*it)))
}

/// Returns whether a filter reads more than a datagram and its header: its interface, its
/// link-layer header. `known`: ancillary offsets that are supported.
fn looks_beyond(code: &[u8], known: &[i32]) -> bool {
    const CLASS: u16 = 0x07;
    const LOADS: [u16; 2] = [0x00, 0x01];
    const MODE: u16 = 0xe0;
    const PLACES: [u16; 3] = [0x20, 0x40, 0xa0];
    code.chunks_exact(INSTRUCTION).any(|one| {
        let op = u16::from_ne_bytes([one[0], one[1]]);
        let k = i32::from_ne_bytes([one[4], one[5], one[6], one[7]]);
        LOADS.contains(&(op & CLASS))
            && PLACES.contains(&(op & MODE))
            && k < 0
            && !known.contains(&k)
    })
}

/// Returns the instructions of a filter if it finds a packet's bytes and nothing beside them, or if
/// the kernel runs it.
pub(crate) fn filter_of(code: Vec<u8>, is_ours: bool) -> Result<Vec<u8>, Errno> {
    match is_ours && looks_beyond(&code, &[]) {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(code),
    }
}

/// Returns the value under which a program that chooses among the sockets of a SO_REUSEPORT group
/// is recorded: checked here, run by engines, or by the kernel.
pub(crate) fn chooser_of(code: &[u8], is_ours: bool, now_ns: u64) -> Result<Vec<u8>, Errno> {
    if is_ours && looks_beyond(code, &BESIDE) {
        return Err(Errno::EOPNOTSUPP);
    }
    if is_ours && code.len() > CHOOSER_MAX * INSTRUCTION {
        return Err(Errno::ENOMEM);
    }
    Ok(chooser_value(code, now_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_asks_for_the_interface_looks_beyond_the_datagram() {
        let one = |op: u16, k: i32| {
            let ([a, b], [c, d, e, f]) = (op.to_ne_bytes(), k.to_ne_bytes());
            [a, b, 0, 0, c, d, e, f]
        };
        // ldh [8], ret #-1, ld #-1
        let plain = [one(0x28, 8), one(0x06, -1), one(0x00, -1)].concat();
        assert!(!looks_beyond(&plain, &[]));
        // ld ifindex; ldxb 4 * ([net + 0] & 0xf)
        assert!(looks_beyond(&one(0x20, -0x1000 + 8), &BESIDE));
        let processor = one(0x20, -0x1000 + 36);
        assert!(looks_beyond(&processor, &[]) && !looks_beyond(&processor, &BESIDE));
        assert!(looks_beyond(&one(0xb1, -0x10_0000), &BESIDE));
    }
}
