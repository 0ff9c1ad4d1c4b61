//! Connections whose program is away: no answer will come that could carry a delayed ACK.
//!
//! RFC 9293 3.8.6.3 lets an ACK wait for data that could carry it. The keeper and the stand-in,
//! which run the stack in an absent program's place, know that no data will come.

use alloc::vec::Vec;

use super::Tcp;
use super::connection::AckState;
use crate::network_layer::Cx;
use crate::time::{Instant, nanos};

impl Tcp {
    /// Every ACK that waits for an answer is owed at once; the next flush sends it. Returns whether
    /// there was one.
    pub fn hurry_acks(&mut self, now: Instant, cx: &Cx<'_>) -> bool {
        let (mut waiting, mut is_any) = (Vec::new(), false);
        let longest = nanos(cx.config.tcp.delayed_ack);
        self.wheel.find_filed(now.plus_nanos(longest), &mut waiting);
        for index in waiting {
            let Some(conn) = self.conns.at_mut(index) else {
                continue;
            };
            // An ACK that only a read could trigger waits for its own timer.
            if conn.rcv.ack.is_waiting() && conn.rcv.ack != AckState::Due {
                conn.timers.clear_ack();
                conn.owe_ack();
                self.enqueue(index);
                is_any = true;
            }
        }
        is_any
    }
}
