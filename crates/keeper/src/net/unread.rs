//! Datagrams for sockets that are bound but not on a stack yet.
//!
//! On the kernel they would be in the socket's receive buffer from the bind on, whichever process
//! reads them in the end: the one that bound it, a child, or a program that receives it. Here they
//! wait until an engine serves the port.

use std::collections::{HashMap, VecDeque};

use slipstack_channel::{charge_of, has_room};

/// Bytes that wait at most, in all.
const BYTES_MAX: usize = 8 << 20;
/// Headers of a frame before the payload: Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;
/// Interval at which it is looked whether the sockets are still there.
const ASK_NS: u64 = 100_000_000;
/// An inbox without room is tried again after this time.
const AGAIN_NS: u64 = 1_000_000;

/// A frame, with its link.
pub(super) type Waiting = (u16, Vec<u8>);

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Waiting>,
    bytes: usize,
    /// An engine serves the port, but had no room for all.
    is_due: bool,
}

/// Datagrams that wait, by port.
#[derive(Debug, Default)]
pub(super) struct Unread {
    queues: HashMap<u16, Queue>,
    bytes: usize,
    asked_ns: u64,
    sent_ns: u64,
    pub(super) lost: u64,
}

impl Unread {
    /// Lets a datagram wait for a socket with a receive buffer of `rcvbuf` bytes. A full buffer
    /// loses it, as on the kernel.
    pub(super) fn hold(&mut self, port: u16, rcvbuf: u32, frame: Waiting, now: u64) {
        let size = size_of(&frame);
        let queue = self.queues.entry(port).or_default();
        let may_wait = has_room(queue.bytes as u64, size as u64, rcvbuf.into());
        if !may_wait || self.bytes + size > BYTES_MAX {
            self.lost += 1;
            return;
        }
        if self.bytes == 0 {
            self.asked_ns = now;
        }
        queue.bytes += size;
        self.bytes += size;
        queue.frames.push_back(frame);
    }

    /// The ports for which datagrams wait.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.queues.keys().copied()
    }

    /// Hands the datagrams that wait for a port to `take`, which answers whether it had room. Those
    /// it had no room for keep waiting.
    pub(super) fn send(&mut self, port: u16, now: u64, mut take: impl FnMut(&Waiting) -> Taken) {
        self.sent_ns = now;
        let Some(queue) = self.queues.get_mut(&port) else {
            return;
        };
        queue.is_due = false;
        for _ in 0..queue.frames.len() {
            let Some(frame) = queue.frames.pop_front() else {
                break;
            };
            match take(&frame) {
                Taken::Yes => {
                    let size = size_of(&frame);
                    queue.bytes -= size;
                    self.bytes -= size;
                }
                Taken::NobodyServes => queue.frames.push_back(frame),
                Taken::NoRoom => {
                    queue.frames.push_front(frame);
                    queue.is_due = true;
                    break;
                }
            }
        }
        if queue.frames.is_empty() {
            self.queues.remove(&port);
        }
    }

    /// Ports whose engine had no room recently.
    pub(super) fn due(&self, now: u64) -> Vec<u16> {
        if self.queues.is_empty() || now < self.sent_ns + AGAIN_NS {
            return Vec::new();
        }
        let due = self.queues.iter().filter(|(_, queue)| queue.is_due);
        due.map(|(port, _)| *port).collect()
    }

    /// Returns the ports to check now, if that is due.
    pub(super) fn ports_to_ask(&mut self, now: u64) -> Vec<u16> {
        if self.queues.is_empty() || now < self.asked_ns + ASK_NS {
            return Vec::new();
        }
        self.asked_ns = now;
        self.queues.keys().copied().collect()
    }

    /// Drops the datagrams that wait for a socket that was closed.
    pub(super) fn give_up(&mut self, port: u16) {
        if let Some(queue) = self.queues.remove(&port) {
            self.bytes -= queue.bytes;
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        let is_due = self.queues.values().any(|queue| queue.is_due);
        let again = is_due.then_some(self.sent_ns + AGAIN_NS);
        let ask = (!self.queues.is_empty()).then_some(self.asked_ns + ASK_NS);
        again.into_iter().chain(ask).min()
    }
}

/// Bytes that a datagram takes of a receive buffer.
fn size_of(frame: &Waiting) -> usize {
    charge_of(frame.1.len().saturating_sub(HEADERS)) as usize
}

/// The outcome of a datagram that is sent off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    NoRoom,
    NobodyServes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_datagrams_leave_in_order_and_wait_for_room() {
        let mut unread = Unread::default();
        for byte in 1..=3 {
            unread.hold(53, 10_000, (0, vec![byte]), 0);
        }
        let mut sent = Vec::new();
        unread.send(53, 5, |frame| {
            if sent.len() == 2 {
                return Taken::NoRoom;
            }
            sent.push(frame.1[0]);
            Taken::Yes
        });
        assert!(unread.due(5).is_empty());
        assert_eq!(unread.due(5 + AGAIN_NS), [53]);
        unread.send(53, 6, |frame| {
            sent.push(frame.1[0]);
            Taken::Yes
        });
        assert_eq!(sent, [1, 2, 3]);
        assert_eq!((unread.bytes, unread.next_deadline()), (0, None));
    }

    #[test]
    fn receive_buffers_and_all_waiting_data_are_bounded() {
        let mut unread = Unread::default();
        for _ in 0..1000 {
            unread.hold(53, 10_000, (0, vec![0; 424]), 0);
        }
        assert_eq!(unread.queues[&53].frames.len(), 7);
        assert_eq!(unread.lost, 993);
        for port in 1000..10_000 {
            unread.hold(port, 10_000, (0, vec![0; 10_000]), 0);
        }
        assert!(unread.bytes <= BYTES_MAX);
        for port in unread.ports_to_ask(ASK_NS) {
            unread.give_up(port);
        }
        assert_eq!((unread.bytes, unread.next_deadline()), (0, None));
    }
}
