//! NETLINK_ROUTE sockets: they are the kernel's, but the answer to RTM_GETADDR begins with the
//! stack's addresses. Those are sent as datagrams of their own while the kernel's first one still
//! waits, so that polling finds the socket readable; the kernel's datagrams end the list. The
//! answer to RTM_GETROUTE for a destination of the stack takes the place of the kernel's.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, recv, recvfrom};
use slipstack_channel::Asker;
use slipstack_mem::{Descriptor, Lock};

use crate::addr::{AddrBytes, Family, Given, parse};
use crate::interfaces::question::{
    Asked, DONE, HEADER, Header, NEW_ADDRESS, Question, RouteSocket,
};
use crate::interfaces::route_question::{Reply, RouteAnswer, RouteQuestion, Way};
use crate::outcome::{Divert, Outcome};
use crate::process::table::Entry;
use crate::process::table::Table;
use crate::process::{Process, Received};

/// Bytes of a request that are looked at.
const QUESTION_MAX: usize = 256;
/// Number of the interface lo.
const LOOPBACK: u32 = 1;
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
            let begin: Vec<u8> = bytes.take(QUESTION_MAX).collect();
            let addresses = Question::read(&begin, || self.own_addresses_at(fd));
            let asked = match addresses {
                Some(addresses) => Some(Asked::Addresses(addresses)),
                None => self.route_answer(&begin).map(Asked::Route),
            };
            *socket.asked.lock() = asked;
        }
        Divert::Kernel
    }

    /// Returns the answer to a question for the way to a destination that the stack reaches.
    fn route_answer(&self, bytes: &[u8]) -> Option<RouteAnswer> {
        let question = RouteQuestion::read(bytes)?;
        let policy = self.network.policy()?;
        let own = question.from;
        if own.is_some_and(|own| !policy.is_own(own)) {
            return None;
        }
        let asker = Asker {
            own,
            ..Asker::default()
        };
        let to = question.to;
        let is_own = policy.is_own(to);
        if !is_own && !policy.is_reachable(to, asker) {
            return None;
        }
        let source = match (own, is_own) {
            (Some(own), _) => own,
            (None, true) => to,
            (None, false) => self.source_towards(to)?,
        };
        let interface = match is_own {
            true => LOOPBACK,
            false => policy.interface_with(source)?.index,
        };
        if interface == 0 || question.interface.is_some_and(|wanted| wanted != interface) {
            return None;
        }
        let way = Way {
            is_own,
            source,
            gateway: policy.network().gateway_towards(to),
            interface,
        };
        Some(RouteAnswer::new(question, way))
    }

    /// Returns the address that a datagram to `to` would have, as its socket says.
    fn source_towards(&self, to: IpAddr) -> Option<IpAddr> {
        const ANY_PORT: u16 = 9;
        let (domain, family) = match to {
            IpAddr::V4(_) => (libc::AF_INET, Family::V4),
            IpAddr::V6(_) => (libc::AF_INET6, Family::V6),
        };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let fd = self.socket(domain, kind, 0).ok()?;
        let to = AddrBytes::new(SocketAddr::new(to, ANY_PORT), family);
        let connected = self.connect(fd, to.as_bytes());
        let named = connected.and_then(|()| self.getsockname(fd)).ok();
        let _ = self.close(fd);
        match parse(named?.as_bytes(), family) {
            Ok(Given::Addr(own)) if !own.ip().is_unspecified() => Some(own.ip()),
            _ => None,
        }
    }
}

/// Takes the kernel's next datagram, unless it is to stay.
fn drop_next(fd: BorrowedFd<'_>, flags: i32) {
    if flags & libc::MSG_PEEK == 0 {
        let _ = recv(fd, &mut [0; HEADER][..], RecvFlags::DONTWAIT);
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
        let number = Descriptor::new(fd).ok_or(Divert::Kernel)?;
        let number = number.as_fd();
        let question = asked.as_mut().ok_or(Divert::Kernel)?;
        let first = peek(number).ok_or(Divert::Kernel)?;
        let (datagram, is_over) = match question {
            Asked::Addresses(question) => next_addresses(question, &first, flags),
            Asked::Route(answer) => next_of_route(answer, &first, number, flags),
        };
        if is_over {
            *asked = None;
        }
        Ok(deliver(&datagram.ok_or(Divert::Kernel)?, bufs, flags))
    }
}

/// Returns the next datagram of a list, and whether it is the last one.
fn next_addresses(question: &mut Question, first: &Header, flags: i32) -> (Option<Vec<u8>>, bool) {
    if first.sequence != question.sequence {
        return (None, false);
    }
    if ![NEW_ADDRESS, DONE].contains(&first.kind) {
        return (None, true);
    }
    let (datagram, count) = question.datagram(first);
    if flags & libc::MSG_PEEK == 0 {
        question.left.truncate(question.left.len() - count);
    }
    (Some(datagram), question.left.is_empty())
}

/// Returns the next datagram of the answer about a route, and whether it is the last one.
fn next_of_route(
    answer: &mut RouteAnswer,
    first: &Header,
    number: BorrowedFd<'_>,
    flags: i32,
) -> (Option<Vec<u8>>, bool) {
    let stays = flags & libc::MSG_PEEK != 0;
    match answer.reply(first) {
        None => (None, false),
        Some(Reply::Before(message)) => {
            if !stays {
                answer.deliver();
            }
            (Some(message), false)
        }
        Some(Reply::Instead(message) | Reply::Acknowledged(message)) => {
            drop_next(number, flags);
            (Some(message), !stays)
        }
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
