//! Netlink requests to the kernel: just enough to query interfaces, addresses, routes and sockets,
//! to bring an interface up, and to attach a filter to its ingress.
//!
//! Messages: `nlmsghdr` (length, type, flags, sequence, port), a fixed part, then attributes of
//! length, type and value, each padded to 4 bytes.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

pub(crate) const NEWLINK: u16 = 16;
pub(crate) const DELLINK: u16 = 17;
pub(crate) const GETLINK: u16 = 18;
pub(crate) const NEWADDR: u16 = 20;
pub(crate) const DELADDR: u16 = 21;
pub(crate) const GETADDR: u16 = 22;
pub(crate) const NEWROUTE: u16 = 24;
pub(crate) const DELROUTE: u16 = 25;
pub(crate) const NEWNEIGHBOUR: u16 = 28;
pub(crate) const DELNEIGHBOUR: u16 = 29;
pub(crate) const GETROUTE: u16 = 26;
pub(crate) const NEWQDISC: u16 = 36;
pub(crate) const DELQDISC: u16 = 37;
pub(crate) const NEWTFILTER: u16 = 44;
pub(crate) const DELTFILTER: u16 = 45;

const FLAG_REQUEST: u16 = 1;
const FLAG_ACK: u16 = 4;
const FLAG_DUMP: u16 = 0x300;
pub(crate) const FLAG_EXCL: u16 = 0x200;
pub(crate) const FLAG_CREATE: u16 = 0x400;

const HEADER_LEN: usize = 16;
const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
/// The largest answer that the kernel packs into one message.
const ANSWER_MAX: usize = 64 * 1024;

/// A request being put together.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
    /// `None`: NETLINK_ROUTE, whose number is 0.
    protocol: Option<Protocol>,
}

impl Request {
    /// Starts with the fixed part of the message.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | FLAG_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Request {
            bytes,
            protocol: None,
        }
    }

    /// Starts a message that asks for nothing, with the fixed part.
    pub(crate) fn notice(kind: u16, fixed: &[u8]) -> Request {
        let mut request = Request::new(kind, 0, fixed);
        request.bytes[6..8].copy_from_slice(&[0, 0]);
        request
    }

    /// Starts a question about sockets (NETLINK_SOCK_DIAG), with the fixed part of the message.
    pub fn about_sockets(fixed: &[u8]) -> Request {
        const BY_FAMILY: u16 = 20;
        Request {
            protocol: Some(SOCK_DIAG),
            ..Request::new(BY_FAMILY, 0, fixed)
        }
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        push_attribute(&mut self.bytes, kind, value);
        self
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes
    }
}

/// Appends an attribute; for nested ones the value is made of attributes.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = (4 + value.len()) as u16;
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    Ok(socket_with(AddressFamily::NETLINK, kind, flags, protocol)?)
}

/// Opens a socket that receives changes of interfaces (RTMGRP_LINK).
pub(crate) fn watch_links() -> io::Result<OwnedFd> {
    const RTMGRP_LINK: u32 = 1;
    let socket = open(None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_LINK))?;
    Ok(socket)
}

/// Reads all messages. A loss (ENOBUFS) counts as a message.
pub(crate) fn clear(socket: &OwnedFd) {
    let mut buffer = [0; 256];
    loop {
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
            Err(_) => return,
        }
    }
}

/// Makes a change; the answer is the kernel's verdict.
pub(crate) fn change(mut request: Request) -> io::Result<()> {
    let flags = u16::from_ne_bytes([request.bytes[6], request.bytes[7]]) | FLAG_ACK;
    request.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    exchange(request, &mut |_| {})
}

/// Asks for one object.
pub(crate) fn fetch(request: Request, on_body: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    exchange(request, on_body)
}

/// Asks for all objects of a kind; `on_body` sees each without its header.
///
/// # Errors
/// The kernel refuses the request.
pub fn dump(mut request: Request, on_body: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let flags = u16::from_ne_bytes([request.bytes[6], request.bytes[7]]) | FLAG_DUMP;
    request.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    exchange(request, on_body)
}

fn exchange(request: Request, on_body: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let protocol = request.protocol;
    let bytes = request.finish();
    let is_dump = u16::from_ne_bytes([bytes[6], bytes[7]]) & FLAG_DUMP == FLAG_DUMP;
    let socket = open(protocol)?;
    send(&socket, &bytes, SendFlags::empty())?;
    let mut buffer = vec![0; ANSWER_MAX];
    loop {
        let (len, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if read_answer(&buffer[..len], is_dump, on_body)? {
            return Ok(());
        }
    }
}

/// Walks the messages of one answer; true when it was the last.
fn read_answer(
    mut bytes: &[u8],
    is_dump: bool,
    on_body: &mut dyn FnMut(&[u8]),
) -> io::Result<bool> {
    while let Some((len, kind)) = message_header(bytes) {
        let body = &bytes[HEADER_LEN..len];
        match kind {
            TYPE_DONE => return Ok(true),
            TYPE_ERROR => {
                let code = u32_at(body, 0).unwrap_or(0).cast_signed();
                return match code {
                    0 => Ok(true),
                    code => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
                };
            }
            _ => on_body(body),
        }
        if !is_dump {
            return Ok(true);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

fn message_header(bytes: &[u8]) -> Option<(usize, u16)> {
    let len = u32_at(bytes, 0)? as usize;
    let kind = bytes.get(4..6)?;
    (len >= HEADER_LEN && len <= bytes.len()).then(|| (len, u16::from_ne_bytes([kind[0], kind[1]])))
}

/// Attributes of a message behind its fixed part: type and value.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((u16::from_ne_bytes([head[2], head[3]]) & 0x3fff, value))
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip_and_hostile_lengths_end_the_walk() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 3, b"lo\0");
        push_attribute(&mut bytes, 4, &1500u32.to_ne_bytes());
        let seen: Vec<_> = attributes(&bytes).collect();
        assert_eq!(seen, [(3, &b"lo\0"[..]), (4, &1500u32.to_ne_bytes()[..])]);
        for len in [0u16, 1, 3, 200] {
            bytes[..2].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(attributes(&bytes).count(), 0);
        }
    }

    #[test]
    fn an_error_answer_becomes_its_errno() {
        let mut answer = vec![0u8; 36];
        answer[..4].copy_from_slice(&36u32.to_ne_bytes());
        answer[4..6].copy_from_slice(&TYPE_ERROR.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        let error = read_answer(&answer, false, &mut |_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
