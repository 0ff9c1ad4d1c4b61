//! NETLINK_ROUTE sockets: they are the kernel's, but the answer to RTM_GETADDR begins with the
//! stack's addresses. Those are sent as datagrams of their own while the kernel's first one still
//! waits, so that polling finds the socket readable; the kernel's datagrams end the list.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, recv, recvfrom};
use slipstack_mem::{Descriptor, Lock};

use crate::addr::AddrBytes;
use crate::interfaces::question::{DONE, HEADER, Header, NEW_ADDRESS, Question, RouteSocket};
use crate::outcome::{Divert, Outcome};
use crate::process::table::Entry;
use crate::process::table::Table;
use crate::process::{Process, Received};

/// Longest notice of an address.
const NOTICE_MAX: usize = 512;

impl Process {
    /// The program has made a socket of NETLINK_ROUTE.
    pub fn watch_routes(&self, fd: i32) {
        let asked = Lock::new(None);
        let id = self.ids.next();
        let entry = Entry::Routes(Arc::new(RouteSocket { id, asked }));
        if let Some(stale) = self.table.put(fd, entry) {
            self.let_go(fd, stale);
        }
    }

    /// The program sends to a descriptor that is no socket of the stack's.
    #[cold]
    pub(crate) fn note_question(&self, fd: i32, bufs: &[IoSlice<'_>]) -> Divert {
        if let Some(Entry::Routes(socket)) = self.table.find(fd) {
            let bytes = bufs.iter().flat_map(|buf| buf.iter().copied());
            let begin: Vec<u8> = bytes.take(HEADER + 8).collect();
            let question = Question::read(&begin, || self.own_addresses());
            *socket.asked.lock() = question;
        }
        Divert::Kernel
    }
}

/// Takes the next datagram if it is a notice of the keeper's, as if the kernel had sent it: some
/// programs believe nobody else.
fn take_notice(fd: i32, bufs: &mut [IoSliceMut<'_>], flags: i32) -> Option<Received> {
    let number = Descriptor::new(fd)?;
    let waiting = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (_, _, sender) = recvfrom(number.as_fd(), &mut [0; HEADER][..], waiting).ok()?;
    let sender = SocketAddrNetlink::try_from(sender?).ok()?;
    if sender.pid() == 0 {
        return None;
    }
    let mut bytes = vec![0; NOTICE_MAX];
    let peeks = flags & libc::MSG_PEEK != 0;
    let how = if peeks { waiting } else { RecvFlags::DONTWAIT };
    let (len, _) = recv(number.as_fd(), &mut bytes[..], how).ok()?;
    Some(deliver(bytes.get(..len)?, bufs, flags))
}

/// The header of the kernel's next datagram, if there is one. It stays.
fn peek(fd: BorrowedFd<'_>) -> Option<Header> {
    let mut bytes = [0; HEADER];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (len, _) = recv(fd, &mut bytes[..], flags).ok()?;
    Header::read(bytes.get(..len)?)
}

fn deliver(datagram: &[u8], bufs: &mut [IoSliceMut<'_>], flags: i32) -> Received {
    let mut rest = datagram;
    for buf in bufs {
        let count = buf.len().min(rest.len());
        buf[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
    }
    let is_cut = !rest.is_empty();
    let whole = flags & libc::MSG_TRUNC != 0;
    Received {
        len: datagram.len() - if whole { 0 } else { rest.len() },
        flags: if is_cut { libc::MSG_TRUNC } else { 0 },
        from: Some(AddrBytes::of_kernel()),
        control_len: 0,
    }
}

impl Table {
    /// The program receives from one.
    #[cold]
    pub(crate) fn recv_list(
        &self,
        fd: i32,
        bufs: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Outcome<Received> {
        let Some(Entry::Routes(socket)) = self.find(fd) else {
            return Err(Divert::Kernel);
        };
        if let Some(received) = take_notice(fd, bufs, flags) {
            return Ok(received);
        }
        let mut asked = socket.asked.lock();
        let question = asked.as_mut().ok_or(Divert::Kernel)?;
        let number = Descriptor::new(fd).ok_or(Divert::Kernel)?;
        let first = peek(number.as_fd()).ok_or(Divert::Kernel)?;
        if first.sequence != question.sequence {
            return Err(Divert::Kernel);
        }
        if ![NEW_ADDRESS, DONE].contains(&first.kind) {
            *asked = None;
            return Err(Divert::Kernel);
        }
        let (datagram, count) = question.datagram(&first);
        if flags & libc::MSG_PEEK == 0 {
            question.left.truncate(question.left.len() - count);
            if question.left.is_empty() {
                *asked = None;
            }
        }
        Ok(deliver(&datagram, bufs, flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_does_not_fit_is_cut() {
        let mut place = [0; 10];
        let bytes = [7; 15];
        let mut receive = |flags| {
            let got = deliver(&bytes, &mut [IoSliceMut::new(&mut place)], flags);
            (got.len, got.flags)
        };
        assert_eq!(receive(0), (10, libc::MSG_TRUNC));
        assert_eq!(receive(libc::MSG_TRUNC), (15, libc::MSG_TRUNC));
        assert_eq!(place, [7; 10]);
    }
}
