//! Programs of classic BPF (linux/filter.h): SO_ATTACH_FILTER is recorded with its instructions,
//! since the program's array may be gone when they are wanted.

use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::options::Options;

/// SO_GET_FILTER has the number of SO_ATTACH_FILTER (asm-generic/socket.h).
pub(super) const ATTACH: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
pub(super) const DETACH: (i32, i32) = (libc::SOL_SOCKET, libc::SO_DETACH_FILTER);
/// BPF_MAXINSNS (linux/bpf_common.h).
const INSTRUCTIONS_MAX: usize = 4096;
/// Bytes of one: `struct sock_filter`.
const INSTRUCTION: usize = 8;

/// Gives a kernel socket the filter of these instructions.
pub(crate) fn attach_filter(kernel: &dyn Kernel, fd: i32, code: &[u8]) -> Result<(), Errno> {
    let count = u16::try_from(code.len() / INSTRUCTION).unwrap_or(u16::MAX);
    // struct sock_fprog: how many, and where.
    let mut program = [0; 16];
    program[..2].copy_from_slice(&count.to_ne_bytes());
    let at = code.as_ptr().expose_provenance() as u64;
    program[8..].copy_from_slice(&at.to_ne_bytes());
    kernel.setsockopt(fd, ATTACH.0, ATTACH.1, &program)
}

/// The instructions of a `struct sock_fprog` of the program's, as a kernel socket that takes it
/// tells them.
pub(super) fn read_filter(kernel: &dyn Kernel, value: &[u8]) -> Result<Vec<u8>, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let judge = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    kernel.setsockopt(judge.as_raw_fd(), ATTACH.0, ATTACH.1, value)?;
    let mut code = vec![0; INSTRUCTIONS_MAX * INSTRUCTION];
    let count = kernel.getsockopt(judge.as_raw_fd(), ATTACH.0, ATTACH.1, &mut code)?;
    code.truncate(count * INSTRUCTION);
    Ok(code)
}

/// The recorded one.
pub(crate) fn filter_in(options: &Options) -> Option<&[u8]> {
    let code = options.bytes(ATTACH.0, ATTACH.1)?;
    (!code.is_empty()).then_some(code)
}

/// Whether a filter asks for more than a datagram and its header: where it came from, its
/// link-layer header.
pub(super) fn looks_beyond(code: &[u8]) -> bool {
    const CLASS: u16 = 0x07;
    const LOADS: [u16; 2] = [0x00, 0x01];
    const MODE: u16 = 0xe0;
    const PLACES: [u16; 3] = [0x20, 0x40, 0xa0];
    code.chunks_exact(INSTRUCTION).any(|one| {
        let op = u16::from_ne_bytes([one[0], one[1]]);
        let k = i32::from_ne_bytes([one[4], one[5], one[6], one[7]]);
        LOADS.contains(&(op & CLASS)) && PLACES.contains(&(op & MODE)) && k < 0
    })
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
        assert!(!looks_beyond(&plain));
        // ld ifindex; ldxb 4 * ([net + 0] & 0xf)
        assert!(looks_beyond(&one(0x20, -0x1000 + 8)));
        assert!(looks_beyond(&one(0xb1, -0x10_0000)));
    }
}
