//! The search for the largest packet that the path takes, without help of its routers (RFC 4821,
//! RFC 8899).
//!
//! Probes are segments of queued data, larger than the MSS (RFC 4821 7.3, RFC 8899 4.1 and 5.3.2),
//! halfway between the largest size that arrives and the smallest that does not. Enough data
//! follows that fast recovery finds a lost probe (RFC 4821 7.4), and the loss of the probe alone is
//! no sign of congestion (RFC 4821 7.6.2). A size that arrives becomes the MSS; one that does not
//! is the new upper bound. As on Linux (tcp_mtu_probe) the search ends when the bounds are close,
//! and begins again after a while (RFC 8899 5.1.1).
//!
//! ICMP errors bound the search from above (RFC 8899 4.6.2; [`super::pmtud`]). It needs SACK, which
//! tells a lost probe from other losses (RFC 4821 6.1).

pub mod search;

use search::Search;

use super::assembler::Range;
use super::connection::Connection;
use super::sizes;
use crate::config::MtuProbing;
use crate::counters::Counter;
use crate::network_layer::Cx;
use crate::path_mtu;
use crate::time::{Instant, nanos};

/// Bounds closer than this are the same (Linux: `tcp_probe_threshold`).
const CLOSE: u16 = 8;
/// Smallest window in segments (Linux: tcp_mtu_probe): a lost probe must leave room for the
/// segments that reveal the loss.
const CWND_MIN: u32 = 11;
/// Segments that follow a probe at once: as many as loss detection needs, and one.
const FOLLOWERS: u64 = 4;

/// The sender's next step.
pub enum Step {
    Nothing,
    /// A probe is due as soon as the congestion window has room.
    AwaitCongestion,
    /// Wait until the peer's window has room for a probe.
    AwaitWindow,
    /// The next new segment has this payload.
    Probe(u16),
}

/// Begins at the base size, where every connection does so (RFC 4821 7.2; Linux: `tcp_mtu_probing`
/// 2). The peer's MSS is known, and nothing has been sent.
#[cold]
pub fn start_low(conn: &mut Connection, cx: &Cx<'_>) {
    let high = conn.mtu.min(agreed(conn));
    begin(conn, conn.rcv.last_at, high);
    conn.mtu = high.min(base_mtu(conn, cx));
}

/// The MTU of packets with the base MSS.
pub fn base_mtu(conn: &Connection, cx: &Cx<'_>) -> u16 {
    let base = cx.config.tcp.mtu_base_mss;
    base.saturating_add(sizes::headers(&conn.key))
}

/// Searches for larger packets from now on, up to `high`.
pub fn begin(conn: &mut Connection, now: Instant, high: u16) {
    conn.kept.get_or_insert_default().search = Some(Search::new(now, high));
}

/// Pauses the search because an ICMP error has given the path MTU: for a while nothing larger is
/// tried (RFC 1191 6.3, RFC 8201 4).
#[cold]
pub fn rest(conn: &mut Connection, now: Instant) {
    begin(conn, now, conn.mtu);
}

fn search(conn: &mut Connection) -> Option<&mut Search> {
    conn.kept.as_mut()?.search.as_mut()
}

/// Handles an ICMP error with a smaller MTU. Returns `Some` if the probe did not fit, and is to be
/// sent again.
#[cold]
pub fn on_too_big(conn: &mut Connection, mtu: u16) -> Option<Range> {
    let low = conn.mtu;
    search(conn)?.on_too_big(mtu, low)
}

/// Returns the step to take before the next new segment.
#[cold]
pub fn next(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>) -> Step {
    settle(conn, cx);
    let low = conn.mtu;
    let Some(search) = search(conn) else {
        return Step::Nothing;
    };
    if search.is_probing() {
        return Step::Nothing;
    }
    let (high, since) = (search.high(), search.since());
    if cx.config.tcp.mtu_probing == MtuProbing::Off {
        if now.nanos_since(since) >= path_mtu::EXPIRES_NS {
            raise(conn, now, cx);
        }
        return Step::Nothing;
    }
    if !may_probe(conn) {
        return Step::Nothing;
    }
    if high < low.saturating_add(CLOSE) {
        if now.nanos_since(since) >= nanos(cx.config.tcp.mtu_probe_interval) {
            // RFC 8899 5.1.1 (PMTU_RAISE_TIMER): the path may take more by now.
            begin(conn, now, ceiling(conn, now, cx));
        }
        return Step::Nothing;
    }
    let overhead = low - conn.snd.mss;
    let len = low + (high - low).div_ceil(2) - overhead;
    let mss = u64::from(conn.snd.mss);
    let needed = u64::from(len) + FOLLOWERS * mss;
    let snd = &conn.snd;
    if snd.written.saturating_sub(snd.nxt) < needed || u64::from(snd.wnd) < needed {
        return Step::Nothing;
    }
    // Segments in flight will make room.
    let in_flight = conn.in_flight();
    if snd.edge < snd.nxt + needed {
        return if in_flight == 0 {
            Step::Nothing
        } else {
            Step::AwaitWindow
        };
    }
    let room = u64::from(conn.cc.window.cwnd).saturating_sub(in_flight);
    if room < u64::from(len) + mss {
        return if in_flight == 0 {
            Step::Nothing
        } else {
            Step::AwaitCongestion
        };
    }
    Step::Probe(len)
}

/// RFC 1191 6.3, RFC 8201 4: the MTU of an ICMP error expires after a while; a connection that does
/// not probe then tries the link's MTU with all segments (as Linux does).
#[cold]
fn raise(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>) {
    let mtu = ceiling(conn, now, cx);
    if mtu <= conn.mtu {
        // Another connection has got an error meanwhile.
        begin(conn, now, conn.mtu);
        return;
    }
    if let Some(kept) = conn.kept.as_mut() {
        kept.search = None;
    }
    cx.counters.bump(Counter::TcpMtuRaised);
    conn.mtu = mtu;
    conn.set_mss();
}

/// The link takes more than it did.
#[cold]
pub fn on_wider_link(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>) {
    if cx.config.tcp.mtu_probing == MtuProbing::Always {
        begin(conn, now, ceiling(conn, now, cx));
    } else {
        raise(conn, now, cx);
    }
}

/// Nothing is lost or suspect, and the answer to a probe will be understood.
fn may_probe(conn: &Connection) -> bool {
    conn.opts.has_sack
        && conn.opts.manner.may_search()
        && conn.rcv.assembler.is_none()
        && conn.cc.window.cwnd >= CWND_MIN.saturating_mul(conn.snd.mss.into())
        && conn
            .flight
            .as_deref()
            .is_none_or(|flight| flight.recovery.is_open() && flight.board.is_clean())
}

/// The largest packet that link, peer and ICMP errors allow.
pub fn ceiling(conn: &Connection, now: Instant, cx: &Cx<'_>) -> u16 {
    let choice = cx.net.choices.find(conn.choice);
    let path = cx.net.find_path_by(now, &conn.key.query().by(choice));
    let allowed = path.map_or(conn.mtu, |path| path.mtu);
    allowed.min(agreed(conn))
}

/// The largest packet of the handshake's segment sizes.
fn agreed(conn: &Connection) -> u16 {
    let mss = conn.snd.peer_mss.min(conn.opts.mss_max);
    mss.saturating_add(sizes::headers(&conn.key))
}

/// RFC 4821 7.5: the probe has left as bytes from `start` on.
pub fn on_sent(conn: &mut Connection, start: u64, len: u16, cx: &mut Cx<'_>) {
    let mtu = conn.mtu - conn.snd.mss + len;
    let range = Range {
        start,
        end: start + u64::from(len),
    };
    if let Some(search) = search(conn) {
        search.on_sent(range, mtu);
        cx.counters.bump(Counter::TxTcpMtuProbes);
    }
}

/// Takes the MTU of a probe that got through.
fn settle(conn: &mut Connection, cx: &mut Cx<'_>) {
    let una = conn.snd.una;
    let Some(search) = search(conn) else {
        return;
    };
    if let Some(mtu) = search.take_arrived(una)
        && mtu > conn.mtu
    {
        cx.counters.bump(Counter::TcpMtuRaised);
        conn.mtu = mtu;
        conn.set_mss();
    }
}

/// Handles bytes that are retransmitted in smaller packets: their acknowledgement does not concern
/// the probe (RFC 4821 7.6.4; Linux: __tcp_retransmit_skb).
#[inline]
pub fn on_resent(conn: &mut Connection, range: Range) {
    if conn.kept.is_some() {
        forget_probe(conn, range);
    }
}

#[cold]
fn forget_probe(conn: &mut Connection, resent: Range) {
    if let Some(search) = search(conn) {
        search.on_resent(resent);
    }
}

/// Something counts as lost. `true`: nothing but the probe, so that the window stays (RFC 4821
/// 7.6.2).
#[inline]
pub fn explains_loss(conn: &mut Connection) -> bool {
    conn.kept.is_some() && take_loss(conn)
}

#[cold]
fn take_loss(conn: &mut Connection) -> bool {
    let una = conn.snd.una;
    let (first, lost) = match conn.flight.as_deref_mut() {
        Some(flight) => (flight.board.find_lost(1), flight.board.lost_bytes()),
        None => return false,
    };
    search(conn).is_some_and(|search| search.on_loss(first, lost, una))
}

/// Takes a timeout. Returns whether a probe was in flight.
#[cold]
#[inline(never)]
pub fn on_timeout(conn: &mut Connection) -> bool {
    let una = conn.snd.una;
    search(conn).is_some_and(|search| search.on_timeout(una))
}
