//! Socket options in the form in which connections store them, and their changes on open
//! connections.

use core::time::Duration;

use slipstack_wire::user_timeout::UserTimeout;

use super::bounds::Bounds;
use super::connection::{Connection, Fixed, Manner, Options};
use super::flow::FlowKey;
use super::output::{ack_policy, data};
use super::sizes::{MSS_MIN, WINDOW_CLAMP_MIN, mss_to_announce, shift_for};
use super::{keepalive, user_timeout};
use crate::choices::ChoiceId;
use crate::config::TcpConfig;
use crate::effects::{Effects, Event};
use crate::error::SocketError;
use crate::fib::Choice;
use crate::network_layer::{Cx, NetworkLayer};
use crate::options::{Congestion, KeepAlive, MtuDiscovery, SocketOption, SocketOptions};
use crate::time::Instant;

/// Smallest receive buffer (Linux: SOCK_MIN_RCVBUF).
const RCVBUF_MIN: u32 = 2304;

/// Bits of SO_BUF_LOCK (linux/sockopt.h).
const SNDBUF_LOCK: u32 = 1;
const RCVBUF_LOCK: u32 = 2;

/// The most timeouts of a SYN-ACK for which TCP_DEFER_ACCEPT waits.
pub const DEFERRALS_MAX: u8 = 0x7f;

/// `u32::MAX` stands for no time at all.
fn ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX - 1)
}

/// The options with which the connections of one socket begin.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Without values that the path and the peer determine.
    pub opts: Options,
    /// Which way packets are to go.
    pub choice: ChoiceId,
    pub mss: Option<u16>,
    pub sndbuf: u32,
    pub rcvbuf: u32,
    pub is_rcvbuf_fixed: bool,
    /// Shift of windows that go out, if both sides scale.
    pub shift: u8,
    pub congestion: Congestion,
    /// Largest pacing rate; 0 = no limit.
    pub rate_max: u32,
    /// TCP_DEFER_ACCEPT, in timeouts of the SYN-ACK.
    pub deferrals: u8,
    /// The user timeout that a SYN-ACK announces.
    pub told_timeout: Option<UserTimeout>,
    /// Traffic class and hop limit; those of IPv4 are among the options.
    header_v6: (u8, u8),
    /// The bounds for IPv4 and for IPv6.
    bounds: [Bounds; 2],
}

impl Preset {
    /// `choice` is the number of the way that the socket has chosen.
    pub fn of(options: &SocketOptions, tcp: &TcpConfig, choice: ChoiceId) -> Preset {
        let rcvbuf = options.rcvbuf.unwrap_or(tcp.rcvbuf_initial);
        let clamp = options.window_clamp;
        let rcvbuf = rcvbuf.min(clamp.map_or(u32::MAX, |bytes| bytes.max(WINDOW_CLAMP_MIN)));
        let user_timeout_ms = options.user_timeout.map_or(0, ms);
        let tells_timeout = tcp.user_timeout_option && user_timeout_ms != 0;
        let locks = |bit| options.buf_lock.map(|locked| locked & bit != 0);
        let opts = Options {
            has_timestamps: false,
            has_sack: false,
            has_scaling: false,
            ts_offset: 0,
            no_delay: options.no_delay,
            manner: Manner::of(options.cork, tells_timeout),
            fixed: Fixed::of(
                locks(SNDBUF_LOCK).unwrap_or(options.sndbuf.is_some()),
                options.syn_retries,
            ),
            keep_alive: options.keep_alive.enabled,
            keep_probes: options.keep_alive.probes,
            keep_idle_ms: ms(options.keep_alive.idle),
            keep_interval_ms: ms(options.keep_alive.interval),
            user_timeout_ms,
            linger2_ms: options.linger2.map_or(u32::MAX, ms),
            mss_max: 0,
            tos: options.tos,
            ttl: options.ttl,
        };
        Preset {
            opts,
            choice,
            mss: options.mss,
            sndbuf: options.sndbuf.unwrap_or(tcp.sndbuf_initial),
            rcvbuf,
            is_rcvbuf_fixed: locks(RCVBUF_LOCK).unwrap_or(options.rcvbuf.is_some())
                || clamp.is_some(),
            shift: shift_for(rcvbuf.max(tcp.rcvbuf_max)),
            congestion: options.congestion.unwrap_or(tcp.congestion),
            rate_max: options.max_pacing_rate,
            deferrals: options.defer_accept.min(DEFERRALS_MAX),
            told_timeout: user_timeout::option_of(user_timeout_ms).filter(|_| tells_timeout),
            header_v6: (options.tos_v6, options.ttl_v6),
            bounds: [true, false].map(|is_v4| Bounds::of(options, is_v4)),
        }
    }

    /// TOS and time to live, or traffic class and hop limit.
    #[inline]
    pub fn header(&self, is_v4: bool) -> (u8, u8) {
        if is_v4 {
            (self.opts.tos, self.opts.ttl)
        } else {
            self.header_v6
        }
    }

    /// Longest retransmission timeout.
    pub fn rto_max_ns(&self, tcp: &TcpConfig) -> u64 {
        self.bounds(true).rto_max_ns(tcp)
    }

    #[inline]
    pub fn bounds(&self, is_v4: bool) -> Bounds {
        self.bounds[usize::from(!is_v4)]
    }
}

/// Changes an option of an open connection.
pub fn change(
    conn: &mut Connection,
    option: SocketOption,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Result<(), SocketError> {
    match option {
        SocketOption::NoDelay(on) => {
            conn.opts.no_delay = on;
            if on {
                data::push_held(conn, now, cx, fx);
            }
        }
        SocketOption::Cork(on) => conn.opts.manner.set_corked(on),
        SocketOption::QuickAck(on) => set_quick_ack(conn, on),
        SocketOption::KeepAlive(keep) => set_keep_alive(conn, keep, now, cx),
        SocketOption::UserTimeout(timeout) => user_timeout::set(conn, timeout.map_or(0, ms), cx),
        SocketOption::RcvBuf(bytes) => fix_rcvbuf(conn, bytes.max(RCVBUF_MIN)),
        SocketOption::SndBuf(bytes) => fix_sndbuf(conn, bytes, fx),
        SocketOption::BufLock(bits) => lock_buffers(conn, bits),
        SocketOption::Congestion(kind) => conn.cc.set_kind(kind, cx.config.tcp.pacing),
        SocketOption::MaxPacingRate(most) => conn.limit_rate(most, cx.config.tcp.pacing),
        SocketOption::MaxSeg(Some(mss)) => lower_mss(conn, mss),
        SocketOption::SynCount(tries) => conn.opts.fixed.set_syn_retries(tries.unwrap_or(0)),
        SocketOption::WindowClamp(bytes) => clamp_window(conn, bytes, cx),
        SocketOption::Linger2(time) => conn.opts.linger2_ms = time.map_or(u32::MAX, ms),
        SocketOption::Tos(tos) => set_tos(conn, tos, cx),
        SocketOption::Priority(class) => choose(conn, cx, |choice| choice.class = class),
        SocketOption::Ttl(ttl) if conn.key.is_v4() => set_ttl(conn, ttl, cx),
        SocketOption::TosV6(tos) if !conn.key.is_v4() => conn.opts.tos = tos,
        SocketOption::TtlV6(ttl) if !conn.key.is_v4() => set_ttl(conn, ttl, cx),
        SocketOption::RtoMin(us) => conn.change_bounds(|it| it.rto_min_us = us),
        SocketOption::RtoMax(ms) => conn.change_bounds(|it| it.rto_max_ms = ms),
        SocketOption::AckDelayMax(us) => conn.change_bounds(|it| it.ack_delay_max_us = us),
        SocketOption::Linear(on) => conn.change_bounds(|it| it.is_linear = on),
        SocketOption::ResetsAtEnd(on) => conn.change_bounds(|it| it.resets_at_end = on),
        SocketOption::HopsMin(hops) => set_hops_min(conn, hops, true),
        SocketOption::HopsMinV6(hops) => set_hops_min(conn, hops, false),
        SocketOption::MtuDiscovery(way) => set_mtu_discovery(conn, way, true),
        SocketOption::MtuDiscoveryV6(way) => set_mtu_discovery(conn, way, false),
        SocketOption::Mark(mark) => choose(conn, cx, |choice| choice.mark = mark),
        SocketOption::Table(table) => choose(conn, cx, |choice| choice.table = table),
        SocketOption::Link(link) => choose(conn, cx, |choice| choice.link = link),
        // A default, on a connection that has begun, and options of the other family: no change.
        SocketOption::MaxSeg(None) | SocketOption::SaveSyn(_) | SocketOption::Transparent(_) => {}
        SocketOption::Ttl(_) | SocketOption::TosV6(_) | SocketOption::TtlV6(_) => {}
        SocketOption::FastOpen(_)
        | SocketOption::FastOpenConnect(_)
        | SocketOption::FastOpenNoCookie(_)
        | SocketOption::FastOpenKeys(_)
        | SocketOption::FastOpenSend(_)
        | SocketOption::DeferAccept(_)
        | SocketOption::PortRange(_)
        | SocketOption::TakesJoined(_)
        | SocketOption::ReturnsV4(_)
        | SocketOption::ReturnsV6(_)
        | SocketOption::Rank(_)
        | SocketOption::Cookie(_)
        | SocketOption::AwaitsPeer(_)
        | SocketOption::LeavesUnread(_)
        | SocketOption::Chooser(_)
        | SocketOption::Multicast(_)
        | SocketOption::NoChecksum(_)
        | SocketOption::NoChecksumV6(_)
        | SocketOption::TakesNoChecksumV6(_) => return Err(SocketError::NotSupported),
    }
    Ok(())
}

fn clamp_window(conn: &mut Connection, bytes: Option<u32>, cx: &Cx<'_>) {
    let most = cx.config.tcp.rcvbuf_max;
    fix_rcvbuf(conn, bytes.unwrap_or(0).clamp(WINDOW_CLAMP_MIN, most));
}

fn lower_mss(conn: &mut Connection, mss: u16) {
    conn.opts.mss_max = conn.opts.mss_max.min(mss.max(MSS_MIN));
    conn.set_mss();
}

/// Sets the smallest hop limit of the peer's packets, if the connection is of that family.
fn set_hops_min(conn: &mut Connection, hops: u8, is_for_v4: bool) {
    if conn.key.is_v4() == is_for_v4 {
        conn.change_bounds(|it| it.hops_min = hops);
    }
}

fn set_mtu_discovery(conn: &mut Connection, way: MtuDiscovery, is_for_v4: bool) {
    if conn.key.is_v4() == is_for_v4 {
        conn.change_bounds(|it| it.mtu_discovery = way);
    }
}

fn fix_sndbuf(conn: &mut Connection, bytes: u32, fx: &mut impl Effects) {
    conn.snd.limit = bytes;
    conn.opts.fixed.set_limit(true);
    let conn = conn.id;
    fx.event(Event::SendLimit { conn, bytes });
}

/// From now on the other buffers tune themselves.
fn lock_buffers(conn: &mut Connection, bits: u32) {
    conn.opts.fixed.set_limit(bits & SNDBUF_LOCK != 0);
    conn.rcv.is_buffer_fixed = bits & RCVBUF_LOCK != 0;
}

fn set_quick_ack(conn: &mut Connection, on: bool) {
    conn.rcv.is_interactive = !on;
    conn.rcv.quick = if on { ack_policy::QUICK_SEGMENTS } else { 0 };
    if on && conn.rcv.ack.is_waiting() {
        conn.owe_ack();
    }
}

fn set_keep_alive(conn: &mut Connection, keep: KeepAlive, now: Instant, cx: &mut Cx<'_>) {
    conn.opts.keep_alive = keep.enabled;
    conn.opts.keep_probes = keep.probes;
    conn.opts.keep_idle_ms = ms(keep.idle);
    conn.opts.keep_interval_ms = ms(keep.interval);
    keepalive::arm(conn, now, cx);
}

fn fix_rcvbuf(conn: &mut Connection, bytes: u32) {
    conn.rcv.buffer = bytes;
    conn.rcv.is_buffer_fixed = true;
}

/// Sets the class of the connection's packets back, too.
fn set_tos(conn: &mut Connection, tos: u8, cx: &mut Cx<'_>) {
    if conn.key.is_v4() {
        conn.opts.tos = tos;
    }
    choose(conn, cx, |choice| choice.class = 0);
}

fn set_ttl(conn: &mut Connection, chosen: u8, cx: &Cx<'_>) {
    let query = || conn.key.query().by(cx.net.choices.find(conn.choice));
    conn.opts.ttl = cx.net.ttl(!conn.key.is_v4(), chosen, query);
}

/// Changes the connection's choice of routes: its packets may go another way from now on.
fn choose(conn: &mut Connection, cx: &mut Cx<'_>, set: impl FnOnce(&mut Choice)) {
    let mut choice = cx.net.choices.find(conn.choice);
    set(&mut choice);
    conn.choice = cx.net.choices.note(choice);
    conn.hop = None;
}

/// The MSS that we announce on our link.
pub fn our_mss(key: &FlowKey, preset: &Preset, net: &NetworkLayer) -> u16 {
    mss_to_announce(key, net.mtu_of_own(key.local_ip()), preset.mss)
}
