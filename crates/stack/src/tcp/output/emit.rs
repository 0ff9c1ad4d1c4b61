//! Building headers (RFC 9293 3.1, RFC 7323 3.2, RFC 2018 3).

use core::net::Ipv4Addr;
use slipstack_wire::fast_open::FastOpen;

use slipstack_wire::plain::{self, PlainHeader};
use slipstack_wire::protocol;
use slipstack_wire::tcp::{CHECKSUM_AT, HEADER_LEN, OPTIONS_MAX, TcpFlags, TcpHeader};
use slipstack_wire::tcp_options::{
    SACK_BLOCKS_MAX, TIMESTAMPS_LEN, TcpOptions, Timestamps, emit_timestamps,
};
use slipstack_wire::user_timeout::UserTimeout;

use super::window;
use crate::choices::ChoiceId;
use crate::counters::Counter;
use crate::effects::{Effects, Payload};
use crate::network_layer::{Cx, NetworkLayer, NextHop, OutPacket, OutSegment, Output};
use crate::options::DEFAULT_TTL;
use crate::tcp::assembler::Range;
use crate::tcp::connection::{AckState, Connection};
use crate::tcp::flow::FlowKey;
use crate::tcp::{ecn, isn, seq, urgent, user_timeout};
use crate::time::Instant;

const BUFFER_LEN: usize = HEADER_LEN + OPTIONS_MAX;

/// A part of the send stream: where it begins, and its bytes; 0 = a segment without data.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: u64,
    pub len: u32,
}

impl Span {
    /// A segment without data at this place.
    pub const fn empty(start: u64) -> Span {
        Span { start, len: 0 }
    }
}

/// The flags of a segment beside ACK and ECE, and its type of service.
#[derive(Clone, Copy, Debug)]
struct Marks {
    flags: TcpFlags,
    tos: u8,
}

/// The ends of a segment over IPv4, and the next hop on its way.
#[derive(Clone, Copy, Debug)]
struct Way {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    hop: NextHop,
}

/// Sends new data, which alone is ECN-capable (RFC 3168 6.1.4, 6.1.5 and 6.1.6: no ACK, no
/// retransmission, no probe).
#[inline(always)]
pub fn new_data(
    conn: &mut Connection,
    now: Instant,
    span: Span,
    flags: TcpFlags,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let tos = conn.opts.tos & !ecn::MASK | conn.ecn.ect;
    // RFC 3168 6.1.2: the first new data after a reduction carries CWR.
    let flags = flags | conn.ecn.cwr;
    conn.ecn.cwr = TcpFlags::NONE;
    build(conn, now, span, Marks { flags, tos }, cx, fx)
}

/// Sends a segment of an established connection that is not new data.
#[inline(never)]
pub fn segment(
    conn: &mut Connection,
    now: Instant,
    span: Span,
    flags: TcpFlags,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let tos = conn.opts.tos;
    if conn.opts.manner.may_say_more() {
        return general(conn, now, span, Marks { flags, tos }, cx, fx);
    }
    build(conn, now, span, Marks { flags, tos }, cx, fx)
}

/// Sends new data while some of it is urgent, the user timeout is to be announced, or its packets
/// may be cut.
#[cold]
pub fn talkative_data(
    conn: &mut Connection,
    now: Instant,
    span: Span,
    flags: TcpFlags,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let tos = conn.opts.tos & !ecn::MASK | conn.ecn.ect;
    let flags = flags | core::mem::take(&mut conn.ecn.cwr);
    general(conn, now, span, Marks { flags, tos }, cx, fx)
}

/// The segment carries the ACK, so that none is owed afterwards.
#[inline(always)]
fn build(
    conn: &mut Connection,
    now: Instant,
    span: Span,
    marks: Marks,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let is_plain = conn.rcv.assembler.is_none() || span.len > 0 || !conn.opts.has_sack;
    if is_plain
        && let Some((src, dst)) = conn.key.v4()
        && let Some(hop) = conn.hop
        && cx.net.is_current(&hop, now)
    {
        return plain(conn, now, span, marks, Way { src, dst, hop }, cx, fx);
    }
    general(conn, now, span, marks, cx, fx)
}

/// Over IPv4 to a known next hop, with timestamps or no options: the whole header in one go.
#[inline(always)]
fn plain(
    conn: &mut Connection,
    now: Instant,
    span: Span,
    marks: Marks,
    way: Way,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let (Span { start, len }, Way { src, dst, hop }) = (span, way);
    let header = PlainHeader {
        link_dst: hop.mac(),
        link_src: cx.net.macs.on(hop.link()),
        tos: marks.tos,
        ttl: conn.opts.ttl,
        src,
        dst,
        src_port: conn.key.local_port,
        dst_port: conn.key.remote_port,
        seq: conn.wire_seq(start),
        window: window::announce(conn),
        ack: conn.wire_ack(conn.rcv.nxt),
        flags: marks.flags | TcpFlags::ACK | conn.ecn.echo,
        payload_len: len,
    };
    let mut buffer = [0u8; plain::HEADER_MAX];
    let header_len = if conn.opts.has_timestamps {
        let timestamps = Timestamps {
            value: isn::timestamp(now, conn.opts.ts_offset),
            echo: conn.rcv.ts_recent,
        };
        header.emit(timestamps.words(), &mut buffer)
    } else {
        header.emit([], &mut buffer)
    };
    let payload = payload_of(conn, start, len);
    note_acked(conn);
    let mss = conn.snd.mss;
    conn.segments.on_sent(len, mss);
    cx.counters.bump(Counter::TxTcp);
    cx.send_plain(
        now,
        &buffer[..header_len],
        payload,
        (len > u32::from(mss)).then_some(mss),
        hop,
        fx,
    )
}

#[inline]
fn payload_of(conn: &Connection, start: u64, len: u32) -> Payload<'static> {
    if len == 0 {
        Payload::None
    } else {
        Payload::Stream {
            conn: conn.id,
            offset: seq::offset(start),
            len,
        }
    }
}

/// Every segment carries the ACK: none is owed any more.
#[inline]
fn note_acked(conn: &mut Connection) {
    conn.rcv.acked = conn.rcv.nxt;
    conn.rcv.ack = AckState::None;
    conn.timers.clear_ack();
}

/// Builds a segment whose next hop is to be found, that has SACK blocks, an urgent pointer or the
/// user timeout, or that may be cut.
#[inline(never)]
fn general(
    conn: &mut Connection,
    now: Instant,
    span: Span,
    marks: Marks,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let mut buffer = [0u8; BUFFER_LEN];
    let mut options_len = put_options(conn, now, span.len == 0, &mut buffer);
    if conn.opts.manner.owes_timeout()
        && let Some(room) = buffer[HEADER_LEN..].first_chunk_mut::<OPTIONS_MAX>()
    {
        options_len = user_timeout::append(conn, span.len, options_len, room);
    }
    let header = &mut buffer[..HEADER_LEN + options_len];
    with_options(conn, now, span, marks, header, cx, fx)
}

/// The header before options that are in their place.
#[inline(always)]
fn with_options(
    conn: &mut Connection,
    now: Instant,
    Span { start, len }: Span,
    marks: Marks,
    buffer: &mut [u8],
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let (urg, urgent) = urgent::pointer(conn, start);
    let header = TcpHeader {
        window: window::announce(conn),
        src_port: conn.key.local_port,
        dst_port: conn.key.remote_port,
        seq: conn.wire_seq(start),
        ack: conn.wire_ack(conn.rcv.nxt),
        flags: marks.flags | urg | TcpFlags::ACK | conn.ecn.echo,
        urgent,
    };
    header.emit(buffer.len() - HEADER_LEN, buffer);
    let payload = payload_of(conn, start, len);
    note_acked(conn);
    let way = Envelope {
        key: &conn.key,
        tos: marks.tos,
        ttl: conn.opts.ttl,
        choice: conn.choice,
        may_be_cut: conn.opts.manner.may_be_cut(),
    };
    let packet = packet_of(way, cx.net);
    let mss = conn.snd.mss;
    conn.segments.on_sent(len, mss);
    let out = OutSegment {
        header: buffer,
        payload,
        checksum_at: Some(CHECKSUM_AT),
        gso_mss: (len > u32::from(mss)).then_some(mss),
    };
    cx.counters.bump(Counter::TxTcp);
    cx.output(now, &packet, &mut conn.hop, out, fx)
}

/// Timestamps always; SACK blocks only on ACKs without data, so that full segments stay full.
#[inline]
fn put_options(
    conn: &mut Connection,
    now: Instant,
    is_bare: bool,
    buffer: &mut [u8; BUFFER_LEN],
) -> usize {
    let timestamps = conn.opts.has_timestamps.then(|| Timestamps {
        value: isn::timestamp(now, conn.opts.ts_offset),
        echo: conn.rcv.ts_recent,
    });
    if conn.rcv.assembler.is_none() || !is_bare || !conn.opts.has_sack {
        let Some(timestamps) = timestamps else {
            return 0;
        };
        if let Some(room) = buffer[HEADER_LEN..].first_chunk_mut::<TIMESTAMPS_LEN>() {
            emit_timestamps(timestamps, room);
        }
        return TIMESTAMPS_LEN;
    }
    put_sack(conn, timestamps, buffer)
}

#[cold]
fn put_sack(
    conn: &mut Connection,
    timestamps: Option<Timestamps>,
    buffer: &mut [u8; BUFFER_LEN],
) -> usize {
    let mut options = TcpOptions {
        timestamps,
        ..TcpOptions::default()
    };
    let room = if timestamps.is_some() {
        SACK_BLOCKS_MAX - 1
    } else {
        SACK_BLOCKS_MAX
    };
    let mut blocks = [Range { start: 0, end: 0 }; SACK_BLOCKS_MAX];
    let irs = conn.rcv.irs;
    if let Some(assembler) = conn.rcv.assembler.as_deref_mut() {
        let n = assembler.sack_blocks(&mut blocks[..room]);
        for block in &blocks[..n] {
            options
                .sack
                .push(seq::to_wire(irs, block.start), seq::to_wire(irs, block.end));
        }
    }
    buffer[HEADER_LEN..]
        .first_chunk_mut::<OPTIONS_MAX>()
        .map_or(0, |room| options.emit(room))
}

#[inline]
fn packet_of(envelope: Envelope<'_>, net: &NetworkLayer) -> OutPacket {
    OutPacket {
        src: envelope.key.local_ip(),
        dst: envelope.key.remote_ip(),
        protocol: protocol::TCP,
        ports: (envelope.key.local_port, envelope.key.remote_port),
        tos: envelope.tos,
        ttl: envelope.ttl,
        dont_fragment: !envelope.may_be_cut,
        choice: net.choices.find(envelope.choice),
    }
}

/// Path of a segment outside of a synchronized connection.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    pub key: &'a FlowKey,
    pub tos: u8,
    pub ttl: u8,
    pub choice: ChoiceId,
    /// Routers may cut it into fragments.
    pub may_be_cut: bool,
}

/// Sends a segment that is described completely by its parts: SYN, SYN-ACK, RST, ACK of TIME-WAIT.
pub fn bare(
    envelope: Envelope<'_>,
    now: Instant,
    header: &TcpHeader,
    options: &TcpOptions,
    hop: &mut Option<NextHop>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let syn = Opening {
        header,
        options,
        fast_open: None,
        user_timeout: None,
        payload: Payload::None,
    };
    opening(envelope, now, &syn, hop, cx, fx)
}

/// An ACK of the parts that a TIME-WAIT entry keeps.
#[derive(Clone, Copy, Debug)]
pub struct BareAck {
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub timestamps: Option<Timestamps>,
}

pub fn bare_ack(
    key: &FlowKey,
    now: Instant,
    ack: &BareAck,
    hop: &mut Option<NextHop>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let header = TcpHeader {
        src_port: key.local_port,
        dst_port: key.remote_port,
        seq: ack.seq,
        ack: ack.ack,
        flags: TcpFlags::ACK,
        window: ack.window,
        urgent: 0,
    };
    let envelope = Envelope {
        key,
        tos: 0,
        ttl: DEFAULT_TTL,
        choice: ChoiceId::default(),
        may_be_cut: false,
    };
    if let Some((src, dst)) = key.v4()
        && let Some(hop) = current(hop, envelope, now, cx)
    {
        let header = plain_header(envelope, Way { src, dst, hop }, &header, cx);
        let mut buffer = [0u8; plain::HEADER_MAX];
        let len = match ack.timestamps {
            Some(timestamps) => header.emit(timestamps.words(), &mut buffer),
            None => header.emit([], &mut buffer),
        };
        cx.counters.bump(Counter::TxTcp);
        return cx.send_plain(now, &buffer[..len], Payload::None, None, hop, fx);
    }
    let options = TcpOptions {
        timestamps: ack.timestamps,
        ..TcpOptions::default()
    };
    bare(envelope, now, &header, &options, hop, cx, fx)
}

/// The next hop, looked up again if the one at hand has ended.
#[inline]
fn current(
    hop: &mut Option<NextHop>,
    envelope: Envelope<'_>,
    now: Instant,
    cx: &Cx<'_>,
) -> Option<NextHop> {
    if !hop.is_some_and(|hop| cx.net.is_current(&hop, now)) {
        let remote = envelope.key.remote_bits();
        *hop = match envelope.choice.is_none() {
            true => cx.net.recall(remote, now),
            false => None,
        };
    }
    *hop
}

#[inline]
fn plain_header(envelope: Envelope<'_>, way: Way, tcp: &TcpHeader, cx: &Cx<'_>) -> PlainHeader {
    let Way { src, dst, hop } = way;
    PlainHeader {
        link_dst: hop.mac(),
        link_src: cx.net.macs.on(hop.link()),
        tos: envelope.tos,
        ttl: envelope.ttl,
        src,
        dst,
        src_port: tcp.src_port,
        dst_port: tcp.dst_port,
        seq: tcp.seq,
        ack: tcp.ack,
        flags: tcp.flags,
        window: tcp.window,
        payload_len: 0,
    }
}

/// A segment before the handshake is complete, with Fast Open's content.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    pub header: &'a TcpHeader,
    pub options: &'a TcpOptions,
    pub fast_open: Option<FastOpen>,
    pub user_timeout: Option<UserTimeout>,
    pub payload: Payload<'a>,
}

pub fn opening(
    envelope: Envelope<'_>,
    now: Instant,
    syn: &Opening<'_>,
    hop: &mut Option<NextHop>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    if let Some((src, dst)) = envelope.key.v4()
        && let Some(hop) = current(hop, envelope, now, cx)
        && syn.fast_open.is_none()
        && syn.user_timeout.is_none()
        && syn.payload.is_empty()
        && !envelope.may_be_cut
        && let Some(output) = bare_plain(now, envelope, Way { src, dst, hop }, syn, cx, fx)
    {
        return output;
    }
    rare_opening(envelope, now, syn, hop, cx, fx)
}

/// Sends a SYN or SYN-ACK with further options, with data, over IPv6, without DF, or while the next
/// hop is being resolved.
#[inline(never)]
fn rare_opening(
    envelope: Envelope<'_>,
    now: Instant,
    syn: &Opening<'_>,
    hop: &mut Option<NextHop>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Output {
    let mut buffer = [0u8; BUFFER_LEN];
    let options_len = buffer[HEADER_LEN..]
        .first_chunk_mut::<OPTIONS_MAX>()
        .map_or(0, |room| {
            let len = syn.options.emit(room);
            let len = syn.fast_open.map_or(len, |option| option.append(room, len));
            syn.user_timeout
                .map_or(len, |option| option.append(room, len))
        });
    syn.header.emit(options_len, &mut buffer);
    let out = OutSegment {
        header: &buffer[..HEADER_LEN + options_len],
        payload: syn.payload,
        checksum_at: Some(CHECKSUM_AT),
        gso_mss: None,
    };
    cx.counters.bump(Counter::TxTcp);
    cx.output(now, &packet_of(envelope, cx.net), hop, out, fx)
}

/// Builds a segment over IPv4 to a resolved next hop, with the options of a full SYN, timestamps or
/// none; returns `None` for others.
#[inline]
fn bare_plain(
    now: Instant,
    envelope: Envelope<'_>,
    way: Way,
    syn: &Opening<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Option<Output> {
    let options = syn.options;
    let header = plain_header(envelope, way, syn.header, cx);
    let mut buffer = [0u8; plain::HEADER_MAX];
    let header_len = if let Some(words) = options.syn_words() {
        header.emit(words, &mut buffer)
    } else if options.is_plain() {
        match options.timestamps {
            Some(timestamps) => header.emit(timestamps.words(), &mut buffer),
            None => header.emit([], &mut buffer),
        }
    } else {
        return None;
    };
    cx.counters.bump(Counter::TxTcp);
    Some(cx.send_plain(now, &buffer[..header_len], Payload::None, None, way.hop, fx))
}
