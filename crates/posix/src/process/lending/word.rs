//! The word that the kernel's part of a socket carries to the program that it is sent to: whether
//! calls on the socket block, its inode, and the address that a datagram socket is connected to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use slipstack_mem::Descriptor;

use crate::kernel::Kernel;
use crate::process::table::Table;
use crate::socket::Side;
use crate::socket::description::{Decided, Description};
use crate::socket::options::attaching::{ATTACH, attach_filter};

/// SO_SELECT_ERR_QUEUE (asm-generic/socket.h), which has no effect on sockets without an error
/// queue.
const MODE: i32 = 45;

/// The first constant of a filter that carries a word.
const MARK: u32 = 0x51a9_57ac;
/// BPF_LD | BPF_W | BPF_IMM and BPF_RET | BPF_K (linux/filter.h).
const LOAD: u16 = 0x00;
const RETURN: u16 = 0x06;
const INSTRUCTION: usize = 8;
/// The mark, two words of the inode, the port, the zone and four words of the address.
const CONSTANTS: usize = 9;

/// Facts that a socket is sent with, beside its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) inode: u64,
    pub(crate) remote: Option<SocketAddr>,
}

/// A filter that lets everything pass and has a word among its constants.
fn code_of(word: Word) -> Vec<u8> {
    // No socket is connected to port 0 of the unspecified address.
    let (ip, port, zone) = match word.remote {
        Some(SocketAddr::V4(addr)) => (addr.ip().to_ipv6_mapped(), addr.port(), 0),
        Some(SocketAddr::V6(addr)) => (*addr.ip(), addr.port(), addr.scope_id()),
        None => (Ipv6Addr::UNSPECIFIED, 0, 0),
    };
    let [high, low] = [ip.to_bits() >> 64, ip.to_bits()].map(|half| half as u64);
    let constants: [u32; CONSTANTS] = [
        MARK,
        (word.inode >> 32) as u32,
        word.inode as u32,
        u32::from(port),
        zone,
        (high >> 32) as u32,
        high as u32,
        (low >> 32) as u32,
        low as u32,
    ];
    let loads = constants.into_iter().map(|constant| (LOAD, constant));
    let all = loads.chain([(RETURN, u32::MAX)]);
    all.flat_map(|(code, constant)| {
        let [a, b] = code.to_ne_bytes();
        let [c, d, e, f] = constant.to_ne_bytes();
        [a, b, 0, 0, c, d, e, f]
    })
    .collect()
}

fn word_in(code: &[u8]) -> Option<Word> {
    let mut constants = [0; CONSTANTS];
    for (constant, one) in constants.iter_mut().zip(code.chunks_exact(INSTRUCTION)) {
        *constant = u32::from_ne_bytes(*one.last_chunk()?);
    }
    let [mark, high, low, port, zone, words @ ..] = constants;
    if mark != MARK {
        return None;
    }
    let bits = words
        .into_iter()
        .fold(0, |bits, word| bits << 32 | u128::from(word));
    let ip = Ipv6Addr::from_bits(bits);
    let port = u16::try_from(port).ok()?;
    let remote = match ip.to_canonical() {
        IpAddr::V6(ip) if ip.is_unspecified() && port == 0 => None,
        IpAddr::V4(ip) => Some(SocketAddr::new(ip.into(), port)),
        IpAddr::V6(ip) => Some(SocketAddrV6::new(ip, port, 0, zone).into()),
    };
    Some(Word {
        inode: u64::from(high) << 32 | u64::from(low),
        remote,
    })
}

impl Table {
    /// Connects a datagram socket that has just been received to its sender's peer.
    pub(crate) fn connect_received(&self, fd: i32, remote: SocketAddr) {
        if let Some(socket) = self.socket(fd)
            && let Some(Decided::Dgram(dgram)) = socket.decided()
        {
            *dgram.remote.lock() = Some(remote);
            dgram.gathering.on_connect(Some(remote));
            dgram.set_side(Side::Stack);
        }
    }
}

/// Leaves word in the kernel's part, which never blocks itself and is not connected. A filter of
/// the program's own stays, and takes the word's place.
pub(crate) fn leave_word(
    kernel: &dyn Kernel,
    socket: &Description,
    part: Option<Descriptor>,
    word: Word,
) {
    let Some(fd) = part.map(Descriptor::number) else {
        return;
    };
    let mode = i32::from(socket.is_nonblocking()).to_ne_bytes();
    let _ = kernel.setsockopt(fd, libc::SOL_SOCKET, MODE, &mode);
    let own = socket
        .cold
        .lock()
        .options
        .bytes(ATTACH.0, ATTACH.1)
        .is_some();
    if !own {
        let _ = attach_filter(kernel, fd, &code_of(word));
    }
}

/// Takes the word that was left in the kernel socket `fd`, and whether calls on it do not block.
pub(crate) fn take_word(kernel: &dyn Kernel, fd: i32) -> (bool, Option<Word>) {
    let mut mode = [0; 4];
    let told = kernel.getsockopt(fd, libc::SOL_SOCKET, MODE, &mut mode);
    let mut code = [0; (CONSTANTS + 1) * INSTRUCTION];
    // The length is a number of instructions.
    let count = kernel.getsockopt(fd, ATTACH.0, ATTACH.1, &mut code);
    let word = match count {
        Ok(count) if count == CONSTANTS + 1 => word_in(&code),
        _ => None,
    };
    (told.is_ok() && mode != [0; 4], word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_round_trips_through_a_socket_filters_constants() {
        let inode = 0x1234_5678_9abc_def0;
        for text in ["10.1.2.3:53", "[2001:db8::7]:65535", "[fe80::1%3]:1"] {
            let remote = Some(text.parse().unwrap());
            let word = Word { inode, remote };
            assert_eq!(word_in(&code_of(word)), Some(word));
        }
        let word = Word {
            inode,
            remote: None,
        };
        assert_eq!(word_in(&code_of(word)), Some(word));
        assert_eq!(word_in(&[0; (CONSTANTS + 1) * INSTRUCTION]), None);
    }
}
