//! Trains ([`super::train`]) applied to connections.

use super::Tcp;
use super::input::fastpath;
use super::seq;
use super::train::State;
use crate::counters::Counter;
use crate::effects::{Effects, Event, RxMeta};
use crate::network_layer::Cx;
use crate::time::Instant;

impl Tcp {
    /// Opens a train after this frame, whose segment has just been accepted.
    #[inline(never)]
    pub fn open_train(&mut self, frame: &[u8], link: u16) {
        self.train.state = State::Idle;
        if let Some(conn) = self.conns.at(self.train.latest) {
            self.train.open(frame, conn, link);
        }
    }

    /// Returns whether this frame continues the train. `false`: nothing has been touched.
    #[inline]
    pub fn join_train(&mut self, frame: &[u8], meta: RxMeta, fx: &mut impl Effects) -> bool {
        self.train.join(frame, meta, fx)
    }

    /// Processes all joined segments as one.
    #[inline(never)]
    pub fn end_train(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        let Some(train) = self.train.take() else {
            return;
        };
        let index = train.conn.index;
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        if conn.id != train.conn || train.frames == 0 {
            return;
        }
        let is_v4 = train.is_v4();
        let network = if is_v4 {
            Counter::RxIpv4
        } else {
            Counter::RxIpv6
        };
        for what in [Counter::RxTcp, Counter::RxTcpMerged, network] {
            cx.counters.add(what, train.frames);
        }
        cx.counters
            .count_all_in(train.link, train.frames, train.bytes);
        fx.event(Event::Received {
            conn: train.conn,
            upto: seq::offset(train.next),
        });
        conn.segments.on_followers(train.frames as u32);
        fastpath::take_followers(conn, now, train.last, train.next, cx);
        self.enqueue(index);
    }
}
