//! The messages of one recvmmsg() or sendmmsg() that need nothing but the stack's part of a
//! datagram socket: descriptor, socket and engine are looked up once for all of them.
//!
//! A message that needs more (the kernel's part, an error, room, a port) is left to
//! [`Process::recvmsg`] or [`Process::sendmsg`], which find out for themselves.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::Envelope;

use crate::addr::is_link_local;
use crate::calls::send_datagram::{DATAGRAM_SURE, Destination, destination, system_time, total};
use crate::errno::Errno;
use crate::process::{Process, Received};
use crate::socket::ancillary::parse as parse_control;
use crate::socket::description::{Decided, Description};
use crate::socket::{Dgram, Side};

/// Takes the next datagram into buffers and a place for control messages. `None`: no place is
/// filled; there is none, or not by this way.
pub type Take<'a> = &'a mut dyn FnMut(&mut [IoSliceMut<'_>], &mut [u8]) -> Option<Received>;

/// Sends a datagram of these bytes to an address, if one is named, with control messages. `None`:
/// not by this way.
pub type Give<'a> = &'a mut dyn FnMut(&[IoSlice<'_>], Option<&[u8]>, &[u8]) -> Option<usize>;

/// Flags that change nothing for a datagram that is there, or finds room.
const RECEIVE_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_TRUNC | libc::MSG_CMSG_CLOEXEC;
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Errors of a call that say nothing about the socket; the last two are of a number that another
/// thread has closed.
const NOT_KEPT: [Errno; 4] = [Errno::EAGAIN, Errno::EINTR, Errno::EBADF, Errno::ENOTSOCK];

/// Longest address of a datagram (sockaddr_in6).
const ADDRESS_MAX: usize = 28;

/// The latest destination of a sendmmsg(), and what was found out about it.
struct Way {
    address: [u8; ADDRESS_MAX],
    /// `None`: the socket's peer.
    len: Option<usize>,
    envelope: Envelope,
}

impl Way {
    fn leads_to(&self, to: Option<&[u8]>) -> bool {
        self.len.map(|len| &self.address[..len]) == to
    }
}

impl Process {
    /// Receives what is there: `next` gets a function that takes one message, and returns whether
    /// there is a place for another.
    pub fn recv_many(&self, fd: i32, flags: i32, next: &mut dyn FnMut(Take<'_>) -> bool) {
        let Some(socket) = self.table.socket(fd) else {
            return;
        };
        let Some(Decided::Dgram(dgram)) = socket.decided() else {
            return;
        };
        let is_plain = flags & !RECEIVE_FLAGS == 0
            && dgram.side() != Side::Kernel
            && socket.peek_from().is_none();
        if !is_plain {
            return;
        }
        let Some((attachment, sock)) = dgram.plain_part() else {
            return;
        };
        let Some(mut receiving) = attachment.program.udp_receiving(sock) else {
            return;
        };
        let requested = dgram.requested();
        while next(&mut |bufs, control| {
            let it = receiving.take(bufs)?;
            Some(self.answer(&socket, requested, &it, control, flags))
        }) {}
    }

    /// Keeps an error that ended a recvmmsg() after some messages for the next call, as
    /// do_recvmmsg() does.
    pub fn keep_error(&self, fd: i32, error: Errno) {
        if let Some(socket) = self.table.socket(fd)
            && let Some(Decided::Dgram(dgram)) = socket.decided()
            && !NOT_KEPT.contains(&error)
        {
            dgram.keep_error(error);
        }
    }

    /// Sends: `next` gets a function that sends one message, and returns whether there is another.
    pub fn send_many(&self, fd: i32, flags: i32, next: &mut dyn FnMut(Give<'_>) -> bool) {
        let Some(socket) = self.table.socket(fd) else {
            return;
        };
        let Some(Decided::Dgram(dgram)) = socket.decided() else {
            return;
        };
        let is_plain = flags & !SEND_FLAGS == 0
            && !dgram.gathering.is_begun()
            && !dgram.gathering.is_corked()
            && dgram.side() != Side::Kernel
            && dgram.segment() == 0;
        let Some((attachment, sock)) = dgram.plain_part().filter(|_| is_plain) else {
            return;
        };
        let mut way: Option<Way> = None;
        while next(&mut |bufs, to, control| {
            let is_short = total(bufs) <= DATAGRAM_SURE;
            let known = way.as_ref().filter(|way| is_short && way.leads_to(to));
            let (envelope, stamps) = match known.filter(|_| control.is_empty()) {
                Some(way) => (way.envelope, None),
                None => self.envelope_to(&socket, dgram, (bufs, to, control))?,
            };
            if known.is_none() && control.is_empty() {
                way = way_to(to, envelope);
            }
            let sent = match dgram.send_on(&attachment, sock, &envelope, bufs) {
                Ok(sent) => sent?,
                Err(error) => {
                    // The call for one message reports it.
                    dgram.keep_error(error);
                    return None;
                }
            };
            if socket.error_queue.on_left(stamps, system_time) {
                socket.notify(socket.error_queue.bits());
            }
            Some(sent)
        }) {}
    }

    /// Returns the envelope of a datagram for the stack's part and the timestamps that it asks for.
    fn envelope_to(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        (bufs, to, control): (&[IoSlice<'_>], Option<&[u8]>, &[u8]),
    ) -> Option<(Envelope, Option<u32>)> {
        let to = destination(to, socket.family).ok()?;
        let to = to.map(|to| self.network.zoned_to(socket, to));
        let sending = parse_control(control, socket.family).ok()?;
        let is_strange = |src| is_link_local(src) || !self.network.is_own((src, 0).into());
        if sending.src.is_some_and(is_strange) || sending.segment.is_some() {
            return None;
        }
        if to.is_some_and(|to| {
            self.network
                .reason_to_connect_in_kernel(socket, to)
                .is_some()
        }) {
            return None;
        }
        let destination = Destination::of(dgram, to).ok()?;
        // A socket of this process may have to come to the stack before.
        if self.has_intents.load(Ordering::Relaxed) && self.network.is_own(destination.addr) {
            return None;
        }
        let is_direct = dgram.datagram_flags.is_direct();
        destination.check(&self.network, socket, is_direct).ok()?;
        let envelope = self.envelope(dgram, destination, &sending, bufs, false);
        Some((envelope.ok()?, sending.stamps))
    }
}

fn way_to(to: Option<&[u8]>, envelope: Envelope) -> Option<Way> {
    let mut address = [0; ADDRESS_MAX];
    if let Some(to) = to {
        address.get_mut(..to.len())?.copy_from_slice(to);
    }
    Some(Way {
        address,
        len: to.map(<[u8]>::len),
        envelope,
    })
}
