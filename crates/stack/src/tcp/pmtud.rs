//! Errors that the network reports about sent packets: ICMP and unreachable neighbours.
//!
//! RFC 9293 3.9.2.2 (soft errors), RFC 5927 (only errors that quote outstanding data are accepted),
//! RFC 1191, RFC 8201 (path MTU).
//!
//! RFC 9293 3.7.2, RFC 1191 3, RFC 8201 5.4: the sender's side of path MTU discovery. RFC 5927 5.2
//! and 6.2: hard errors do not end a synchronised connection, source quench is ignored, and a lower
//! MTU must concern data in flight.

use alloc::vec::Vec;

use super::Tcp;
use super::connection::Connection;
use super::flow::{FlowKey, FlowState};
use super::mtu_search;
use super::phase::Phase;
use super::seq;
use super::verdict::Verdict;
use crate::config::MtuProbing;
use crate::counters::Counter;
use crate::effects::Effects;
use crate::error::Reason;
use crate::ip::{PathCause, PathError};
use crate::network_layer::Cx;
use crate::options::MtuDiscovery;
use crate::path_mtu;
use crate::time::Instant;

impl Tcp {
    /// A packet of ours did not get through.
    pub fn on_path_error(
        &mut self,
        now: Instant,
        error: &PathError,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let key = FlowKey::new(
            error.local.ip(),
            error.local.port(),
            error.remote.ip(),
            error.remote.port(),
        );
        let Some(FlowState::Connection(index)) = self.find_place(&key, self.hasher.table(&key))
        else {
            return;
        };
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        if !error.trusted && !quotes_outstanding(conn, error.sequence) {
            cx.counters.bump(Counter::DropTcpIcmp);
            return;
        }
        let verdict = match error.cause {
            PathCause::FragmentationNeeded { mtu }
                if !path_mtu::is_possible(conn.key.is_v4(), mtu) =>
            {
                cx.counters.bump(Counter::DropTcpIcmp);
                return;
            }
            PathCause::FragmentationNeeded { mtu } => {
                if heed(conn, mtu, now) {
                    cx.learn_path_mtu(now, error.remote.ip(), mtu);
                }
                Verdict::Alive
            }
            cause => soften(conn, cause),
        };
        self.settle(now, index, verdict, cx, fx);
    }
}

impl Tcp {
    /// RFC 9293 3.7.3: the link's MTU has changed: connections follow, up to the agreed MSS.
    #[cold]
    pub fn on_link_mtu(&mut self, now: Instant, cx: &mut Cx<'_>) {
        let all: Vec<u32> = self.conns.iter().map(|(index, _)| index).collect();
        for index in all {
            if let Some(conn) = self.conns.at_mut(index) {
                follow_link(conn, now, cx);
                self.enqueue(index);
            }
        }
    }
}

/// Follows an ICMP error about the path's MTU as the program has asked for it (IP_MTU_DISCOVER).
/// Returns whether others are to know it. As on Linux (tcp_v4_mtu_reduced(), tcp_v6_err()): over
/// IPv6 it may be ignored; over IPv4 segments to come have that size in any case, those in flight
/// may have been cut on their way and are sent again only if they are lost.
fn heed(conn: &mut Connection, mtu: u16, now: Instant) -> bool {
    let discovery = conn.bounds().mtu_discovery;
    let is_v4 = conn.key.is_v4();
    if !is_v4 && !discovery.learns() {
        return false;
    }
    let before = conn.mtu;
    if is_v4 && (!discovery.learns() || discovery == MtuDiscovery::Dont) {
        if conn.phase.is_synchronized() {
            conn.mtu = before.min(mtu.max(floor(conn)));
            conn.set_mss();
        }
    } else {
        if let Some(range) = mtu_search::on_too_big(conn, mtu)
            && let Some(flight) = conn.flight.as_deref_mut()
        {
            flight.board.mark_one_lost(range);
            conn.is_dirty = true;
        }
        lower_mtu(conn, mtu);
    }
    if conn.mtu < before {
        mtu_search::rest(conn, now);
    }
    true
}

fn follow_link(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>) {
    if !conn.phase.is_synchronized() {
        // The MSS is set when the peer has announced its own.
        let query = conn.key.query().by(cx.net.choices.find(conn.choice));
        let path = cx.net.find_path_by(now, &query);
        conn.mtu = path.map_or(conn.mtu, |path| path.mtu);
        return;
    }
    let mtu = mtu_search::ceiling(conn, now, cx);
    if mtu > conn.mtu {
        mtu_search::on_wider_link(conn, now, cx);
        return;
    }
    if let Some(range) = mtu_search::on_too_big(conn, mtu)
        && let Some(flight) = conn.flight.as_deref_mut()
    {
        flight.board.mark_one_lost(range);
        conn.is_dirty = true;
    }
    if mtu < conn.mtu {
        shrink(conn, mtu);
        mtu_search::rest(conn, now);
    }
}

fn floor(conn: &Connection) -> u16 {
    path_mtu::floor(conn.key.is_v4())
}

/// RFC 5927 4.1: SND.UNA =< SEQ < SND.NXT.
fn quotes_outstanding(conn: &Connection, sequence: Option<u32>) -> bool {
    sequence.is_some_and(|wire| {
        let at = seq::widen(conn.snd.iss, conn.snd.una, wire);
        conn.snd.una <= at && at < conn.snd.nxt
    })
}

/// RFC 9293 3.9.2.2: an error of a connection attempt ends it (as on Linux); later ones are
/// remembered.
fn soften(conn: &mut Connection, cause: PathCause) -> Verdict {
    let reason = match cause {
        PathCause::NetUnreachable => Reason::NetUnreachable,
        PathCause::PortUnreachable | PathCause::ProtocolUnreachable => Reason::Refused,
        _ => Reason::HostUnreachable,
    };
    if conn.phase == Phase::SynSent {
        return Verdict::Failed(reason);
    }
    conn.soft_error = Some(reason);
    Verdict::Alive
}

/// Timeouts of the same data before a smaller packet is tried (Linux: tcp_retries1).
const SILENT_TIMEOUTS: u8 = 3;

/// RFC 4821 7.7, RFC 8899 4.3: large packets are lost without ICMP errors. First the base size,
/// then half of the previous size, down to the minimum; from there [`mtu_search`] probes upwards.
pub fn on_silence(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>) {
    if cx.config.tcp.mtu_probing == MtuProbing::Off
        || conn.backoff.count() < SILENT_TIMEOUTS
        || conn.mtu <= floor(conn)
    {
        return;
    }
    let base = mtu_search::base_mtu(conn, cx);
    let mtu = if conn.mtu > base { base } else { conn.mtu / 2 };
    mtu_search::begin(conn, now, mtu_search::ceiling(conn, now, cx));
    cx.counters.bump(Counter::TcpBlackHoles);
    lower_mtu(conn, mtu);
}

/// RFC 1191 6.4: the MSS follows, and segments that were too large are sent again.
fn lower_mtu(conn: &mut Connection, mtu: u16) {
    let mtu = mtu.max(floor(conn));
    if mtu < conn.mtu && conn.phase.is_synchronized() {
        shrink(conn, mtu);
    }
}

fn shrink(conn: &mut Connection, mtu: u16) {
    conn.mtu = mtu;
    conn.set_mss();
    let mss = u64::from(conn.snd.mss);
    if let Some(flight) = conn.flight.as_deref_mut() {
        flight.board.mark_lost_above(mss);
    }
    conn.is_dirty = true;
}
