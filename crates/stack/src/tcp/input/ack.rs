//! Step five: the ACK field, the window, SACK blocks (RFC 9293 3.10.7.4, RFC 5961 5, RFC 2018, RFC
//! 2883).

use core::time::Duration;

use slipstack_wire::tcp::TcpFlags;

use super::acceptable;
use crate::counters::Counter;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::rate::RateLimit;
use crate::tcp::acknowledged;
use crate::tcp::assembler::Range;
use crate::tcp::connection::Connection;
use crate::tcp::delivery::Sample;
use crate::tcp::establish;
use crate::tcp::establish::sample_echo;
use crate::tcp::figures::Pace;
use crate::tcp::image;
use crate::tcp::in_flight::InFlight;
use crate::tcp::output::control;
use crate::tcp::phase::Phase;
use crate::tcp::recovery;
use crate::tcp::recovery::state::{AckFacts, State};
use crate::tcp::scoreboard::Delivered;
use crate::tcp::segment::Segment;
use crate::tcp::seq::Outstanding;
use crate::tcp::timers::Resend;
use crate::tcp::verdict::Verdict;
use crate::tcp::{isn, keepalive, resend_timer, seq, user_timeout};
use crate::time::{Instant, Tick};

pub enum Outcome {
    Go,
    Drop,
    End(Verdict),
}

#[inline]
pub fn on_ack(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    start: u64,
    challenges: &mut RateLimit,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Outcome {
    let ack = seq::widen(conn.snd.iss, conn.snd.una, segment.ack);
    if conn.phase == Phase::SynReceived {
        if ack <= conn.snd.una || ack > conn.snd.nxt {
            // RFC 9293 3.10.7.4 (fifth): an unacceptable ACK in SYN-RECEIVED gets a reset.
            let key = conn.key;
            cx.counters.bump(Counter::DropTcpAck);
            control::answer_with_reset(&key, now, segment, cx, fx);
            return Outcome::Drop;
        }
        establish::establish(conn, now, segment, cx, fx);
    }
    if is_impossible(conn, ack) && !is_of_own_syn(conn, ack) && !image::foresee(conn, ack, now) {
        cx.counters.bump(Counter::DropTcpAck);
        super::rst_syn::challenge(conn, now, challenges, cx);
        return Outcome::Drop;
    }
    // Only now: a forged segment with a valid sequence number but no valid acknowledgment must not
    // move TS.Recent beyond the peer's clock.
    acceptable::take_timestamp(conn, now, segment, start);
    conn.rcv.last_at = now;
    conn.keep_sent = 0;
    user_timeout::on_segment(conn, segment, cx);
    let was_idle = !conn.has_outstanding();
    let former_window = update_window(conn, segment, start, ack);
    let window_changed = former_window.is_some();
    if former_window == Some(0) && !was_idle && ack == conn.snd.una {
        resend_timer::on_reopened(conn, now, cx);
    }
    if !was_idle {
        let is_duplicate = ack == conn.snd.una
            && segment.payload.is_empty()
            && !segment.flags.is_fin()
            && !window_changed;
        on_outstanding(conn, now, segment, ack, is_duplicate, cx, fx);
    } else if conn.timers.resend() == Some(Resend::Persist) && conn.opts.user_timeout_ms == 0 {
        // A peer that answers probes is alive; a user timeout wants progress, as on Linux.
        conn.stalled_at = Tick::NONE;
    }
    if was_idle {
        if !segment.is_plain {
            on_late_dsack(conn, segment, ack);
        }
        let is_bare = segment.payload.is_empty() && !segment.flags.is_fin() && !window_changed;
        if is_bare && ack == conn.snd.una {
            settle_probe(conn, &AckFacts::bare_duplicate());
        }
    }
    if window_changed {
        conn.is_dirty = true;
        if was_idle && conn.snd.edge > conn.snd.nxt && conn.timers.resend() == Some(Resend::Persist)
        {
            conn.timers.clear_resend();
            conn.backoff.reset();
            conn.stalled_at = Tick::NONE;
        }
    }
    after_ack(conn, now, cx)
}

/// RFC 5961 5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT, else challenge and drop. Nothing
/// before our SYN can have been acknowledged (as on Linux).
#[inline]
fn is_impossible(conn: &Connection, ack: u64) -> bool {
    let snd = &conn.snd;
    ack > snd.nxt || ack < seq::FIRST.max(snd.una.saturating_sub(snd.wnd_max.into()))
}

/// An ACK of the number of a SYN that opened the connection is as old as one can be, but not
/// unknown (as on Linux).
#[cold]
fn is_of_own_syn(conn: &Connection, ack: u64) -> bool {
    let snd = &conn.snd;
    !conn.is_passive && ack == seq::SYN && snd.una <= ack + u64::from(snd.wnd_max)
}

/// RFC 9293 3.10.7.4 (fifth): SND.WND follows newer segments only. Returns the previous window if
/// it has changed.
#[inline]
fn update_window(
    conn: &mut Connection,
    segment: &Segment<'_>,
    start: u64,
    ack: u64,
) -> Option<u32> {
    let snd = &mut conn.snd;
    if ack < snd.una || !(snd.wl1 < start || (snd.wl1 == start && snd.wl2 <= ack)) {
        return None;
    }
    let wnd = u32::from(segment.window) << snd.shift;
    let edge = ack + u64::from(wnd);
    snd.wl1 = start;
    snd.wl2 = ack;
    let former = core::mem::replace(&mut snd.wnd, wnd);
    snd.wnd_max = snd.wnd_max.max(wnd);
    // A peer that shrinks its window (RFC 9293 3.8.6: must be handled) pulls the edge back.
    snd.edge = edge;
    (former != wnd).then_some(former)
}

#[inline]
fn on_outstanding(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    ack: u64,
    is_duplicate: bool,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    let has_advanced = ack > conn.snd.una;
    let mut delivered = Delivered::default();
    // Read before the ACK is processed: filling the last hole clears all SACK state.
    let fack = conn.flight.as_ref().map_or(0, |f| f.board.highest_sacked());
    if has_advanced {
        conn.snd.una = ack;
        conn.flight_mut().board.acknowledge(ack, &mut delivered);
        conn.backoff.reset();
        conn.stalled_at = Tick::NONE;
    }
    let dsacked = if segment.is_plain {
        None
    } else {
        take_sack(conn, segment, ack, &mut delivered)
    };
    let rtt_ns = sample_rtt(conn, now, segment, has_advanced, &delivered);
    let newly_lost = detect(conn, now, segment, &delivered, fack, dsacked, cx);
    let facts = AckFacts {
        delivered,
        has_advanced,
        newly_lost,
        is_duplicate,
        echo: segment
            .timestamps()
            .map(|t| t.echo)
            .filter(|_| conn.opts.has_timestamps),
        dsacked,
        rtt_ns,
        // RFC 3168 6.1.2.
        is_marked: segment.flags.contains(TcpFlags::ECE) && conn.ecn.is_on(),
    };
    settle_probe(conn, &facts);
    sample_delivery(conn, now, &facts);
    let was_lost = is_after_timeout(conn);
    recovery::on_ack(conn, now, &facts);
    if was_lost && !is_after_timeout(conn) {
        conn.figures_mut().on_timeouts_over(now);
    }
    if has_advanced {
        let is_reordering = conn.timers.resend() == Some(Resend::Reorder);
        if !is_reordering || !conn.has_outstanding() {
            resend_timer::rearm_after_ack(conn, now, cx);
        }
        acknowledged::report(conn, cx, fx);
    }
    if has_advanced || delivered.bytes > 0 || is_duplicate {
        conn.is_dirty = true;
    }
}

#[inline]
fn is_after_timeout(conn: &Connection) -> bool {
    let flight = conn.flight.as_deref();
    flight.is_some_and(|f| f.recovery.state() == State::Loss)
}

/// Takes a sample of the delivery rate and passes it to the algorithm.
#[inline]
fn sample_delivery(conn: &mut Connection, now: Instant, facts: &AckFacts) {
    let delivered = &facts.delivered;
    let (Some(flight), Some(newest)) = (conn.flight.as_deref_mut(), delivered.newest) else {
        return;
    };
    if facts.is_marked {
        let segments = delivered.bytes.div_ceil(u64::from(conn.snd.mss).max(1));
        flight.figures.marked = flight.figures.marked.wrapping_add(segments as u32);
    }
    if flight.board.is_empty() {
        flight.figures.set_pace(now, Pace::Idle);
    }
    flight.delivery.on_lost(facts.newly_lost);
    let total = conn.snd.una + flight.board.sacked_bytes();
    let min_rtt = conn.rtt.min_ns();
    let sample = flight.delivery.on_delivered(now, &newest, total, min_rtt);
    if conn.cc.wants_samples {
        let in_flight = conn.in_flight();
        let sample = Sample {
            newly_delivered: delivered.bytes,
            newly_lost: facts.newly_lost,
            rtt_ns: facts.rtt_ns,
            in_flight,
            ..sample
        };
        let outstanding = conn.snd.outstanding();
        conn.cc
            .on_sample(now, &sample, outstanding, facts.is_marked);
    }
}

/// Loss detection; without SACK the duplicates are counted in `recovery`.
#[inline]
fn detect(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    delivered: &Delivered,
    fack: u64,
    dsacked: Option<Range>,
    cx: &Cx<'_>,
) -> u64 {
    if !conn.opts.has_sack {
        return 0;
    }
    let rtt = conn.rtt;
    let mss = conn.snd.mss;
    let duplicate = dsacked.map(|range| Duplicate::of(conn, range));
    let Some(flight) = conn.flight.as_deref_mut() else {
        return 0;
    };
    if let Some(duplicate) = duplicate {
        duplicate.note(flight);
    }
    let offset = Some(conn.opts.ts_offset).filter(|_| conn.opts.has_timestamps);
    let is_echo_older = |sent_at| {
        let echo = segment.timestamps().map(|t| t.echo);
        let sent = offset.map(|offset| isn::timestamp(sent_at, offset));
        echo.zip(sent)
            .is_some_and(|(echo, sent)| seq::is_older(echo, sent))
    };
    let rack = &mut flight.rack;
    if let Some(end) = rack.on_delivered(now, delivered, fack, &rtt, is_echo_older) {
        flight.figures.on_reordering(fack - end, mss);
    }
    // In order and nothing suspect: nothing can be lost.
    let in_recovery = flight.recovery.state().is_repair();
    if flight.board.sacked_bytes() == 0 && !in_recovery {
        // The suspected segment has arrived.
        if conn.timers.resend() == Some(Resend::Reorder) {
            resend_timer::arm_timeout(conn, now, cx);
        }
        return 0;
    }
    let detection = flight
        .rack
        .detect(now, &mut flight.board, &rtt, in_recovery);
    match detection.recheck_at {
        Some(at) => conn.timers.set_resend(Resend::Reorder, at),
        None if conn.timers.resend() == Some(Resend::Reorder) => {
            resend_timer::arm_timeout(conn, now, cx)
        }
        None => {}
    }
    detection.newly_lost
}

/// Data that a D-SACK reports as received twice.
struct Duplicate {
    range: Range,
    /// Number of segments in the range, rounded up.
    count: u32,
    outstanding: Outstanding,
    /// Segments that the connection has sent again so far.
    total_resent: u32,
}

impl Duplicate {
    #[cold]
    fn of(conn: &Connection, range: Range) -> Duplicate {
        let mss = u64::from(conn.snd.mss).max(1);
        Duplicate {
            range,
            count: (range.end - range.start).div_ceil(mss) as u32,
            outstanding: conn.snd.outstanding(),
            total_resent: conn.total_resent(),
        }
    }

    #[cold]
    fn note(&self, flight: &mut InFlight) {
        let figures = &mut flight.figures;
        figures.dsacks = figures.dsacks.wrapping_add(self.count);
        if figures.dsacks > self.total_resent {
            return;
        }
        figures.redelivered = figures.redelivered.wrapping_add(self.count);
        // A probe is sent by the timer, and a segment duplicated by the network was sent once:
        // neither concerns the reordering window (Linux: tcp_dsack_seen).
        if !flight.recovery.is_resent_probe(self.range.end) {
            flight.rack.on_dsack(self.outstanding);
        }
    }
}

/// A D-SACK when nothing is outstanding any more.
#[cold]
fn on_late_dsack(conn: &mut Connection, segment: &Segment<'_>, ack: u64) {
    // There is no kept state that it could concern.
    if conn.flight.is_none() && conn.kept.is_none() {
        return;
    }
    let Some(range) = take_sack(conn, segment, ack, &mut Delivered::default()) else {
        return;
    };
    let duplicate = Duplicate::of(conn, range);
    let flight = conn.flight_mut();
    duplicate.note(flight);
    // RFC 8985 7.4.2: original and probe have both arrived.
    flight.recovery.forget_probe();
    if flight.recovery.on_dsack(range) {
        recovery::undo_late(conn);
    }
    conn.is_dirty = true;
}

/// RFC 8985 7.4: reduces the window if the tail loss probe has repaired a loss.
#[inline]
fn settle_probe(conn: &mut Connection, facts: &AckFacts) {
    let una = conn.snd.una;
    let Some(flight) = conn.flight.as_deref_mut() else {
        return;
    };
    if flight.recovery.settle_probe(facts, una) {
        recovery::on_probe_repaired(conn, &facts.delivered);
    }
}

/// RFC 2018 5 and RFC 2883 4. Returns the range that a D-SACK reports.
#[cold]
fn take_sack(
    conn: &mut Connection,
    segment: &Segment<'_>,
    ack: u64,
    delivered: &mut Delivered,
) -> Option<Range> {
    if !conn.opts.has_sack {
        return None;
    }
    let (iss, una, nxt) = (conn.snd.iss, conn.snd.una, conn.snd.nxt);
    let mss = u64::from(conn.snd.mss);
    let mut dsacked = None;
    let options = segment.options();
    let blocks = options.sack.as_slice();
    for (i, &(left, right)) in blocks.iter().enumerate() {
        let block = Range {
            start: seq::widen(iss, una, left),
            end: seq::widen(iss, una, right),
        };
        if block.start >= block.end || block.end > nxt {
            continue;
        }
        let is_within_second = i == 0
            && blocks.get(1).is_some_and(|&(l, r)| {
                seq::widen(iss, una, l) <= block.start && block.end <= seq::widen(iss, una, r)
            });
        if i == 0 && (block.end <= ack || is_within_second) {
            dsacked = Some(block);
            continue;
        }
        if block.start >= una {
            conn.flight_mut().board.sack(block, mss, delivered);
        }
    }
    dsacked
}

/// RFC 6298 3 (Karn), RFC 7323 4.1: only an ACK for new data measures. Returns the measurement in
/// nanoseconds, or 0.
#[inline]
fn sample_rtt(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    has_advanced: bool,
    delivered: &Delivered,
) -> u64 {
    // Data sent once may have waited for retransmitted data (Linux: FLAG_RETRANS_DATA_ACKED).
    let clean_sent_at = delivered
        .clean_sent_at
        .filter(|_| delivered.resent_bytes == 0);
    if let Some(sent_at) = clean_sent_at {
        let measured = now.0.saturating_sub(sent_at);
        conn.rtt.sample(now, Duration::from_nanos(measured));
        return measured;
    }
    if has_advanced {
        sample_echo(conn, now, segment);
    }
    // Milliseconds are too coarse for an algorithm.
    0
}

/// States that end with the ACK of our FIN.
#[inline]
fn after_ack(conn: &mut Connection, now: Instant, cx: &Cx<'_>) -> Outcome {
    if !conn.snd.is_fin_sent || !conn.is_fin_acked() {
        return Outcome::Go;
    }
    match conn.phase {
        Phase::FinWait1 => {
            conn.phase = Phase::FinWait2;
            keepalive::arm(conn, now, cx);
            Outcome::Go
        }
        Phase::Closing => Outcome::End(Verdict::TimeWait),
        Phase::LastAck => Outcome::End(Verdict::Closed),
        _ => Outcome::Go,
    }
}
