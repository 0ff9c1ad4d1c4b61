//! Active and simultaneous open: SYN-SENT and SYN-RECEIVED of a connection block.
//!
//! RFC 9293 3.5, 3.10.7.3; options of the SYN: RFC 7323 1.3 and 2.2, RFC 2018 2.

use core::time::Duration;

use slipstack_wire::tcp_options::TcpOptions;

use super::cc::Control;
use super::connection::{AckState, Beginning, Connection, Options, Receive, Send};
use super::establish;
use super::fast_open::{ServerCache, client};
use super::flow::{FlowHasher, FlowKey};
use super::options::Preset;
use super::output::{control, window};
use super::phase::Phase;
use super::segment::Segment;
use super::sizes::MSS_DEFAULT;
use super::sizes::MSS_MIN;
use super::sizes::WINDOW_SHIFT_MAX;
use super::sizes::mss_default;
use super::timers::Resend;
use super::verdict::Verdict;
use super::{ecn, isn, mtu_search, resend_timer, seq, user_timeout};
use crate::config::MtuProbing;
use crate::counters::Counter;
use crate::effects::Effects;
use crate::error::Reason;
use crate::ids::ConnId;
use crate::network_layer::{Cx, Path};
use crate::time::{Instant, Tick, nanos};

/// Delay of the SYN's retransmission after a reset for an earlier connection (Linux:
/// TCP_TIMEOUT_MIN).
const AGAIN_NS: u64 = 2_000_000;
/// Delay of an ACK that waits for the program's first data (Linux: TCP_DELACK_MAX).
const DEFERRED_ACK_MS: u16 = 200;

/// The values a connection block is made from.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a> {
    pub key: FlowKey,
    pub hash: u64,
    pub id: ConnId,
    pub iss: u32,
    pub ts_offset: u32,
    pub path: Path,
    /// MSS that we announce.
    pub mss: u16,
    pub preset: &'a Preset,
}

/// A block in SYN-SENT; a passive open fills in the peer's side afterwards. Always inlined: a block
/// is made where it stays.
#[inline(always)]
pub fn build(seed: &Seed<'_>, now: Instant, cx: &Cx<'_>) -> Connection {
    let tcp = &cx.config.tcp;
    let preset = seed.preset;
    let mss = seed.mss;
    Connection::begin(Beginning {
        key: seed.key,
        hash: seed.hash as u32,
        id: seed.id,
        snd: build_send(seed, mss, now),
        rcv: build_receive(seed, mss, now, cx),
        cc: Control::new(preset.congestion, u32::from(mss), tcp.pacing),
        choice: preset.choice,
        opts: Options {
            ts_offset: seed.ts_offset,
            mss_max: mss,
            ..preset.opts.clone()
        },
        tso_max: seed.path.tso_max,
        mtu: seed.path.mtu,
        challenge_after_ms: now.as_millis() as u32,
    })
}

/// Nothing sent but the SYN.
#[inline]
fn build_send(seed: &Seed<'_>, mss: u16, now: Instant) -> Send {
    Send {
        iss: seed.iss,
        una: seq::SYN,
        nxt: seq::FIRST,
        wnd: 0,
        edge: seq::FIRST,
        wl1: 0,
        wl2: 0,
        wnd_max: 0,
        written: seq::FIRST,
        small_end: 0,
        last_at: now,
        mss,
        peer_mss: MSS_DEFAULT,
        shift: 0,
        is_fin_queued: false,
        is_fin_sent: false,
        has_more: false,
        limit: seed.preset.sndbuf,
    }
}

/// Nothing received.
#[inline]
fn build_receive(seed: &Seed<'_>, mss: u16, now: Instant, cx: &Cx<'_>) -> Receive {
    let preset = seed.preset;
    let shift = if cx.config.tcp.window_scaling {
        preset.shift
    } else {
        0
    };
    Receive {
        irs: 0,
        nxt: seq::SYN,
        edge: seq::SYN,
        consumed: seq::FIRST,
        acked: seq::SYN,
        buffer: preset.rcvbuf,
        is_buffer_fixed: preset.is_rcvbuf_fixed,
        tune_at: Tick::of(now),
        tune_from: seq::FIRST,
        ts_recent: 0,
        last_at: now,
        data_at: Tick::of(now),
        mss: MSS_DEFAULT.min(mss),
        shift,
        ack: super::connection::AckState::None,
        ato_ms: 0,
        quick: 0,
        is_unanswered: false,
        is_interactive: false,
        is_shut: false,
        has_fin: false,
        fin_at: 0,
        assembler: None,
    }
}

/// Takes over the options of the peer's SYN.
#[inline]
pub fn agree(conn: &mut Connection, irs: u32, theirs: &TcpOptions, cx: &Cx<'_>) {
    let tcp = &cx.config.tcp;
    conn.rcv.irs = irs;
    conn.rcv.nxt = seq::FIRST;
    conn.rcv.acked = seq::FIRST;
    conn.rcv.edge = seq::FIRST + u64::from(window::first(conn.rcv.buffer));
    conn.opts.has_sack = tcp.sack && theirs.sack_permitted;
    if let (true, Some(timestamps)) = (tcp.timestamps, theirs.timestamps) {
        conn.opts.has_timestamps = true;
        conn.rcv.ts_recent = timestamps.value;
    }
    match (tcp.window_scaling, theirs.window_scale) {
        (true, Some(shift)) => {
            conn.opts.has_scaling = true;
            // RFC 7323 2.3: larger shifts MUST be taken as 14.
            conn.snd.shift = shift.min(WINDOW_SHIFT_MAX);
        }
        // RFC 7323 2.2: both sides or none.
        _ => conn.rcv.shift = 0,
    }
    conn.snd.peer_mss = theirs
        .mss
        .unwrap_or_else(|| mss_default(&conn.key))
        .max(MSS_MIN);
    if cx.config.tcp.mtu_probing == MtuProbing::Always {
        mtu_search::start_low(conn, cx);
    }
    conn.set_mss();
    conn.cc
        .begin(u32::from(conn.snd.mss), cx.config.tcp.initial_cwnd);
}

/// RFC 9293 3.10.7.3: a segment in SYN-SENT.
#[cold]
pub fn on_segment(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    servers: &mut ServerCache,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    let ack = seq::widen(conn.snd.iss, seq::SYN, segment.ack);
    let has_ack = segment.flags.is_ack();
    // First: SEG.ACK =< ISS or SEG.ACK > SND.NXT.
    // RFC 7413 4.2.1: the data of the SYN may be acknowledged with it.
    let carried = conn.attempt().map_or(0, |a| u64::from(a.sent()));
    if has_ack && (ack <= seq::SYN || ack > conn.snd.nxt + carried) {
        refuse_answer(conn, now, segment, cx, fx);
        return Verdict::Alive;
    }
    // Second: only a RST that acknowledges our SYN counts.
    if segment.flags.is_rst() {
        let (counted, verdict) = match has_ack {
            true => (Counter::RxTcpResets, Verdict::Failed(Reason::Refused)),
            false => (Counter::DropTcpRst, Verdict::Alive),
        };
        cx.counters.bump(counted);
        return verdict;
    }
    // Fourth: SYN. Anything else is dropped (fifth).
    if !segment.flags.is_syn() {
        cx.counters.bump(Counter::DropTcpState);
        return Verdict::Alive;
    }
    cx.counters.bump(Counter::RxTcpTaken);
    agree(conn, segment.seq, &segment.options(), cx);
    user_timeout::on_segment(conn, segment, cx);
    let has_ecn = if has_ack {
        // Only an offer can be agreed to, and a repeated SYN makes none.
        ecn::offers(cx.config.tcp.ecn, conn.cc.kind(), conn.backoff.count())
            && ecn::is_agreed(segment.flags)
    } else {
        let (mode, kind) = (cx.config.tcp.ecn, conn.cc.kind());
        ecn::accepts(mode, kind, segment.flags, segment.mark)
    };
    if has_ecn {
        conn.ecn.agree();
    }
    if !has_ack {
        // Simultaneous open: SYN-RECEIVED, our SYN again with the ACK.
        conn.phase = Phase::SynReceived;
        conn.snd.wl1 = seq::SYN;
        control::send_syn(conn, now, cx, fx);
        return Verdict::Alive;
    }
    conn.snd.una = seq::FIRST;
    if conn.backoff.count() == 0 {
        conn.rtt
            .sample(now, Duration::from_nanos(now.nanos_since(conn.snd.last_at)));
    }
    establish::establish(conn, now, segment, cx, fx);
    // RFC 7323 2.2: the window of a SYN segment is not scaled.
    conn.snd.wnd = u32::from(segment.window);
    conn.snd.wnd_max = conn.snd.wnd;
    conn.snd.edge = ack + u64::from(conn.snd.wnd);
    if conn.attempt().is_some() {
        let answer = client::Answer { segment, ack };
        client::on_answer(conn, now, answer, servers, cx, fx);
    }
    acknowledge_answer(conn);
    Verdict::Alive
}

/// The handshake's last ACK carries data if there is some, and with TCP_DEFER_ACCEPT waits for it
/// as long as an ACK may (Linux: tcp_rcv_synsent_state_process).
fn acknowledge_answer(conn: &mut Connection) {
    let defers = conn.opts.manner.defers_ack();
    conn.opts.manner.set_defers_ack(false);
    if !defers || conn.snd.has_unsent() {
        return conn.owe_ack();
    }
    conn.rcv.ack = AckState::Delayed;
    conn.rcv.ato_ms = DEFERRED_ACK_MS;
    conn.rcv.is_interactive = true;
}

/// RFC 9293 3.10.7.3 (first): a segment that acknowledges another SYN than ours is reset.
#[cold]
fn refuse_answer(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    let key = conn.key;
    cx.counters.bump(Counter::DropTcpAck);
    control::answer_with_reset(&key, now, segment, cx, fx);
    // The peer has just been rid of a former connection: our SYN will be welcome now (as on Linux).
    if conn.backoff.count() == 0 {
        conn.timers
            .set_resend(Resend::Timeout, now.plus_nanos(AGAIN_NS));
    }
}

/// The SYN (or SYN-ACK) was not answered (RFC 9293 3.8.3: R2 for SYNs).
pub fn on_timeout(
    conn: &mut Connection,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    let tcp = &cx.config.tcp;
    let limit = if conn.is_passive {
        tcp.synack_retries
    } else {
        conn.opts.fixed.syn_retries().unwrap_or(tcp.syn_retries)
    };
    if conn.stalled_at == Tick::NONE {
        conn.stalled_at = Tick::of(conn.snd.last_at);
    }
    let user_timeout = u64::from(conn.opts.user_timeout_ms) * 1_000_000;
    let is_over = user_timeout != 0 && conn.stalled_at.nanos_until(now) >= user_timeout;
    if conn.backoff.count() >= limit || is_over {
        return Verdict::Failed(conn.soft_error.unwrap_or(Reason::TimedOut));
    }
    let is_first = conn.backoff.count() == 0;
    let figures = conn.figures_mut();
    figures.on_timeout(now, is_first);
    figures.bare_resent += 1;
    conn.backoff.double();
    cx.counters.bump(Counter::TcpTimeouts);
    if let Some(attempt) = conn.attempt_mut() {
        attempt.on_timeout();
    }
    control::send_syn(conn, now, cx, fx);
    let wait = conn.backoff.apply(
        nanos(cx.config.tcp.rto_initial),
        conn.rto_max_ns(&cx.config.tcp),
    );
    let wait = wait.min(resend_timer::patience_ns(conn, now));
    conn.timers
        .set_resend(Resend::Timeout, now.plus_nanos(wait));
    Verdict::Alive
}

/// Our numbers of a new connection.
#[derive(Clone, Copy, Debug)]
pub struct FirstNumbers {
    /// Initial sequence number.
    pub iss: u32,
    pub ts_offset: u32,
}

/// Chooses the numbers of a new connection.
pub fn numbers(hasher: &FlowHasher, key: &FlowKey, now: Instant) -> FirstNumbers {
    let secret = hasher.sequence(key);
    FirstNumbers {
        iss: isn::initial_sequence(secret, now),
        ts_offset: isn::timestamp_offset(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SocketOptions;
    use crate::stack::{Stack, cx};
    use crate::tcp::tests::harness::Recorder;

    #[test]
    fn a_peer_without_an_mss_option_gets_the_default_of_its_family() {
        // RFC 9293 3.7.1.
        for (own, peer, want) in [
            ("10.0.0.5", "10.0.0.9:80", 536),
            ("fd00::5", "[fd00::9]:80", 1220),
        ] {
            let config = crate::StackConfig {
                network: slipstack_network::NetworkState::of(
                    1500,
                    alloc::vec![(own.parse().unwrap(), 24)],
                    &[],
                )
                .into(),
                ..crate::StackConfig::default()
            };
            let now = Instant::from_millis(1000);
            let mut stack = Stack::new(config, now);
            let (peer, options) = (peer.parse().unwrap(), SocketOptions::default());
            let mut fx = Recorder::default();
            let id = stack.tcp_connect(now, None, peer, &options, &mut fx);
            let conn = stack.tcp.conns.at_mut(id.unwrap().index).unwrap();
            agree(conn, 1, &TcpOptions::default(), &cx!(stack));
            assert_eq!(conn.snd.mss, want);
        }
    }
}
