//! Moves datagrams between a socket and the child's end of a pair, each with its envelope before
//! it.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};
use slipstack_channel::{ENVELOPE_LEN, Envelope};
use slipstack_mem::Descriptor;

use crate::lending::lender::Lender;
use crate::lending::pump::{Pump, Way};
use crate::socket::borrowed::Wish;
use crate::socket::description::Kind;
use crate::socket::{Dgram, Side};

/// So many each way until it is another pump's turn.
const ROUNDS: usize = 16;

impl Pump {
    /// Whether datagrams come by the kernel too.
    pub(in crate::lending) fn has_kernel_part(&self) -> bool {
        self.socket.kind == Kind::Dgram && self.socket.kernel_speaks()
    }

    /// As [`Pump::run`].
    pub(crate) fn run_datagrams(
        &mut self,
        lender: &dyn Lender,
        dgram: &Dgram,
        room: &mut [u8],
    ) -> bool {
        for _ in 0..ROUNDS {
            let has_sent = self.send_datagram(lender, dgram, room);
            let has_received = self.give_datagram(dgram, room);
            if !has_sent && !has_received {
                return false;
            }
        }
        true
    }

    /// One datagram from the child to the network; whether there was one.
    fn send_datagram(&mut self, lender: &dyn Lender, dgram: &Dgram, room: &mut [u8]) -> bool {
        let frame = match self.to_peer.is_empty() {
            false if !self.peers.takes => return false,
            false => std::mem::take(&mut self.to_peer.rest),
            true => match self.take_frame(room) {
                Some(len) => room[..len].to_vec(),
                None => return false,
            },
        };
        if self.pass(lender, dgram, &frame) {
            return true;
        }
        self.peers.takes = false;
        self.to_peer.rest = frame;
        false
    }

    /// Takes a message that the child has sent; returns its length.
    fn take_frame(&mut self, room: &mut [u8]) -> Option<usize> {
        if !self.childs.gives || self.to_peer.is_ended {
            return None;
        }
        let recv = || rustix::net::recv(&self.child, &mut *room, RecvFlags::DONTWAIT);
        match retry_on_intr(recv) {
            Ok((len, _)) if len >= ENVELOPE_LEN => Some(len),
            Err(Errno::AGAIN) => {
                self.childs.gives = false;
                None
            }
            _ => {
                self.to_peer = Way::over();
                self.to_child = Way::over();
                None
            }
        }
    }

    /// `false`: there is no room. Errors are nobody's: the child's call is over.
    fn pass(&self, lender: &dyn Lender, dgram: &Dgram, frame: &[u8]) -> bool {
        let (head, payload) = frame.split_at(ENVELOPE_LEN);
        let Some((envelope, _)) = head.try_into().ok().and_then(Envelope::from_bytes) else {
            return true;
        };
        if let Some(to) = envelope.peer
            && lender.sends_by_kernel(&self.socket, to)
        {
            let number = Descriptor::new(self.number).filter(|_| self.has_kernel_part());
            if let Some(number) = number {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = rustix::net::sendto(number.as_fd(), payload, flags, &to);
            }
            return true;
        }
        let send = || dgram.send(&envelope, &[IoSlice::new(payload)]);
        // An error that waits is told by the first one, and nothing is sent.
        !matches!(send().or_else(|_| send()), Ok(None))
    }

    /// One datagram to the child; whether there was one.
    fn give_datagram(&mut self, dgram: &Dgram, room: &mut [u8]) -> bool {
        if self.to_child.is_done {
            return false;
        }
        if !self.to_child.is_empty() {
            let frame = std::mem::take(&mut self.to_child.rest);
            return self.childs.takes && self.give(&frame) || {
                self.to_child.rest = frame;
                false
            };
        }
        if self.wish == Wish::None || !self.peers.gives {
            return false;
        }
        let Some(len) = self.receive_datagram(dgram, room) else {
            self.peers.gives = false;
            return false;
        };
        if self.wish != Wish::All {
            self.wish = Wish::None;
        }
        if !self.give(&room[..len]) {
            self.to_child.rest = room[..len].to_vec();
        }
        true
    }

    fn give(&mut self, frame: &[u8]) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match retry_on_intr(|| rustix::net::send(&self.child, frame, flags)) {
            Err(Errno::AGAIN) => {
                self.childs.takes = false;
                false
            }
            // Nobody is there: the pair's end tells.
            _ => true,
        }
    }

    /// The next datagram behind its envelope, from the stack or the kernel; the length of both.
    fn receive_datagram(&self, dgram: &Dgram, room: &mut [u8]) -> Option<usize> {
        let (head, place) = room.split_at_mut(ENVELOPE_LEN);
        let mut found = None;
        // An error that waits comes first.
        for _ in 0..2 {
            found = match dgram.recv(&mut [IoSliceMut::new(place)], false) {
                Ok(found) => found,
                Err(_) => continue,
            };
            break;
        }
        let (envelope, len) = match found {
            Some(datagram) => {
                let envelope = Envelope {
                    peer: Some(datagram.from),
                    local: Some(datagram.to),
                    ..datagram.envelope
                };
                (envelope, datagram.len)
            }
            None if dgram.side() == Side::Both && self.has_kernel_part() => {
                let number = Descriptor::new(self.number)?;
                let recv =
                    || rustix::net::recvfrom(number.as_fd(), &mut *place, RecvFlags::DONTWAIT);
                let (len, _, from) = retry_on_intr(recv).ok()?;
                let envelope = Envelope {
                    peer: from.and_then(|from| from.try_into().ok()),
                    ..Envelope::default()
                };
                (envelope, len)
            }
            None => return None,
        };
        head.copy_from_slice(&envelope.to_bytes(len));
        Some(ENVELOPE_LEN + len)
    }
}
