//! Strays: segments that reached an engine which does not know their flow, and the order in which
//! other engines are tried.
//!
//! The engine that the steering table names comes first, then every other one. A copy of a segment
//! (duplicated on the way, or a repeated ACK) goes to the same engine as the first, as long as that
//! engine has not refused it. When all engines have refused, the segment is answered as for a
//! closed port, unless the port is changing hands. Then its connection may be moving from one
//! engine to another, and the segment waits a moment before it is passed around once more: to the
//! engines to which connections move now, and after every second wait to all. A segment that has
//! waited in vain is dropped, and its peer retransmits it, but a SYN is answered if no process has
//! a listening socket for it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use slipstack_device::{Flow, SlotSet};
use slipstack_stack::RxMeta;

/// Time for which refusals of a segment are remembered: less than the peer's retransmission
/// timeout.
const SEGMENT_NS: u64 = 150_000_000;
/// Time for which a flow is searched for in the directories of the engines.
const FLOW_NS: u64 = 1_000_000_000;
/// Segments and flows that are searched for at a time; beyond it strays that an engine may have are
/// dropped.
const SEARCHES_MAX: usize = 4096;
/// Slots that fit the set of refusals.
const SLOTS: u16 = SlotSet::BITS as u16;
/// Time for which a port counts as changing hands after a listener has left it.
const MOVING_NS: u64 = 2_000_000_000;
/// Shortest time for which a port that was left is known: TIME-WAIT of engines that are set to no
/// other, whatever the keeper's own is.
const LEFT_MIN: Duration = Duration::from_secs(60);
/// Shortest time after which ports that were left long ago are looked for.
const LEFT_SWEEP_NS: u64 = 1_000_000_000;
/// Time for which segments of a killed program's connection wait: longer than the connection does.
const AWAITED_NS: u64 = 3_000_000_000;
/// Segments that wait at most; a further one is dropped.
const HELD_MAX: usize = 4096;
/// The first wait of a segment; each further one is twice as long, so that a segment comes to its
/// connection after no more than twice the time that this one takes to arrive.
const WAIT_NS: u64 = 500_000;
const WAIT_SHIFT: u8 = 1;
/// Waits of a segment: half a second in all.
const WAITS: u8 = 10;
/// All engines are tried after each second wait, because the connection may have moved to an engine
/// that the steering table does not name, and after the last.
const WAITS_FOR_ALL: u8 = 2;

/// A segment that waits for its connection, unchanged.
#[derive(Debug)]
pub(super) struct WaitingSegment {
    pub(super) frame: Vec<u8>,
    pub(super) meta: RxMeta,
    pub(super) port: u16,
    pub(super) waits: u8,
    due: u64,
}

/// The engines that may own the flow of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The slot that the tables name for the flow.
    pub(super) first: u16,
    /// The slot that gets the port's new connections, and those that change engines.
    pub(super) route: u16,
    /// Whether the other engines may have it too.
    pub(super) is_anyones: bool,
    /// The engine that has just refused it.
    pub(super) origin: Option<u16>,
    /// Number of times that the segment has waited.
    pub(super) waits: u8,
}

impl Asked {
    /// The engines to ask, in this order; one may be there twice. `is_for_all`: of all that there
    /// are.
    fn candidates(self, engines: &[u16], is_for_all: bool) -> impl Iterator<Item = u16> {
        let others = if is_for_all { engines } else { &[] };
        let named = [self.first, self.route].into_iter();
        let all = named.chain(others.iter().copied());
        all.filter(|slot| engines.contains(slot))
    }
}

/// The next step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Slot(u16),
    /// All engines that there are have refused a segment that has waited this often.
    Nobody(u8),
    /// Too many searches are going on to ask another engine, which may have it.
    Unasked(u8),
}

#[derive(Debug, Default)]
pub(super) struct Strays {
    engines: Vec<u16>,
    hasher: RandomState,
    segments: HashMap<u64, Search>,
    /// Time at which each flow was first seen astray.
    flows: HashMap<Flow, u64>,
    /// Ports that change hands, and until when.
    moving: HashMap<u16, u64>,
    left: LeftPorts,
    /// Connections of killed programs that may go on elsewhere, and until when they are awaited.
    awaited: HashMap<Flow, u64>,
    held: VecDeque<WaitingSegment>,
    pub(super) counts: Counts,
}

/// Ports that programs have left, and until when peers may ask for them.
#[derive(Debug, Default)]
struct LeftPorts {
    until: HashMap<u16, u64>,
    swept: u64,
}

impl LeftPorts {
    fn note(&mut self, port: u16, time_wait: Duration, now: u64) {
        if now.saturating_sub(self.swept) >= LEFT_SWEEP_NS {
            self.swept = now;
            self.until.retain(|_, until| *until > now);
        }
        let time_wait = u64::try_from(time_wait.max(LEFT_MIN).as_nanos()).unwrap_or(u64::MAX);
        let until = self.until.entry(port).or_default();
        *until = (*until).max(now.saturating_add(time_wait));
    }

    fn has(&self, port: u16, now: u64) -> bool {
        self.until.get(&port).is_some_and(|until| now < *until)
    }
}

/// Counts of strays, by outcome.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Sent on to an engine.
    pub(super) passed: u64,
    /// Number of waits, and of those without success.
    pub(super) held: u64,
    pub(super) given_up: u64,
    /// Lost for want of room.
    pub(super) lost: u64,
}

#[derive(Clone, Copy, Debug)]
struct Search {
    began: u64,
    /// Slots that have refused since the last wait, a bit for each.
    refused: SlotSet,
    waits: u8,
}

impl Strays {
    pub(super) fn engines(&self) -> &[u16] {
        &self.engines
    }

    pub(super) fn set_engines(&mut self, slots: Vec<u16>) {
        self.engines = slots
            .into_iter()
            .filter(|slot| *slot != 0 && *slot < SLOTS)
            .collect();
    }

    pub(super) fn has_engine(&self, slot: u16) -> bool {
        self.engines.contains(&slot)
    }

    /// The slot to try next for a segment.
    pub(super) fn next(&mut self, flow: Flow, segment: &[u8], asked: Asked, now: u64) -> Next {
        let key = self.hasher.hash_one(segment);
        if self.segments.len() >= SEARCHES_MAX || self.flows.len() >= SEARCHES_MAX {
            self.forget_old(now);
        }
        let is_full = self.segments.len() >= SEARCHES_MAX || self.flows.len() >= SEARCHES_MAX;
        if is_full && !self.segments.contains_key(&key) {
            let mut candidates = asked.candidates(&self.engines, asked.is_anyones);
            return match candidates.all(|slot| asked.origin == Some(slot)) {
                true => Next::Nobody(asked.waits),
                false => Next::Unasked(asked.waits),
            };
        }
        self.flows.entry(flow).or_insert(now);
        let fresh = Search {
            began: now,
            refused: 0,
            waits: asked.waits,
        };
        let search = self.segments.entry(key).or_insert(fresh);
        if now.saturating_sub(search.began) >= SEGMENT_NS || asked.waits > search.waits {
            *search = fresh;
        }
        let refused = asked.origin.filter(|slot| *slot < SLOTS);
        search.refused |= refused.map_or(0, |slot| 1 << slot);
        let is_for_all = search.waits.is_multiple_of(WAITS_FOR_ALL) || search.waits + 1 >= WAITS;
        let mut candidates = asked.candidates(&self.engines, asked.is_anyones && is_for_all);
        match candidates.find(|slot| search.refused & 1 << slot == 0) {
            Some(slot) => Next::Slot(slot),
            None => {
                // A flow that is seen again begins a new round.
                (search.began, search.refused) = (now, 0);
                Next::Nobody(search.waits)
            }
        }
    }

    /// A listener has left this port: its connections may be on their way.
    pub(super) fn note_moving(&mut self, port: u16, now: u64) {
        self.moving.retain(|_, until| *until > now);
        self.moving.insert(port, now + MOVING_NS);
    }

    pub(super) fn is_moving(&self, port: u16, now: u64) -> bool {
        self.moving.get(&port).is_some_and(|until| now < *until)
    }

    /// A program has left this port: an engine may have connections of it in TIME-WAIT, whose peers
    /// may send their FIN again.
    pub(super) fn note_left(&mut self, port: u16, time_wait: Duration, now: u64) {
        self.left.note(port, time_wait, now);
    }

    pub(super) fn is_left(&self, port: u16, now: u64) -> bool {
        self.left.has(port, now)
    }

    /// Notes that a connection waits for a process that may go on with it.
    pub(super) fn note_awaited(&mut self, flow: Flow, now: u64) {
        self.awaited.retain(|_, until| *until > now);
        self.awaited.insert(flow, now + AWAITED_NS);
    }

    pub(super) fn is_awaited(&self, flow: &Flow, now: u64) -> bool {
        self.awaited.get(flow).is_some_and(|until| now < *until)
    }

    /// Returns whether a segment that has waited this often waits no more.
    pub(super) fn is_last_wait(waits: u8) -> bool {
        waits >= WAITS
    }

    /// Lets a segment wait; `waits` is how often it has.
    pub(super) fn hold(&mut self, (frame, meta): (&[u8], RxMeta), port: u16, waits: u8, now: u64) {
        if Self::is_last_wait(waits) {
            self.counts.given_up += 1;
            return;
        }
        if self.held.len() >= HELD_MAX {
            self.counts.lost += 1;
            return;
        }
        self.counts.held += 1;
        self.held.push_back(WaitingSegment {
            frame: frame.to_vec(),
            meta,
            port,
            waits: waits + 1,
            due: now + (WAIT_NS << (WAIT_SHIFT * waits)),
        });
    }

    /// Returns segments that have waited long enough, in the order of arrival.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<WaitingSegment> {
        if self.next_due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.held);
        let (due, waiting): (Vec<WaitingSegment>, Vec<WaitingSegment>) =
            all.into_iter().partition(|held| held.due <= now);
        self.held = waiting.into();
        due
    }

    /// The ports of all segments that wait.
    pub(super) fn held_ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.held.iter().map(|held| held.port)
    }

    /// Makes segments that wait for a listener of this port due, because there is one now.
    pub(super) fn hurry(&mut self, port: u16) {
        for held in self.held.iter_mut().filter(|held| held.port == port) {
            held.due = 0;
        }
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.held.iter().map(|held| held.due).min()
    }

    /// The flows that are searched for now.
    pub(super) fn flows(&mut self, now: u64) -> Vec<Flow> {
        self.forget_old(now);
        self.flows.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    fn forget_old(&mut self, now: u64) {
        self.segments
            .retain(|_, search| now.saturating_sub(search.began) < SEGMENT_NS);
        self.flows
            .retain(|_, began| now.saturating_sub(*began) < FLOW_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_device::Transport;

    fn flow(port: u16) -> Flow {
        let address =
            |port| std::net::SocketAddr::new(std::net::Ipv4Addr::new(10, 0, 0, 5).into(), port);
        Flow {
            proto: Transport::Tcp,
            local: address(80),
            remote: address(port),
        }
    }

    fn asked(first: u16, origin: Option<u16>) -> Asked {
        Asked {
            first,
            route: first,
            is_anyones: true,
            origin,
            waits: 0,
        }
    }

    #[test]
    fn a_search_asks_the_steered_slot_first_and_each_slot_once() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1, 2, 3]);
        let mut next = |segment: &[u8], origin| strays.next(flow(1), segment, asked(2, origin), 0);
        assert_eq!(next(b"a", None), Next::Slot(2));
        assert_eq!(next(b"a", Some(2)), Next::Slot(1));
        assert_eq!(
            next(b"b", None),
            Next::Slot(2),
            "another segment of the flow is searched for by itself"
        );
        assert_eq!(next(b"a", Some(1)), Next::Slot(3));
        assert_eq!(next(b"a", Some(3)), Next::Nobody(0));
    }

    #[test]
    fn a_second_copy_of_a_stray_goes_to_the_engines_that_the_first_went_to() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1, 2]);
        let mut next = |origin| strays.next(flow(1), b"a", asked(2, Some(origin)), 0);
        // Both copies came to the first engine; the second copy follows the first one's decisions.
        assert_eq!([next(1), next(1), next(1)], [Next::Slot(2); 3]);
        assert_eq!(next(2), Next::Nobody(0));
    }

    #[test]
    fn an_engine_that_has_denied_a_segment_is_not_queried_again() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1, 2]);
        let mut next = |origin| strays.next(flow(1), b"a", asked(2, Some(origin)), 0);
        assert_eq!([next(2), next(1)], [Next::Slot(1), Next::Nobody(0)]);
        assert_eq!(
            next(1),
            Next::Slot(2),
            "a search that has ended begins again"
        );
    }

    #[test]
    fn a_stray_search_ends_before_the_peer_sends_again() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1, 2]);
        let mut next = |now| strays.next(flow(1), b"a", asked(1, None), now);
        assert_eq!(next(0), Next::Slot(1));
        assert_eq!(next(SEGMENT_NS), Next::Slot(1));
        assert_eq!(strays.flows(0), [flow(1)]);
        assert!(strays.flows(3 * FLOW_NS).is_empty());
    }

    #[test]
    fn a_stray_beyond_the_limit_of_searches_is_nobodys_only_if_no_other_engine_may_have_it() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1, 2]);
        for at in 0..SEARCHES_MAX {
            let found = strays.next(flow(1), &at.to_ne_bytes(), asked(1, None), 0);
            assert_eq!(found, Next::Slot(1));
        }
        let sole = |origin| Asked {
            is_anyones: false,
            ..asked(1, origin)
        };
        for (ask, wanted) in [
            (asked(1, Some(1)), Next::Unasked(0)),
            (asked(1, None), Next::Unasked(0)),
            (sole(Some(1)), Next::Nobody(0)),
            (sole(Some(2)), Next::Unasked(0)),
        ] {
            assert_eq!(strays.next(flow(2), b"a", ask, 0), wanted, "{ask:?}");
        }
        let known = strays.next(flow(1), &0_usize.to_ne_bytes(), asked(1, Some(1)), 0);
        assert_eq!(known, Next::Slot(2), "a search that has begun goes on");
        strays.set_engines(vec![]);
        assert_eq!(
            strays.next(flow(2), b"a", asked(1, None), 0),
            Next::Nobody(0)
        );
    }

    #[test]
    fn a_search_for_the_engine_of_a_stray_leaves_out_the_keepers_slot() {
        let mut strays = Strays::default();
        strays.set_engines(vec![0, 4]);
        let mut next = |origin| strays.next(flow(1), b"a", asked(0, origin), 0);
        assert_eq!(
            [next(None), next(Some(4))],
            [Next::Slot(4), Next::Nobody(0)]
        );
    }

    #[test]
    fn a_segment_that_every_engine_returned_is_not_held_again() {
        let mut strays = Strays::default();
        strays.set_engines(vec![1, 2, 3]);
        let (mut now, mut origin, mut waits, mut passes) = (0, None, 0, 0);
        loop {
            let ask = Asked {
                waits,
                ..asked(2, origin)
            };
            match strays.next(flow(1), b"a", ask, now) {
                Next::Slot(slot) => {
                    (origin, waits) = (Some(slot), 0);
                    passes += 1;
                }
                Next::Nobody(waited) | Next::Unasked(waited) => {
                    strays.hold((b"a", RxMeta::LOCAL), 80, waited, now);
                    let Some(due) = strays.next_due() else {
                        break;
                    };
                    now = due;
                    let held = strays.take_due(now).pop().unwrap();
                    (origin, waits) = (None, held.waits);
                }
            }
        }
        assert_eq!(strays.counts.given_up, 1);
        // All engines are tried every second time and at last, and in between those that adopt
        // connections.
        assert_eq!(passes, 7 * 3 + u64::from(WAITS) + 1 - 7);
    }

    #[test]
    fn a_port_moves_for_a_while_after_a_listener_has_left() {
        let mut strays = Strays::default();
        assert!(!strays.is_moving(80, 5));
        strays.note_moving(80, 5);
        assert!(strays.is_moving(80, 5) && !strays.is_moving(81, 5));
        assert!(!strays.is_moving(80, 5 + MOVING_NS));
    }

    const MINUTE: Duration = Duration::from_secs(60);
    const MINUTE_NS: u64 = 60_000_000_000;

    #[test]
    fn a_port_that_was_left_is_known_for_the_length_of_time_wait() {
        let mut strays = Strays::default();
        for port in 1..=1000 {
            strays.note_left(port, MINUTE, 5);
        }
        assert!(strays.is_left(80, 4 + MINUTE_NS) && !strays.is_left(80, 5 + MINUTE_NS));
        assert!(!strays.is_left(1001, 5) && !strays.is_moving(80, 5));
        strays.note_left(80, 2 * MINUTE, 5 + MINUTE_NS);
        assert_eq!(strays.left.until.len(), 1);
        // A shorter one counts for the keeper's own connections.
        strays.note_left(80, Duration::ZERO, 5 + MINUTE_NS);
        assert!(strays.is_left(80, 4 + 3 * MINUTE_NS));
        strays.note_left(81, Duration::ZERO, 5);
        assert!(strays.is_left(81, 4 + MINUTE_NS));
    }

    #[test]
    fn a_connection_is_awaited_without_its_port() {
        let mut strays = Strays::default();
        let flow = flow(1);
        strays.note_awaited(flow, 5);
        assert!(strays.is_awaited(&flow, 5) && !strays.is_moving(flow.local.port(), 5));
        assert!(!strays.is_awaited(&flow, 5 + AWAITED_NS));
    }

    #[test]
    fn held_segments_are_due_at_doubled_intervals_and_given_up_in_the_end() {
        let mut strays = Strays::default();
        let mut now = 0;
        strays.hold((b"frame", RxMeta::LOCAL), 80, 0, now);
        let mut rounds = 0;
        while let Some(due) = strays.next_due() {
            assert!(strays.take_due(due - 1).is_empty());
            now = due;
            let held = strays.take_due(now).pop().unwrap();
            assert_eq!(held.port, 80);
            strays.hold((&held.frame, held.meta), 80, held.waits, now);
            rounds += 1;
        }
        assert_eq!((rounds, strays.counts.given_up), (u64::from(WAITS), 1));
        assert!((500_000_000..600_000_000).contains(&now), "{now}");
    }

    #[test]
    fn held_segments_are_due_at_once_when_a_listener_appears() {
        let mut strays = Strays::default();
        strays.hold((b"a", RxMeta::LOCAL), 80, 4, 1);
        strays.hold((b"b", RxMeta::LOCAL), 81, 4, 1);
        strays.hurry(80);
        let due: Vec<u16> = strays.take_due(1).iter().map(|held| held.port).collect();
        assert_eq!(due, [80]);
    }
}
