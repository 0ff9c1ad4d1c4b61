//! Frames that do not fit a slot of the ring: the slot holds their beginning, and the whole frame
//! waits in the socket's queue.
//!
//! A sink that can tell from the beginning where the bytes belong has them copied there; otherwise
//! they are copied here first.

use std::os::fd::BorrowedFd;

use slipstack_mem::RawSpace;
use slipstack_wire::RxMeta;

use super::sys;
use crate::device::{Rest, Sink};
use crate::vnet;

/// The longest message of the socket's queue: a 64 KiB frame with its headers.
const LEN_MAX: usize = 68 * 1024;
/// Messages that one slot examines to find its own.
const SEARCHED_MAX: usize = 64;
/// Bytes by which a fetched frame is matched with the ring slot that announces it.
const MATCH_LEN: usize = 96;

/// A slot's description of a frame that is too long for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced<'a> {
    pub beginning: &'a [u8],
    /// Length of the whole frame.
    pub len: usize,
    pub meta: RxMeta,
}

/// Outcome of a large frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Whole,
    /// Past this buffer.
    Direct,
    /// The queue holds another one.
    Lost,
}

#[derive(Debug, Default)]
pub(super) struct Large {
    /// Allocated with the first large frame.
    buffer: Vec<u8>,
    /// Length of a message that was fetched but belongs to a later slot.
    held: Option<usize>,
    /// The last message was that of its slot. Ring and queue are out of step where a predecessor
    /// died after fetching a message and before giving its slot back.
    is_in_step: bool,
}

impl Large {
    pub(super) fn take(
        &mut self,
        fd: BorrowedFd<'_>,
        announced: &Announced<'_>,
        sink: &mut dyn Sink,
    ) -> Taken {
        if self.is_in_step {
            let mut waiting = Waiting {
                fd,
                announced,
                scratch: &mut self.buffer,
                is_fetched: None,
            };
            sink.large(announced.beginning, announced.meta, &mut waiting);
            if let Some(is_ours) = waiting.is_fetched {
                self.is_in_step = is_ours;
                return if is_ours { Taken::Direct } else { Taken::Lost };
            }
        }
        self.take_whole(fd, announced, sink)
    }

    fn take_whole(
        &mut self,
        fd: BorrowedFd<'_>,
        announced: &Announced<'_>,
        sink: &mut dyn Sink,
    ) -> Taken {
        // A message that waited for this slot without success belongs to a slot that was given back
        // without it.
        let searched = if self.held.is_some() { SEARCHED_MAX } else { 1 };
        for looked in 1..=searched {
            let Some(len) = self.fetch(fd) else {
                return Taken::Lost;
            };
            let frame = self.buffer.get(vnet::PACKET_LEN..len).unwrap_or_default();
            self.is_in_step = is_announced(frame, announced);
            if self.is_in_step {
                sink.frame(frame, announced.meta);
                return Taken::Whole;
            }
            if looked == searched {
                self.held = Some(len);
            }
        }
        Taken::Lost
    }

    /// The next message of the queue, or the one that was held back; its length.
    fn fetch(&mut self, fd: BorrowedFd<'_>) -> Option<usize> {
        if let Some(len) = self.held.take() {
            return Some(len);
        }
        self.buffer.resize(LEN_MAX, 0);
        let len = sys::receive(fd, &mut self.buffer).ok()?;
        Some(len.min(LEN_MAX))
    }
}

fn is_announced(frame: &[u8], announced: &Announced<'_>) -> bool {
    let compared = announced.beginning.len().min(MATCH_LEN);
    frame.len() == announced.len && frame.get(..compared) == announced.beginning.get(..compared)
}

/// The message at the front of the queue.
struct Waiting<'a> {
    fd: BorrowedFd<'a>,
    announced: &'a Announced<'a>,
    /// For the part that the slot has shown.
    scratch: &'a mut [u8],
    /// Whether the fetched message was this frame.
    is_fetched: Option<bool>,
}

impl Rest for Waiting<'_> {
    fn frame_len(&self) -> usize {
        self.announced.len
    }

    fn fetch(&mut self, from: usize, into: [RawSpace<'_>; 2]) -> bool {
        let room = into[0].len() + into[1].len();
        let beginning = self.announced.beginning.get(..from);
        let head = self.scratch.get_mut(..vnet::PACKET_LEN + from);
        let (Some(beginning), Some(head), None) = (beginning, head, self.is_fetched) else {
            return false;
        };
        if from + room != self.announced.len {
            return false;
        }
        let len = sys::receive_scattered(self.fd, head, into);
        let is_ours = len.is_ok_and(|len| len == vnet::PACKET_LEN + self.announced.len)
            && head[vnet::PACKET_LEN..] == *beginning;
        self.is_fetched = Some(is_ours);
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[derive(Default)]
    struct Frames(Vec<Vec<u8>>);

    impl Sink for Frames {
        fn frame(&mut self, frame: &[u8], _: RxMeta) {
            self.0.push(frame.to_vec());
        }
    }

    fn queue(sender: &UnixDatagram, name: u8) {
        let message = [&[0; vnet::PACKET_LEN][..], &[name; 4000]].concat();
        sender.send(&message).unwrap();
    }

    fn take(large: &mut Large, receiver: &UnixDatagram, name: u8, sink: &mut Frames) -> Taken {
        let announced = Announced {
            beginning: &[name; 200],
            len: 4000,
            meta: RxMeta::default(),
        };
        large.take(receiver.as_fd(), &announced, sink)
    }

    #[test]
    fn a_large_message_without_a_waiting_slot_delays_one_frame_only() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let (mut large, mut sink) = (Large::default(), Frames::default());
        for name in 1..=3 {
            queue(&sender, name);
        }
        // The slot of 1 was given back without it.
        assert_eq!(take(&mut large, &receiver, 2, &mut sink), Taken::Lost);
        assert_eq!(take(&mut large, &receiver, 3, &mut sink), Taken::Whole);
        queue(&sender, 4);
        assert_eq!(take(&mut large, &receiver, 4, &mut sink), Taken::Whole);
        assert_eq!(sink.0, [vec![3; 4000], vec![4; 4000]]);
    }

    #[test]
    fn a_large_message_waits_for_its_slot_behind_one_without_a_slot() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let (mut large, mut sink) = (Large::default(), Frames::default());
        queue(&sender, 2);
        queue(&sender, 3);
        assert_eq!(take(&mut large, &receiver, 1, &mut sink), Taken::Lost);
        assert_eq!(take(&mut large, &receiver, 2, &mut sink), Taken::Whole);
        assert_eq!(take(&mut large, &receiver, 3, &mut sink), Taken::Whole);
    }
}
