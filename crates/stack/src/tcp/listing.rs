//! Listing of connections for an operator, and closing of one by an operator.

use alloc::vec::Vec;
use core::net::SocketAddr;

use slipstack_wire::tcp::TcpSegment;

use super::Tcp;
use super::ended::Ended;
use super::flow::{FlowKey, FlowState};
use super::output::control;
use super::phase::Phase;
use super::segment::Segment;
use super::verdict::Verdict;
use crate::bound::Bound;
use crate::effects::{Effects, RxMeta};
use crate::error::Reason;
use crate::ids::{ConnId, ListenerId};
use crate::ip::IpMeta;
use crate::network_layer::Cx;
use crate::time::Instant;

impl Tcp {
    pub fn places(&self) -> usize {
        self.conns.made()
    }

    pub fn connections(&self) -> Vec<ConnId> {
        self.conns.iter().map(|(_, conn)| conn.id).collect()
    }

    /// Own and peer's address of each half-open connection.
    pub fn half_open(&self) -> Vec<(SocketAddr, SocketAddr)> {
        let entries = self.syns.entries.iter();
        entries
            .map(|(_, entry)| (entry.key.local(), entry.key.remote()))
            .collect()
    }

    /// Returns whether a connection, or the TIME-WAIT of one, has this local port at an address
    /// that `bound` takes.
    pub fn has_port(&self, bound: Bound, port: u16) -> bool {
        let is_there = |key: &FlowKey| key.local_port == port && bound.takes(key.local_ip());
        let mut conns = self.conns.iter();
        let mut time_waits = self.time_waits.entries.iter();
        conns.any(|(_, conn)| is_there(&conn.key))
            || time_waits.any(|(_, entry)| is_there(&entry.key))
    }

    /// The connections that have ended, while they are watched.
    pub fn ended(&self) -> &Ended {
        &self.ended
    }

    pub fn ended_mut(&mut self) -> &mut Ended {
        &mut self.ended
    }

    pub fn backlog(&self, id: ListenerId) -> u32 {
        let listener = self.listeners.find(id);
        listener.map_or(0, |listener| listener.options.backlog)
    }

    /// Resets a connection without the consent of either end (Linux: SOCK_DESTROY). Returns `false`
    /// if it is gone.
    pub fn abort(
        &mut self,
        now: Instant,
        id: ConnId,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        let Some(conn) = self.conns.find_mut(id.index, id.generation) else {
            return false;
        };
        if conn.phase != Phase::SynSent {
            control::send_reset(conn, now, cx, fx);
        }
        let verdict = Verdict::Failed(Reason::Aborted);
        self.settle(now, id.index, verdict, cx, fx);
        true
    }

    /// Answers a segment with a reset although a connection here may expect it.
    pub fn refuse_segment(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        bytes: &[u8],
        meta: RxMeta,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(parsed) = TcpSegment::parse(bytes) else {
            return;
        };
        if !self.resets.may_pass(now, cx.rng) {
            return;
        }
        let (src, dst) = (parsed.header.src_port, parsed.header.dst_port);
        let key = FlowKey::new(ip.dst, dst, ip.src, src);
        let segment = Segment::new(&parsed, ip.tos, meta);
        control::answer_with_reset(&key, now, &segment, cx, fx);
    }

    /// Forgets a half-open connection. Returns `false` if there is none.
    pub fn forget_half_open(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        let key = FlowKey::new(local.ip(), local.port(), remote.ip(), remote.port());
        let hash = self.hasher.table(&key);
        match self.find_place(&key, hash) {
            Some(FlowState::Syn(index)) => self.drop_syn(index, hash).is_some(),
            _ => false,
        }
    }
}
