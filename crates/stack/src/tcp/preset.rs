//! Options of a socket in the form in which its connections keep them.

use core::time::Duration;

use slipstack_wire::user_timeout::UserTimeout;

use super::connection::{Fixed, Manner, Options};
use super::flow::FlowKey;
use super::sizes::{WINDOW_CLAMP_MIN, mss_to_announce, shift_for};
use super::user_timeout;
use crate::choices::ChoiceId;
use crate::config::TcpConfig;
use crate::link::Link;
use crate::options::{Congestion, SocketOptions};

/// The most timeouts of a SYN-ACK for which TCP_DEFER_ACCEPT waits.
pub const DEFERRALS_MAX: u8 = 0x7f;

/// The options with which the connections of one socket begin.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Without what the path and the peer decide.
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
    /// TCP_DEFER_ACCEPT, in timeouts of the SYN-ACK.
    pub deferrals: u8,
    /// The user timeout that a SYN-ACK announces.
    pub told_timeout: Option<UserTimeout>,
    /// Traffic class and hop limit; those of IPv4 are among the options.
    header_v6: (u8, u8),
}

impl Preset {
    /// `choice` is the number of the way that the socket has chosen.
    pub fn of(options: &SocketOptions, tcp: &TcpConfig, choice: ChoiceId) -> Preset {
        let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX - 1);
        let rcvbuf = options.rcvbuf.unwrap_or(tcp.rcvbuf_initial);
        let clamp = options.window_clamp;
        let rcvbuf = rcvbuf.min(clamp.map_or(u32::MAX, |bytes| bytes.max(WINDOW_CLAMP_MIN)));
        let user_timeout_ms = options.user_timeout.map_or(0, ms);
        let tells_timeout = tcp.user_timeout_option && user_timeout_ms != 0;
        let opts = Options {
            has_timestamps: false,
            has_sack: false,
            has_scaling: false,
            ts_offset: 0,
            no_delay: options.no_delay,
            manner: Manner::of(options.cork, tells_timeout),
            fixed: Fixed::of(options.sndbuf.is_some(), options.syn_retries),
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
            is_rcvbuf_fixed: options.rcvbuf.is_some() || clamp.is_some(),
            shift: shift_for(rcvbuf.max(tcp.rcvbuf_max)),
            congestion: options.congestion.unwrap_or(tcp.congestion),
            deferrals: options.defer_accept.min(DEFERRALS_MAX),
            told_timeout: user_timeout::option_of(user_timeout_ms).filter(|_| tells_timeout),
            header_v6: (options.tos_v6, options.ttl_v6),
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
}

/// The MSS that we announce on our link.
pub fn our_mss(key: &FlowKey, preset: &Preset, link: &Link) -> u16 {
    mss_to_announce(key, link.mtu_of_own(key.local_ip()), preset.mss)
}
