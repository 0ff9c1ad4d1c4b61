//! Listeners that are meant for the stack and not there yet.
//!
//! A program listens on the stack when it first waits on the socket, so that workers listen and their
//! master does not. Until then its kernel socket holds the port, with IP_FREEBIND set. A SYN for such a
//! port waits, and what it waits for is not refused.

use std::collections::HashSet;
use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{netlink, recv, send, socket_with};

/// How long the kernel's yes is believed.
const FRESH_NS: u64 = 100_000_000;
/// How long its no: a program may be about to listen, and a peer that is refused does not try again.
const NO_FRESH_NS: u64 = 2_000_000;
/// Listeners read at most.
const PORTS_MAX: usize = 4096;
/// Messages of one answer read at most.
const ANSWERS_MAX: usize = 256;

const HEADER: usize = 16;
const TYPE_DONE: u16 = 3;
const TYPE_ERROR: u16 = 2;
/// SOCK_DIAG_BY_FAMILY.
const BY_FAMILY: u16 = 20;
/// NLM_F_REQUEST | NLM_F_DUMP.
const DUMP: u16 = 0x301;
const STATE_LISTEN: u32 = 1 << 10;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
/// INET_DIAG_SOCKOPT and the bit `freebind` of its first byte.
const SOCKOPT: u16 = 22;
const FREEBIND: u8 = 1 << 2;

/// What the kernel said last of its listeners.
#[derive(Debug, Default)]
pub(super) struct Intents {
    ports: HashSet<u16>,
    asked_ns: Option<u64>,
}

impl Intents {
    /// Whether somebody means to listen on this port.
    pub(super) fn has(&mut self, port: u16, now: u64) -> bool {
        let fresh_ns = if self.ports.contains(&port) {
            FRESH_NS
        } else {
            NO_FRESH_NS
        };
        if self
            .asked_ns
            .is_none_or(|asked| now.wrapping_sub(asked) >= fresh_ns)
        {
            self.asked_ns = Some(now);
            self.ports.clear();
            for family in [libc::AF_INET, libc::AF_INET6] {
                // Without an answer the SYN is reset, as for any closed port.
                let _ = ask(family as u8, &mut self.ports);
            }
        }
        self.ports.contains(&port)
    }
}

fn request(family: u8) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    bytes[..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    bytes[HEADER] = family;
    bytes[HEADER + 1] = libc::IPPROTO_TCP as u8;
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&STATE_LISTEN.to_ne_bytes());
    bytes
}

fn ask(family: u8, ports: &mut HashSet<u16>) -> io::Result<()> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    let diag = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, kind, flags, diag)?;
    send(&socket, &request(family), SendFlags::empty())?;
    let mut buffer = vec![0; 32 * 1024];
    for _ in 0..ANSWERS_MAX {
        let (len, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if read_answer(&buffer[..len], ports) {
            break;
        }
    }
    Ok(())
}

/// Walks the messages of one answer; true when it was the last.
fn read_answer(mut bytes: &[u8], ports: &mut HashSet<u16>) -> bool {
    while let Some(header) = bytes.get(..HEADER) {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(body) = bytes.get(HEADER..len) else {
            return true;
        };
        match kind {
            TYPE_DONE | TYPE_ERROR => return true,
            _ => {
                if let Some(port) = intended_port(body)
                    && ports.len() < PORTS_MAX
                {
                    ports.insert(port);
                }
            }
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    bytes.is_empty() && ports.len() >= PORTS_MAX
}

/// The port of a listener, if it has IP_FREEBIND.
fn intended_port(body: &[u8]) -> Option<u16> {
    let port = u16::from_be_bytes([*body.get(4)?, *body.get(5)?]);
    let mut attributes = body.get(ANSWER..)?;
    while let Some(header) = attributes.get(..4) {
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        let value = attributes.get(4..len)?;
        if kind == SOCKOPT {
            return (value.first()? & FREEBIND != 0).then_some(port);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen, sockopt};
    use std::net::{Ipv4Addr, SocketAddrV4};

    #[test]
    fn listeners_with_freebind_are_found_and_others_are_not() {
        let listener = |is_free: bool| {
            let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
            let socket = socket_with(AddressFamily::INET, kind, flags, None).unwrap();
            sockopt::set_ip_freebind(&socket, is_free).unwrap();
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
            listen(&socket, 1).unwrap();
            let name = rustix::net::getsockname(&socket).unwrap();
            let port = SocketAddrV4::try_from(name).unwrap().port();
            (socket, port)
        };
        let (_free, free_port) = listener(true);
        let (_plain, plain_port) = listener(false);
        let mut ports = HashSet::new();
        ask(libc::AF_INET as u8, &mut ports).unwrap();
        assert!(ports.contains(&free_port));
        assert!(!ports.contains(&plain_port));
    }

    #[test]
    fn cut_answers_end_the_reading() {
        let mut ports = HashSet::new();
        assert!(read_answer(&[255; HEADER], &mut ports));
        assert_eq!(intended_port(&[0; ANSWER]), None);
        assert_eq!(intended_port(&[9; ANSWER + 5]), None);
    }
}
