//! Header prediction: a plain segment of an open IPv4 connection, from the frame to the receive
//! ring in one step.
//!
//! A matching flow replaces the checks of addresses (RFC 1122 3.2.1.3), which passed when the
//! connection was opened. A segment that is not the expected one is left to the full path,
//! unchanged.

use core::net::IpAddr;

use slipstack_wire::checksum;
use slipstack_wire::plain::PlainTcp;
use slipstack_wire::protocol;

use super::Tcp;
use super::arrival::Arrival;
use super::flow::FlowState;
use super::input::fastpath;
use super::latest::{Flow, Latest};
use super::segment::Segment;
use crate::effects::{Absent, Effects, RxChecksum, RxMeta};
use crate::network_layer::Cx;
use crate::time::Instant;

impl Tcp {
    /// `false`: take the long way; nothing has been touched.
    #[inline]
    pub fn take_plain(
        &mut self,
        now: Instant,
        plain: &PlainTcp<'_>,
        meta: RxMeta,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        if meta.checksum == RxChecksum::Unknown
            && !checksum::is_valid_l4_v4(plain.src, plain.dst, protocol::TCP, plain.segment)
        {
            return false;
        }
        let flow = Flow::of(plain);
        let segment = Segment::of_plain(plain, meta.gso);
        if self.latest.flow == flow {
            return self.take_known(now, self.latest.index, &segment, cx, fx);
        }
        self.take_other(now, flow, &segment, cx, fx)
    }

    /// Processes a segment whose payload is still with the device, if it is the next of an open
    /// connection. Returns `false` without any change otherwise.
    pub fn take_absent(
        &mut self,
        now: Instant,
        plain: &PlainTcp<'_>,
        absent: Absent,
        meta: RxMeta,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        let flow = Flow::of(plain);
        if self.latest.flow != flow {
            let key = flow.key();
            match self.find_place(&key, self.hasher.table(&key)) {
                Some(FlowState::Connection(index))
                    if !self.checks_hops && !cx.net.is_own(key.remote_ip()) =>
                {
                    self.latest = Latest { flow, index };
                }
                _ => return false,
            }
        }
        let index = self.latest.index;
        let segment = Segment::of_absent(plain, absent, meta.gso);
        let is_taken = self
            .conns
            .at_mut(index)
            .is_some_and(|conn| fastpath::try_take(conn, now, &segment, cx, fx));
        if is_taken {
            self.enqueue(index);
        }
        is_taken
    }

    #[inline]
    fn take_known(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        let Some(conn) = self.conns.at_mut(index) else {
            return false;
        };
        if fastpath::try_take(conn, now, segment, cx, fx) {
            if segment.is_full(conn.rcv.mss) {
                self.train.note(index);
            }
            self.enqueue(index);
        } else {
            self.on_segment_in_steps(now, index, segment, cx, fx);
        }
        true
    }

    /// Looks up a flow that is not the last one, in any storage.
    #[inline(never)]
    fn take_other(
        &mut self,
        now: Instant,
        flow: Flow,
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        // Our own address as a source is accepted only in looped frames. The full path checks hop
        // limits.
        if self.checks_hops || cx.net.is_own(IpAddr::V4(flow.remote)) {
            return false;
        }
        let key = flow.key();
        let hash = self.hasher.table(&key);
        let place = self.find_place(&key, hash);
        let arrival = Arrival {
            key: &key,
            hash,
            segment,
            // The handshake has its listener.
            link: None,
        };
        match place {
            Some(FlowState::Connection(index)) => {
                self.latest = Latest { flow, index };
                self.take_known(now, index, segment, cx, fx)
            }
            Some(FlowState::Syn(index)) => {
                if self.syns.is_anothers(index, segment) {
                    return false;
                }
                // The handshake may be complete now; the next segment follows soon.
                let opened = self.on_syn_entry_segment(now, index, &arrival, cx, fx);
                if let Some(index) = opened {
                    self.latest = Latest { flow, index };
                }
                true
            }
            Some(FlowState::TimeWait(index)) => {
                // A segment that may belong to a later connection takes the long way, which knows
                // where to send it.
                let entry = self.time_waits.entries.at(index);
                if entry.is_none_or(|entry| entry.is_outlived_by(segment)) {
                    return false;
                }
                // Only a SYN opens it again, and a plain segment is none.
                let _ = self.on_time_wait_segment(now, index, &arrival, cx, fx);
                true
            }
            None => false,
        }
    }
}
