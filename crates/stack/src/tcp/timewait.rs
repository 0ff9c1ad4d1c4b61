//! TIME-WAIT: the remaining state of a connection that this side closed first.
//!
//! RFC 9293 3.6.1 and 3.10.7.4, RFC 1337 (no assassination by RST), RFC 6191 (reuse by timestamps),
//! RFC 7323 5.3.

mod image;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::connection::Connection;
use super::flow::FlowKey;
use super::output::emit::{self, BareAck};
use super::segment::Segment;
use super::slab::Slab;
use super::{isn, seq};
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::time::Instant;
pub use image::TimeWaitImage;
use slipstack_wire::tcp_options::Timestamps;

/// Places in the queue that may belong to nothing any more, besides one for each entry.
const STALE_MAX: usize = 1024;
/// Expiry is kept in units of 2²⁰ ns.
const UNIT_SHIFT: u32 = 20;
/// Bytes that a copy of a connection is behind its end, at most. The numbers of another connection
/// are rarely that close below in both directions, even if they are random.
const COPY_AGE_MAX: u32 = 1 << 26;

#[derive(Clone, Debug)]
pub struct TimeWait {
    pub key: FlowKey,
    snd_nxt: u32,
    rcv_nxt: u32,
    ts_recent: u32,
    ts_offset: u32,
    expires: u32,
    window: u16,
    has_timestamps: bool,
    /// The next flush sends the ACK of the peer's FIN.
    pub is_owed: bool,
}

const _: () = assert!(core::mem::size_of::<TimeWait>() <= 64);

/// The effect of a segment on the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ignore,
    /// Answer with an ACK.
    Acknowledge,
    /// Answer with an ACK, and start 2 MSL again (a retransmitted FIN).
    Restart,
    /// A new SYN that cannot be an old one: the entry goes, a listener may have it.
    Reopen,
}

impl TimeWait {
    pub fn of(conn: &Connection, expires: Instant) -> TimeWait {
        TimeWait {
            key: conn.key,
            snd_nxt: conn.wire_seq(conn.snd.nxt),
            rcv_nxt: conn.wire_ack(conn.rcv.nxt),
            ts_recent: conn.rcv.ts_recent,
            ts_offset: conn.opts.ts_offset,
            expires: unit(expires),
            window: (conn.rcv.window() >> conn.rcv.shift).min(0xffff) as u16,
            has_timestamps: conn.opts.has_timestamps,
            is_owed: false,
        }
    }

    pub fn on_segment(&self, segment: &Segment<'_>) -> Outcome {
        // RFC 1337 3: RSTs are ignored in TIME-WAIT.
        if segment.flags.is_rst() {
            return Outcome::Ignore;
        }
        let stamp = segment.timestamps().filter(|_| self.has_timestamps);
        let is_old = stamp.is_some_and(|t| seq::is_older(t.value, self.ts_recent));
        if segment.flags.is_syn() && !segment.flags.is_ack() {
            // RFC 6191 2, RFC 1122 4.2.2.13: a later timestamp, or a number beyond the old
            // connection's.
            let is_later = stamp.is_some_and(|t| seq::is_older(self.ts_recent, t.value));
            let is_beyond = seq::is_older(self.rcv_nxt, segment.seq);
            return if is_later || (is_beyond && !is_old) {
                Outcome::Reopen
            } else {
                Outcome::Acknowledge
            };
        }
        if is_old {
            return Outcome::Acknowledge;
        }
        if segment.flags.is_fin() {
            return Outcome::Restart;
        }
        // RFC 9293 3.10.7.4 (first): out of window or with text, an ACK; a plain ACK of our FIN
        // nothing.
        if segment.len() > 0 || segment.seq != self.rcv_nxt {
            Outcome::Acknowledge
        } else {
            Outcome::Ignore
        }
    }

    pub fn is_reopened_by(&self, segment: &Segment<'_>) -> bool {
        self.on_segment(segment) == Outcome::Reopen
    }

    /// Returns whether this is from a later connection of the same two ends, which another engine
    /// has: its numbers are beyond everything that either side of this one has sent. A SYN is
    /// handled separately, and a segment with neither ACK nor RST belongs to no connection.
    pub fn is_outlived_by(&self, segment: &Segment<'_>) -> bool {
        let stamp = segment.timestamps().filter(|_| self.has_timestamps);
        let is_old = stamp.is_some_and(|t| seq::is_older(t.value, self.ts_recent));
        let is_beyond = seq::is_older(self.rcv_nxt, segment.seq);
        let acks_beyond = segment.flags.is_ack() && seq::is_older(self.snd_nxt, segment.ack);
        let is_anyones = segment.flags.is_ack() || segment.flags.is_rst();
        is_anyones && !segment.flags.is_syn() && !is_old && (is_beyond || acks_beyond)
    }

    /// Returns whether these are of this connection before it ended: the next numbers of both
    /// directions, and TS.Recent.
    pub fn covers(&self, snd_nxt: u32, rcv_nxt: u32, ts_recent: Option<u32>) -> bool {
        let stamp = ts_recent.filter(|_| self.has_timestamps);
        let is_before = |end: u32, number: u32| end.wrapping_sub(number) < COPY_AGE_MAX;
        is_before(self.snd_nxt, snd_nxt)
            && is_before(self.rcv_nxt, rcv_nxt)
            && !stamp.is_some_and(|stamp| seq::is_older(self.ts_recent, stamp))
    }

    /// A bare ACK that the peer sent before its FIN.
    pub fn was_before_end(&self, segment: &Segment<'_>) -> bool {
        segment.len() == 0 && seq::is_older(segment.seq, self.rcv_nxt)
    }

    pub fn ack(&self, now: Instant) -> BareAck {
        BareAck {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            window: self.window,
            timestamps: self.has_timestamps.then(|| Timestamps {
                value: isn::timestamp(now, self.ts_offset),
                echo: self.ts_recent,
            }),
        }
    }

    /// RFC 6191 2 seen from the side that opens: after a second our timestamps are surely later.
    pub fn may_reuse(&self, now: Instant, time_wait: u64) -> bool {
        let created = self.expires.wrapping_sub((time_wait >> UNIT_SHIFT) as u32);
        self.has_timestamps && unit(now).wrapping_sub(created) > 1024
    }

    /// Rest of its time, in units of expiry.
    fn units_left(&self, now: Instant) -> i32 {
        self.expires.wrapping_sub(unit(now)).cast_signed()
    }

    /// An initial number beyond everything that the old connection sent (RFC 9293 3.6.1, RFC 6191
    /// 2).
    pub fn next_initial(&self) -> u32 {
        self.snd_nxt.wrapping_add(0x1_0000)
    }
}

fn unit(at: Instant) -> u32 {
    (at.0 >> UNIT_SHIFT) as u32
}

/// The deadline of an entry; its index and generation.
type WaitEnd = (Instant, u32, u32);

/// The stack's own entries are in one queue, because they wait equally long. Adopted ones have
/// remaining times of their own and come from as many engines as end: a heap, which costs the
/// stack's own entries nothing.
#[derive(Debug)]
pub struct TimeWaits {
    pub entries: Slab<TimeWait>,
    /// Entries that were evicted early, kept until their time or until there are too many.
    waiting: VecDeque<WaitEnd>,
    adopted: BinaryHeap<Reverse<WaitEnd>>,
    /// The first deadline, for the check at every turn.
    next: Instant,
    /// Entries that have begun, begun again or ended; `None`: nobody asks.
    changes: Option<Vec<u32>>,
}

impl TimeWaits {
    pub fn new(limit: u32) -> TimeWaits {
        TimeWaits {
            entries: Slab::new(limit),
            waiting: VecDeque::new(),
            adopted: BinaryHeap::new(),
            next: Instant::FAR_FUTURE,
            changes: None,
        }
    }

    /// From now on changes are noted for [`TimeWaits::next_change`].
    pub fn note_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Whether [`TimeWaits::next_change`] has one.
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|it| !it.is_empty())
    }

    /// The index of an entry that has changed since.
    #[inline]
    pub fn next_change(&mut self) -> Option<u32> {
        self.changes.as_mut()?.pop()
    }

    #[inline]
    fn note(&mut self, index: u32) {
        if let Some(changes) = &mut self.changes {
            changes.push(index);
        }
    }

    /// `None`: full; the connection ends without TIME-WAIT (Linux does the same beyond
    /// tcp_max_tw_buckets).
    pub fn insert(&mut self, entry: TimeWait, until: Instant) -> Option<u32> {
        let (index, generation) = self.entries.insert(entry)?;
        self.waiting.push_back((until, index, generation));
        self.next = self.next.min(until);
        self.note(index);
        Some(index)
    }

    /// Inserts an entry that began to wait in another stack.
    fn insert_adopted(&mut self, entry: TimeWait, until: Instant) -> Option<u32> {
        let (index, generation) = self.entries.insert(entry)?;
        self.adopted.push(Reverse((until, index, generation)));
        self.next = self.next.min(until);
        self.note(index);
        Some(index)
    }

    /// An entry goes, at its time or before.
    pub fn remove(&mut self, index: u32) {
        self.entries.remove(index);
        self.note(index);
        if self.waiting.len() + self.adopted.len() > 2 * self.entries.len() + STALE_MAX {
            let entries = &self.entries;
            let lives =
                |&(_, index, generation): &WaitEnd| entries.find(index, generation).is_some();
            self.waiting.retain(lives);
            self.adopted.retain(|Reverse(place)| lives(place));
        }
    }

    /// Sends the ACK that an entry owes; the entry may have been freed since, and its index reused.
    #[inline]
    pub fn answer_owed(
        &mut self,
        index: u32,
        now: Instant,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if let Some(entry) = self.entries.at_mut(index)
            && entry.is_owed
        {
            entry.is_owed = false;
            emit::bare_ack(&entry.key, now, &entry.ack(now), &mut None, cx, fx);
        }
    }

    pub fn restart(&mut self, index: u32, until: Instant) {
        if let Some(entry) = self.entries.at_mut(index) {
            entry.expires = unit(until);
            self.note(index);
        }
    }

    /// Removes an expired entry. One that was restarted goes to the end of the queue.
    pub fn pop_due(&mut self, now: Instant, time_wait: u64) -> Option<u32> {
        while let Some((until, is_adopted)) = self.first() {
            self.next = until;
            if until > now {
                return None;
            }
            let place = match is_adopted {
                true => self.adopted.pop().map(|Reverse(place)| place),
                false => self.waiting.pop_front(),
            };
            let Some((_, index, generation)) = place else {
                continue;
            };
            let Some(entry) = self.entries.find(index, generation) else {
                continue;
            };
            if entry.units_left(now) > 0 {
                let later = now.plus_nanos(time_wait);
                self.waiting.push_back((later, index, generation));
                continue;
            }
            return Some(index);
        }
        self.next = Instant::FAR_FUTURE;
        None
    }

    /// The earliest time to look, and whether it is an adopted entry's.
    fn first(&self) -> Option<(Instant, bool)> {
        let own = self.waiting.front().map(|place| (place.0, false));
        let adopted = self.adopted.peek().map(|Reverse(place)| (place.0, true));
        own.into_iter().chain(adopted).min()
    }

    /// May be earlier than the first deadline; `FAR_FUTURE` = no entry.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.next
    }

    /// The time to wake up for: entries that end in the same 0.13 s of the clock end in one turn.
    #[inline]
    pub fn wake_at(&self) -> Instant {
        const TOGETHER_NS: u64 = 1 << 27;
        Instant(self.next.0 | (TOGETHER_NS - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    const MINUTE: u64 = 60_000_000_000;

    fn entry(until: Instant) -> TimeWait {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        TimeWait {
            key: FlowKey::new(ip, 80, ip, 40_000),
            snd_nxt: 1,
            rcv_nxt: 1,
            ts_recent: 0,
            ts_offset: 0,
            expires: unit(until),
            window: 0,
            has_timestamps: false,
            is_owed: false,
        }
    }

    #[test]
    fn connections_that_reopen_at_any_rate_take_no_more_room() {
        let mut waits = TimeWaits::new(8);
        for n in 0..100_000 {
            let until = Instant(n).plus_nanos(MINUTE);
            assert_eq!(waits.insert(entry(until), until), Some(0));
            assert!(waits.waiting.len() <= STALE_MAX + 4);
            waits.remove(0);
        }
    }

    #[test]
    fn reused_endpoints_leave_no_stale_entries() {
        let mut waits = TimeWaits::new(8);
        for second in 0..600 {
            let now = Instant(second * 1_000_000_000);
            assert_eq!(waits.pop_due(now, MINUTE), None);
            if second > 0 {
                waits.remove(0);
            }
            let until = now.plus_nanos(MINUTE);
            assert_eq!(waits.insert(entry(until), until), Some(0));
            assert!(waits.waiting.len() <= 61, "{}", waits.waiting.len());
        }
    }

    #[test]
    fn replaced_time_wait_entries_free_their_memory() {
        let mut waits = TimeWaits::new(8);
        for n in 0..100_000 {
            let until = Instant(n).plus_nanos(MINUTE - n);
            assert_eq!(waits.insert_adopted(entry(until), until), Some(0));
            assert!(waits.adopted.len() <= STALE_MAX + 4);
            waits.remove(0);
        }
    }

    #[test]
    fn changes_are_noted_once_somebody_asks_for_them() {
        let mut waits = TimeWaits::new(8);
        let add = |waits: &mut TimeWaits| waits.insert(entry(Instant(MINUTE)), Instant(MINUTE));
        assert_eq!(add(&mut waits), Some(0));
        assert_eq!(waits.next_change(), None);
        waits.note_changes();
        assert_eq!(add(&mut waits), Some(1));
        assert_eq!((waits.next_change(), waits.next_change()), (Some(1), None));
        waits.restart(0, Instant(2 * MINUTE));
        assert_eq!((waits.next_change(), waits.next_change()), (Some(0), None));
        waits.remove(1);
        assert_eq!((waits.next_change(), waits.next_change()), (Some(1), None));
    }

    #[test]
    fn an_adopted_entry_expires_independently_of_others() {
        let mut waits = TimeWaits::new(8);
        let second = |s: u64| Instant(s * 1_000_000_000);
        let own = |waits: &mut TimeWaits, s| waits.insert(entry(second(s)), second(s));
        let adopted = |waits: &mut TimeWaits, s| waits.insert_adopted(entry(second(s)), second(s));
        own(&mut waits, 60);
        adopted(&mut waits, 50);
        adopted(&mut waits, 70);
        adopted(&mut waits, 10);
        assert_eq!(waits.next_deadline(), second(10));
        assert!((second(10)..second(10).plus_nanos(140_000_000)).contains(&waits.wake_at()));
        for (at, due) in [
            (9, None),
            (10, Some(3)),
            (49, None),
            (50, Some(1)),
            (60, Some(0)),
            (61, None),
            (70, Some(2)),
        ] {
            assert_eq!(waits.pop_due(second(at), MINUTE), due, "at {at} s");
            if let Some(index) = due {
                waits.remove(index);
            }
        }
        assert_eq!(waits.pop_due(second(71), MINUTE), None);
        assert_eq!(waits.next_deadline(), Instant::FAR_FUTURE);
        assert_eq!(waits.wake_at(), Instant::FAR_FUTURE);
    }
}
