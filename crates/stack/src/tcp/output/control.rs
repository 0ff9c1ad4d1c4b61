//! Segments outside the data stream: SYN, RST, challenge ACKs.

use slipstack_wire::tcp::{TcpFlags, TcpHeader};
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

use super::emit::{self, Envelope, Opening};
use super::window;
use crate::choices::ChoiceId;
use crate::config::EcnMode;
use crate::counters::Counter;
use crate::effects::{Effects, Payload};
use crate::network_layer::{Cx, NextHop};
use crate::options::DEFAULT_TTL;
use crate::tcp::connection::{AckState, Connection};
use crate::tcp::fast_open::Attempt;
use crate::tcp::flow::FlowKey;
use crate::tcp::phase::Phase;
use crate::tcp::segment::Segment;
use crate::tcp::{ecn, isn, seq, user_timeout};
use crate::time::Instant;

/// RFC 5961 7: minimum interval of challenge ACKs of one connection.
const CHALLENGE_MS: u32 = 500;

/// SYN of an active open, SYN-ACK once the peer's SYN has come in (RFC 9293 3.5, simultaneous
/// open).
pub fn send_syn(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let has_peer = conn.phase == Phase::SynReceived;
    let config = &cx.config.tcp;
    let header = TcpHeader {
        src_port: conn.key.local_port,
        dst_port: conn.key.remote_port,
        seq: conn.snd.iss,
        ack: if has_peer {
            conn.wire_ack(conn.rcv.nxt)
        } else {
            0
        },
        flags: syn_flags(conn, has_peer, config.ecn),
        // RFC 7323 2.2: the window of a SYN is never scaled.
        window: window::first(conn.rcv.buffer),
        urgent: 0,
    };
    let offers = |agreed: bool, configured: bool| if has_peer { agreed } else { configured };
    let options = TcpOptions {
        mss: Some(conn.opts.mss_max),
        window_scale: offers(conn.opts.has_scaling, config.window_scaling)
            .then_some(conn.rcv.shift),
        sack_permitted: offers(conn.opts.has_sack, config.sack),
        timestamps: offers(conn.opts.has_timestamps, config.timestamps).then(|| Timestamps {
            value: isn::timestamp(now, conn.opts.ts_offset),
            echo: if has_peer { conn.rcv.ts_recent } else { 0 },
        }),
        ..TcpOptions::default()
    };
    if has_peer {
        conn.rcv.edge = conn.rcv.nxt + u64::from(window::first(conn.rcv.buffer));
    }
    conn.rcv.ack = AckState::None;
    conn.snd.last_at = now;
    let (len, fast_open) = conn.attempt().map_or((0, None), Attempt::on_board);
    let payload = match len {
        0 => Payload::None,
        len => Payload::Stream {
            conn: conn.id,
            offset: 0,
            len,
        },
    };
    if !conn.is_passive {
        conn.segments.on_sent(payload.len() as u32, u16::MAX);
    }
    let envelope = Envelope {
        key: &conn.key,
        tos: conn.opts.tos,
        ttl: conn.opts.ttl,
        choice: conn.choice,
        // A SYN-ACK may not be (Linux: ip_build_and_send_pkt() on behalf of the request).
        may_be_cut: !conn.is_passive && conn.opts.manner.may_be_cut(),
    };
    let syn = Opening {
        header: &header,
        options: &options,
        fast_open,
        user_timeout: user_timeout::of_syn(conn),
        payload,
    };
    emit::opening(envelope, now, &syn, &mut conn.hop, cx, fx);
}

/// RFC 3168 6.1.1: both bits request ECN, ECE alone agrees.
fn syn_flags(conn: &Connection, has_peer: bool, mode: EcnMode) -> TcpFlags {
    let tries = conn.backoff.count();
    match (has_peer, conn.ecn.is_on()) {
        (true, true) => TcpFlags::SYN | TcpFlags::ACK | TcpFlags::ECE,
        (true, false) => TcpFlags::SYN | TcpFlags::ACK,
        (false, _) if ecn::offers(mode, conn.cc.kind(), tries) => TcpFlags::SYN | ecn::SETUP,
        (false, _) => TcpFlags::SYN,
    }
}

/// RST of a connection that ends (RFC 9293 3.10.5): with our next sequence number.
pub fn send_reset(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    // A RST beyond the peer's window would only be challenged.
    let at = conn.snd.nxt.min(conn.snd.edge.max(conn.snd.una));
    let numbers = ResetNumbers {
        seq: conn.wire_seq(at),
        ack: conn.wire_ack(conn.rcv.nxt),
    };
    let envelope = Envelope {
        key: &conn.key,
        tos: conn.opts.tos,
        ttl: conn.opts.ttl,
        choice: conn.choice,
        may_be_cut: conn.opts.manner.may_be_cut(),
    };
    reset(envelope, numbers, &mut conn.hop, now, cx, fx);
}

/// The sequence numbers of a reset.
#[derive(Clone, Copy, Debug)]
pub struct ResetNumbers {
    pub seq: u32,
    pub ack: u32,
}

/// Sends a reset with the given sequence numbers.
pub fn reset(
    envelope: Envelope<'_>,
    numbers: ResetNumbers,
    hop: &mut Option<NextHop>,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    let header = TcpHeader {
        src_port: envelope.key.local_port,
        dst_port: envelope.key.remote_port,
        seq: numbers.seq,
        ack: numbers.ack,
        flags: TcpFlags::RST | TcpFlags::ACK,
        window: 0,
        urgent: 0,
    };
    cx.counters.bump(Counter::TxTcpResets);
    emit::bare(envelope, now, &header, &TcpOptions::default(), hop, cx, fx);
}

/// RFC 9293 3.10.7.1 and 3.5.2 group 1 and 2: answers an unexpected segment with a reset.
pub fn answer_with_reset(
    key: &FlowKey,
    now: Instant,
    segment: &Segment<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    if segment.flags.is_rst() {
        return;
    }
    let (seq, ack, flags) = if segment.flags.is_ack() {
        (segment.ack, 0, TcpFlags::RST)
    } else {
        (
            0,
            segment.seq.wrapping_add(segment.len() as u32),
            TcpFlags::RST | TcpFlags::ACK,
        )
    };
    let header = TcpHeader {
        src_port: key.local_port,
        dst_port: key.remote_port,
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
    };
    cx.counters.bump(Counter::TxTcpResets);
    let envelope = Envelope {
        key,
        tos: 0,
        ttl: DEFAULT_TTL,
        choice: ChoiceId::default(),
        may_be_cut: false,
    };
    emit::bare(
        envelope,
        now,
        &header,
        &TcpOptions::default(),
        &mut None,
        cx,
        fx,
    );
}

/// RFC 5961 3.2, 4.2, 5.2 and 7: returns whether this connection may send a challenge ACK. The
/// stack's own limit is checked separately.
pub fn may_challenge(conn: &mut Connection, now: Instant) -> bool {
    let now_ms = now.as_millis() as u32;
    // No interval is longer: a larger difference means that it has long passed.
    let wait = conn.challenge_after_ms.wrapping_sub(now_ms);
    if (1..=CHALLENGE_MS).contains(&wait) {
        return false;
    }
    conn.challenge_after_ms = now_ms.wrapping_add(CHALLENGE_MS);
    true
}

/// The sequence number of our SYN as a wire number.
pub fn after_syn(iss: u32) -> u32 {
    seq::to_wire(iss, seq::FIRST)
}
