//! Datagram sockets that wait to send: for the next turn, or for room at the device.

use std::collections::VecDeque;

use slipstack_device::datagram_cost;
use slipstack_stack::Instant;

use crate::client::ClientId;
use crate::owners::Owner;

/// Time after which a device without room is asked again; twice as long the next time.
const PAUSE_NS: u64 = 200_000;
/// Longest of these times.
const PAUSE_NS_MAX: u64 = 2_000_000;

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Each sends in its turn. An entry of a socket that is not marked
    /// ([`crate::client::Socket::waits_to_send`]) is out of date.
    sockets: VecDeque<Owner>,
    /// Cost of the datagrams that may leave before the device is asked again; the last one may need
    /// more, as on the kernel.
    room: i64,
    /// Value of `room` when the device was asked.
    granted: i64,
    /// The last datagram was admitted without room.
    is_admitted: bool,
    /// Time at which it is asked again, as it has no room.
    asked_at: Option<Instant>,
    pause_ns: u64,
}

impl Waiting {
    /// Takes the room of a datagram with a payload of `len` bytes, if there is any.
    #[inline]
    pub(crate) fn take_room(&mut self, len: usize) -> bool {
        if self.room <= 0 {
            return false;
        }
        // Payloads are at most 64 KiB long.
        self.room -= datagram_cost(len) as i64;
        true
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Returns the room that is left when a socket has used up its quantum.
    pub(crate) fn room_after(&self, quantum: i64) -> i64 {
        self.room.saturating_sub(quantum)
    }

    /// Returns whether that much room or less is left.
    #[inline]
    pub(crate) fn is_down_to(&self, room: i64) -> bool {
        self.room <= room
    }

    /// The next datagram needs no room.
    pub(crate) fn admit_one(&mut self) {
        self.give_back();
        self.granted += 1 - self.room;
        self.room = 1;
        self.is_admitted = true;
    }

    /// The datagram that was admitted without room has taken none of the device's.
    fn give_back(&mut self) {
        if core::mem::take(&mut self.is_admitted) {
            self.granted += self.room - 1;
        }
    }

    /// Returns whether the device is to be asked for room.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.room <= 0 && self.asked_at.is_none_or(|at| at <= now)
    }

    /// Cost of the datagrams that have left since the device was asked.
    pub(crate) fn taken(&mut self) -> u64 {
        self.give_back();
        self.granted.abs_diff(self.room)
    }

    /// Records the device's answer.
    pub(crate) fn on_answer(&mut self, now: Instant, room: u64) {
        self.room = i64::try_from(room).unwrap_or(i64::MAX);
        self.granted = self.room;
        self.pause_ns = match room {
            0 => (2 * self.pause_ns).clamp(PAUSE_NS, PAUSE_NS_MAX),
            _ => 0,
        };
        self.asked_at = (room == 0).then_some(Instant(now.0 + self.pause_ns));
    }

    /// Another device is there, which has not been asked yet.
    pub(crate) fn on_other_device(&mut self) {
        let sockets = core::mem::take(&mut self.sockets);
        *self = Waiting {
            sockets,
            ..Waiting::default()
        };
    }

    /// All may leave: the engine ends.
    pub(crate) fn let_all_go(&mut self) {
        (self.room, self.granted, self.asked_at) = (i64::MAX, i64::MAX, None);
        self.is_admitted = false;
    }

    pub(crate) fn push(&mut self, owner: Owner) {
        self.sockets.push_back(owner);
    }

    pub(crate) fn pop(&mut self) -> Option<Owner> {
        self.sockets.pop_front()
    }

    /// The sockets of a client are gone.
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        self.sockets.retain(|owner| owner.client != client);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Returns whether sockets may send in a turn that runs now.
    pub(crate) fn has_work(&self) -> bool {
        !self.sockets.is_empty() && self.asked_at.is_none()
    }

    /// Returns when sockets that wait for room look for it.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.asked_at.filter(|_| !self.sockets.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_room_is_asked_less_and_less_often() {
        let mut waiting = Waiting::default();
        assert!(waiting.is_due(Instant(5)) && !waiting.take_room(1));
        waiting.on_answer(Instant(5), 0);
        assert!(!waiting.is_due(Instant(4 + PAUSE_NS)) && waiting.is_due(Instant(5 + PAUSE_NS)));
        for _ in 0..9 {
            waiting.on_answer(Instant(5), 0);
        }
        assert!(waiting.is_due(Instant(5 + PAUSE_NS_MAX)));
        assert_eq!(waiting.next_deadline(), None, "no socket waits");
    }

    #[test]
    fn a_datagram_that_needs_no_room_takes_none() {
        let mut waiting = Waiting::default();
        waiting.on_answer(Instant(0), 1);
        assert!(waiting.take_room(1000));
        for _ in 0..3 {
            waiting.admit_one();
            assert!(waiting.take_room(500) && !waiting.has_room());
        }
        assert_eq!(waiting.taken(), datagram_cost(1000));
    }

    #[test]
    fn the_last_datagram_may_need_more_room_than_there_is() {
        let mut waiting = Waiting::default();
        waiting.on_answer(Instant(0), 1);
        assert!(waiting.take_room(1000));
        assert_eq!(waiting.taken(), datagram_cost(1000));
        assert!(!waiting.has_room() && !waiting.take_room(0));
    }
}
