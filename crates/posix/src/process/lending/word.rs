//! The word that the kernel's part of a socket carries to the program that it is sent to: whether
//! calls on the socket block, and the address that a datagram socket is connected to.

use std::net::SocketAddr;

use slipstack_mem::Descriptor;

use crate::kernel::Kernel;
use crate::process::table::Table;
use crate::socket::Side;
use crate::socket::description::{Decided, Description};
use crate::socket::options::attaching::{ATTACH, DETACH, attach_filter};

/// SO_SELECT_ERR_QUEUE (asm-generic/socket.h), which has no effect on sockets without an error
/// queue.
const MODE: i32 = 45;

/// The first constant of a filter that says an address.
const MARK: u32 = 0x51a9_57ac;
/// BPF_LD | BPF_W | BPF_IMM and BPF_RET | BPF_K (linux/filter.h).
const LOAD: u16 = 0x00;
const RETURN: u16 = 0x06;
const INSTRUCTION: usize = 8;
/// The mark, the port, the zone and four words of the address.
const CONSTANTS: usize = 7;

/// A filter that lets everything pass and has an address among its constants.
fn code_of(addr: SocketAddr) -> Vec<u8> {
    let (ip, zone) = match addr {
        SocketAddr::V4(addr) => (addr.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(addr) => (*addr.ip(), addr.scope_id()),
    };
    let [high, low] = [ip.to_bits() >> 64, ip.to_bits()].map(|half| half as u64);
    let constants: [u32; CONSTANTS] = [
        MARK,
        u32::from(addr.port()),
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

fn remote_in(code: &[u8]) -> Option<SocketAddr> {
    let mut constants = [0; CONSTANTS];
    for (constant, one) in constants.iter_mut().zip(code.chunks_exact(INSTRUCTION)) {
        *constant = u32::from_ne_bytes(*one.last_chunk()?);
    }
    let [mark, port, zone, words @ ..] = constants;
    if mark != MARK {
        return None;
    }
    let bits = words
        .into_iter()
        .fold(0, |bits, word| bits << 32 | u128::from(word));
    let ip = std::net::Ipv6Addr::from_bits(bits);
    let port = u16::try_from(port).ok()?;
    Some(match ip.to_ipv4_mapped() {
        Some(ip) => SocketAddr::new(ip.into(), port),
        None => std::net::SocketAddrV6::new(ip, port, 0, zone).into(),
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

/// Leaves word in the kernel's part, which never blocks itself and is not connected.
pub(crate) fn leave_word(
    kernel: &dyn Kernel,
    socket: &Description,
    part: Option<Descriptor>,
    remote: Option<SocketAddr>,
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
    let _ = match remote {
        _ if own => Ok(()),
        Some(remote) => attach_filter(kernel, fd, &code_of(remote)),
        None => kernel.setsockopt(fd, DETACH.0, DETACH.1, &[0; 4]),
    };
}

/// Takes the word that was left in the kernel socket `fd`: whether it does not block, and its
/// peer.
pub(crate) fn take_word(kernel: &dyn Kernel, fd: i32) -> (bool, Option<SocketAddr>) {
    let mut mode = [0; 4];
    let told = kernel.getsockopt(fd, libc::SOL_SOCKET, MODE, &mut mode);
    let mut code = [0; (CONSTANTS + 1) * INSTRUCTION];
    // The length is a number of instructions.
    let count = kernel.getsockopt(fd, ATTACH.0, ATTACH.1, &mut code);
    let remote = match count {
        Ok(count) if count == CONSTANTS + 1 => remote_in(&code),
        _ => None,
    };
    (told.is_ok() && mode != [0; 4], remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_round_trips_through_a_socket_filters_constants() {
        for text in ["10.1.2.3:53", "[2001:db8::7]:65535", "[fe80::1%3]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(remote_in(&code_of(addr)), Some(addr));
        }
        assert_eq!(remote_in(&[0; (CONSTANTS + 1) * INSTRUCTION]), None);
    }
}
