//! The borrower's side of a datagram socket that lives in another process: each message of the pair
//! is a datagram behind its envelope.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use slipstack_channel::{ENVELOPE_LEN, Envelope};
use slipstack_mem::Descriptor;

use crate::addr::{Given, parse_destination};
use crate::attachment::Datagram;
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::lending::borrow::{Reach, waiting};
use crate::process::wait::polled;
use crate::process::{Process, Received};
use crate::socket::ancillary::{Wishes, parse};
use crate::socket::borrowed::{Borrowed, Wish};
use crate::socket::description::{Decided, Description};
use crate::socket::kernel_socket::is_readable;
use crate::socket::kernel_socket::is_ready;
use crate::socket::payload_longest;

/// Longest payload of any datagram.
const PAYLOAD_MAX: usize = 65_527;

impl Process {
    /// A receiving call on a datagram socket that lives elsewhere.
    pub(crate) fn recv_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        (bufs, control): (&mut [IoSliceMut<'_>], &mut [u8]),
        flags: i32,
    ) -> Outcome<Received> {
        let is_nonblocking = socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        if !self.hold_borrowed(socket, it, Reach::Heard) {
            return Err(Errno::ENETDOWN.into());
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN.into());
        }
        if !it.is_streaming() {
            it.wish(waiting(socket), Wish::Some(1), is_nonblocking);
        }
        let number = socket.kernel_number().ok_or(Errno::EBADF)?;
        let is_peek = flags & libc::MSG_PEEK != 0;
        let mut found = receive(number, bufs, is_peek)?;
        if found.is_none() && !is_nonblocking {
            let fd = polled(Some(number), libc::POLLIN);
            let plan = self.plan_of_call(socket, &socket.recv_timeout_ns, fd.as_slice());
            found = self.wait(&plan, |look| {
                match look.is_due() && is_readable(Some(number)) {
                    true => Ok(receive(number, bufs, is_peek)?),
                    false => Ok(None),
                }
            })?;
        }
        let datagram = found.ok_or(Errno::EAGAIN)?;
        let wishes = Wishes::of(&socket.cold.lock().options);
        Ok(self.answer(socket, wishes, &datagram, control, flags))
    }

    /// A sending call on it.
    pub(crate) fn send_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        bufs: &[IoSlice<'_>],
        (to, control): (Option<&[u8]>, &[u8]),
        flags: i32,
    ) -> Outcome<usize> {
        let given = to.map(|to| parse_destination(to, socket.family));
        let to = match given.transpose()? {
            Some(Given::Addr(addr)) if addr.port() == 0 => return Err(Errno::EINVAL.into()),
            Some(Given::Addr(addr)) => Some(addr),
            Some(Given::Other) => return Err(Errno::EAFNOSUPPORT.into()),
            Some(Given::Unspecified) | None => None,
        };
        let sending = parse(control, socket.family)?;
        let remote = to.or(it.remote).ok_or(Errno::EDESTADDRREQ)?;
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if len > payload_longest(remote) {
            return Err(Errno::EMSGSIZE.into());
        }
        let segment = match sending.segment {
            Some(segment) => segment,
            None => {
                let cold = socket.cold.lock();
                let segment = cold.options.int(libc::SOL_UDP, libc::UDP_SEGMENT);
                segment.and_then(|it| u16::try_from(it).ok()).unwrap_or(0)
            }
        };
        let envelope = Envelope {
            peer: to,
            local: sending.src.map(|src| SocketAddr::new(src, 0)),
            tos: sending.tos,
            ttl: sending.ttl,
            segment: NonZeroU16::new(segment),
            ..Envelope::default()
        };
        if !self.hold_borrowed(socket, it, Reach::Heard) {
            return Err(Errno::ENETDOWN.into());
        }
        let number = socket.kernel_number().ok_or(Errno::EBADF)?;
        let head = envelope.to_bytes(len);
        let whole: Vec<IoSlice<'_>> = std::iter::once(IoSlice::new(&head))
            .chain(bufs.iter().map(|buf| IoSlice::new(buf)))
            .collect();
        if send(number, &whole)? {
            return Ok(len);
        }
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Err(Errno::EAGAIN.into());
        }
        let fd = polled(Some(number), libc::POLLOUT);
        let plan = self.plan_of_call(socket, &socket.send_timeout_ns, fd.as_slice());
        let sent = self.wait(&plan, |_| match is_ready(Some(number), PollFlags::OUT) {
            true => Ok(send(number, &whole)?.then_some(())),
            false => Ok(None),
        })?;
        sent.map(|()| len).ok_or(Errno::EAGAIN.into())
    }

    /// Length of the datagram that waits for this process.
    pub(crate) fn unread_borrowed(&self, socket: &Arc<Description>, it: &Borrowed) -> usize {
        self.take_borrowed(socket, it, Wish::All);
        let found = socket
            .kernel_number()
            .and_then(|number| receive(number, &mut [], true).ok()?);
        found.map_or(0, |datagram| datagram.full_len)
    }

    /// `connect` on one that this process has not used: from now on it is one of its own, as an
    /// inherited one is that nobody has used. `None`: it cannot be.
    pub(crate) fn part_with_borrowed(&self, old: &Arc<Description>) -> Option<Arc<Description>> {
        let Some(Decided::Foreign(it)) = old.decided() else {
            return None;
        };
        let own = it.take_own()?;
        it.give_back();
        let new = self.replace_by_fresh(old);
        let _ = new.decided.set(Decided::Dgram(own));
        Some(new)
    }
}

/// Receives a message that waits at the end of a pair.
fn receive(
    number: Descriptor,
    bufs: &mut [IoSliceMut<'_>],
    is_peek: bool,
) -> Result<Option<Datagram>, Errno> {
    let mut place = vec![0; ENVELOPE_LEN + PAYLOAD_MAX];
    let flags = match is_peek {
        true => RecvFlags::DONTWAIT | RecvFlags::PEEK,
        false => RecvFlags::DONTWAIT,
    };
    let count = match retry_on_intr(|| rustix::net::recv(number.as_fd(), &mut place[..], flags)) {
        Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return Err(Errno::ENETDOWN),
        Ok((count, _)) => count,
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (head, mut rest) = place[..count].split_at(ENVELOPE_LEN.min(count));
    let head = head.try_into().map_err(|_| Errno::EINVAL)?;
    let (envelope, full_len) = Envelope::from_bytes(head).ok_or(Errno::EINVAL)?;
    let from = envelope.peer.ok_or(Errno::EINVAL)?;
    for buf in bufs {
        let count = buf.len().min(rest.len());
        buf[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
    }
    Ok(Some(Datagram {
        len: count - ENVELOPE_LEN - rest.len(),
        full_len,
        from,
        to: envelope.local.unwrap_or(from),
        envelope,
    }))
}

/// `false`: there is no room.
fn send(number: Descriptor, whole: &[IoSlice<'_>]) -> Result<bool, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let send = || {
        let mut nothing = SendAncillaryBuffer::default();
        rustix::net::sendmsg(number.as_fd(), whole, &mut nothing, flags)
    };
    match retry_on_intr(send) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Err(Errno::ENETDOWN),
        Err(error) => Err(error.into()),
    }
}
