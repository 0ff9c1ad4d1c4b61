//! Connections that have moved to engines of other processes while their frames still arrive here.
//!
//! While a connection is being moved its frames wait here. Once its place is known they are passed
//! on, as are those that arrive until the steering table is updated.

use std::collections::VecDeque;
use std::net::SocketAddr;

use slipstack_stack::Instant;

/// Connections that are remembered; beyond it the oldest is left to the steering.
const FLOWS_MAX: usize = 256;
/// Frames that wait for one; more are lost, as on a wire.
const HELD_MAX: usize = 64;
/// The steering knows by then.
const LIFE_NS: u64 = 5_000_000_000;

/// The two ends of a connection, the local one first.
pub(crate) type Flow = (SocketAddr, SocketAddr);

/// A frame that waits, with its link.
pub(crate) type WaitingFrame = (u16, Vec<u8>);

#[derive(Debug)]
enum Location {
    /// No engine has adopted the connection yet.
    Underway(Vec<WaitingFrame>),
    Slot(u16),
}

#[derive(Debug)]
struct Departure {
    flow: Flow,
    at: Instant,
    place: Location,
}

/// Destination of a frame of a connection that has moved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameRoute {
    /// Frame of a connection that has not moved.
    Unknown,
    /// The frame waits for it.
    Wait,
    Slot(u16),
}

#[derive(Debug, Default)]
pub(crate) struct Departed {
    flows: VecDeque<Departure>,
}

impl Departed {
    /// A connection has left.
    pub(crate) fn begin(&mut self, flow: Flow, now: Instant) {
        let is_old = |it: &Departure| now.0.saturating_sub(it.at.0) >= LIFE_NS;
        while self.flows.len() >= FLOWS_MAX || self.flows.front().is_some_and(is_old) {
            self.flows.pop_front();
        }
        self.flows.retain(|it| it.flow != flow);
        self.flows.push_back(Departure {
            flow,
            at: now,
            place: Location::Underway(Vec::new()),
        });
    }

    /// Returns whether frames of a connection that has left may still arrive here.
    pub(crate) fn is_any(&self, now: Instant) -> bool {
        let is_fresh = |it: &Departure| now.0.saturating_sub(it.at.0) < LIFE_NS;
        self.flows.back().is_some_and(is_fresh)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Destination of a flow's frames.
    pub(crate) fn way(&self, flow: Flow, now: Instant) -> FrameRoute {
        let found = self.flows.iter().find(|it| it.flow == flow);
        let is_fresh = |it: &&Departure| now.0.saturating_sub(it.at.0) < LIFE_NS;
        match found.filter(is_fresh).map(|it| &it.place) {
            None => FrameRoute::Unknown,
            Some(Location::Underway(_)) => FrameRoute::Wait,
            Some(Location::Slot(slot)) => FrameRoute::Slot(*slot),
        }
    }

    /// Keeps a frame of a connection that is under way.
    pub(crate) fn hold(&mut self, flow: Flow, frame: WaitingFrame) {
        let found = self.flows.iter_mut().find(|it| it.flow == flow);
        if let Some(Location::Underway(held)) = found.map(|it| &mut it.place)
            && held.len() < HELD_MAX
        {
            held.push(frame);
        }
    }

    /// Notes that the flow is on the engine of `slot` now; returns the frames that have waited.
    pub(crate) fn arrive(&mut self, flow: Flow, slot: u16) -> Vec<WaitingFrame> {
        let found = self.flows.iter_mut().find(|it| it.flow == flow);
        match found.map(|it| std::mem::replace(&mut it.place, Location::Slot(slot))) {
            Some(Location::Underway(held)) => held,
            Some(Location::Slot(_)) | None => Vec::new(),
        }
    }

    /// Notes that the flow is back here; returns the frames that have waited.
    pub(crate) fn come_back(&mut self, flow: Flow) -> Vec<WaitingFrame> {
        let at = self.flows.iter().position(|it| it.flow == flow);
        match at.and_then(|at| self.flows.remove(at)).map(|it| it.place) {
            Some(Location::Underway(held)) => held,
            Some(Location::Slot(_)) | None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Flow {
        let remote = SocketAddr::from(([10, 0, 0, 2], port));
        ("10.0.0.1:80".parse().unwrap(), remote)
    }

    #[test]
    fn frames_wait_until_it_is_known_where_their_connection_is() {
        let mut departed = Departed::default();
        let now = Instant(1);
        assert_eq!(departed.way(flow(1), now), FrameRoute::Unknown);
        departed.begin(flow(1), now);
        assert_eq!(departed.way(flow(1), now), FrameRoute::Wait);
        departed.hold(flow(1), (5, vec![1]));
        departed.hold(flow(2), (0, vec![2]));
        assert_eq!(departed.arrive(flow(1), 7), [(5, vec![1])]);
        assert_eq!(departed.way(flow(1), now), FrameRoute::Slot(7));
        assert_eq!(
            departed.way(flow(1), Instant(1 + LIFE_NS)),
            FrameRoute::Unknown
        );
        departed.begin(flow(1), now);
        departed.hold(flow(1), (0, vec![3]));
        assert_eq!(departed.come_back(flow(1)), [(0, vec![3])]);
        assert_eq!(departed.way(flow(1), now), FrameRoute::Unknown);
    }

    #[test]
    fn waiting_frames_and_departed_flows_are_bounded() {
        let mut departed = Departed::default();
        for port in 1..=FLOWS_MAX as u16 + 1 {
            departed.begin(flow(port), Instant(1));
        }
        assert_eq!(departed.way(flow(1), Instant(1)), FrameRoute::Unknown);
        for _ in 0..2 * HELD_MAX {
            departed.hold(flow(2), (0, Vec::new()));
        }
        assert_eq!(departed.arrive(flow(2), 1).len(), HELD_MAX);
    }
}
