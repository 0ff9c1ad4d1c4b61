//! Tunable values of a stack, by name: set at the start, and many while it runs.
//!
//! A row names the field of [`StackConfig`] that it sets, so that the field's default is the only
//! one. Times are milliseconds, switches 0 and 1.

use core::time::Duration;

use crate::config::{EcnMode, FastOpenConfig, MtuProbing, StackConfig, SynCookies};
use crate::options::Congestion;
use crate::stack::Stack;

/// Time at which a new value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only a stack that is made afterwards has it.
    AtStart,
    /// At once: for new connections, and for old ones where they look the value up.
    Live,
}

/// A field's type as a number.
trait Scalar: Copy {
    fn number(self) -> u32;
    /// Only numbers that a row's range admits come here.
    fn of(number: u32) -> Self;
}

impl Scalar for u32 {
    fn number(self) -> u32 {
        self
    }

    fn of(number: u32) -> Self {
        number
    }
}

impl Scalar for u16 {
    fn number(self) -> u32 {
        self.into()
    }

    fn of(number: u32) -> Self {
        u16::try_from(number).unwrap_or(u16::MAX)
    }
}

impl Scalar for u8 {
    fn number(self) -> u32 {
        self.into()
    }

    fn of(number: u32) -> Self {
        u8::try_from(number).unwrap_or(u8::MAX)
    }
}

impl Scalar for bool {
    fn number(self) -> u32 {
        self.into()
    }

    fn of(number: u32) -> Self {
        number != 0
    }
}

impl Scalar for Duration {
    fn number(self) -> u32 {
        u32::try_from(self.as_millis()).unwrap_or(u32::MAX)
    }

    fn of(number: u32) -> Self {
        Duration::from_millis(number.into())
    }
}

impl Scalar for FastOpenConfig {
    fn number(self) -> u32 {
        u32::from(self.client)
            | u32::from(self.server) << 1
            | u32::from(self.client_without_cookie) << 2
            | u32::from(self.server_without_cookie) << 9
    }

    fn of(number: u32) -> Self {
        FastOpenConfig::from_bits(number)
    }
}

/// Implements [`Scalar`] for enumerations by the place of each variant.
macro_rules! enumerated {
    ($($type:ident: $($variant:ident)+;)+) => {$(
        impl Scalar for $type {
            fn number(self) -> u32 {
                self as u32
            }

            fn of(number: u32) -> Self {
                const ALL: &[$type] = &[$($type::$variant),+];
                ALL.get(number as usize).copied().unwrap_or(ALL[0])
            }
        }
    )+};
}
enumerated! {
    Congestion: Cubic NewReno Dctcp Bbr;
    EcnMode: Off Passive On;
    MtuProbing: Off BlackHole Always;
    SynCookies: Never WhenFull Always;
}

/// Declares the tunables: variant, name, range, effect, and the field of [`StackConfig`].
macro_rules! tunables {
    ($($variant:ident = $name:literal $min:literal ..= $max:literal, $effect:ident,
        $($field:ident).+, $help:literal;)+) => {
        /// One number of a stack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Tunable {$(
            #[doc = $help]
            $variant,
        )+}

        impl Tunable {
            pub const ALL: &'static [Tunable] = &[$(Tunable::$variant),+];

            /// Name, for messages between processes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Tunable::$variant => $name,)+
                }
            }

            /// One sentence for people.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Tunable::$variant => $help,)+
                }
            }

            /// Least and greatest value.
            #[must_use]
            pub const fn range(self) -> (u32, u32) {
                match self {
                    $(Tunable::$variant => ($min, $max),)+
                }
            }

            /// Time at which a new value takes effect.
            #[must_use]
            pub const fn effect(self) -> Effect {
                match self {
                    $(Tunable::$variant => Effect::$effect,)+
                }
            }
        }

        impl Tunable {
            /// Returns the tunable of a name, if there is one.
            #[must_use]
            pub fn find(name: &str) -> Option<Tunable> {
                Self::ALL.iter().copied().find(|it| it.name() == name)
            }
        }

        impl StackConfig {
            /// Returns the value in force.
            #[must_use]
            pub fn tunable(&self, tunable: Tunable) -> u32 {
                match tunable {
                    $(Tunable::$variant => Scalar::number(self.$($field).+),)+
                }
            }

            /// Sets a value; one outside the range becomes the nearest inside.
            pub fn tune(&mut self, tunable: Tunable, value: u32) {
                let (min, max) = tunable.range();
                let value = value.clamp(min, max);
                match tunable {
                    $(Tunable::$variant => self.$($field).+ = Scalar::of(value),)+
                }
            }
        }
    };
}

tunables! {
    ReceiveBuffer = "tcp.receive_buffer" 4096 ..= 1_073_741_824, Live, tcp.rcvbuf_initial,
        "Receive buffer of a new connection in bytes, where auto-tuning begins";
    ReceiveBufferMax = "tcp.receive_buffer_max" 4096 ..= 1_073_741_824, Live, tcp.rcvbuf_max,
        "Bytes up to which auto-tuning grows a receive buffer";
    SendBuffer = "tcp.send_buffer" 4096 ..= 1_073_741_824, Live, tcp.sndbuf_initial,
        "Send buffer of a new connection in bytes, where auto-tuning begins";
    SendBufferMax = "tcp.send_buffer_max" 4096 ..= 1_073_741_824, Live, tcp.sndbuf_max,
        "Bytes up to which auto-tuning grows a send buffer";
    InitialWindow = "tcp.initial_window" 1 ..= 1000, Live, tcp.initial_cwnd,
        "Congestion window of a new connection in segments";
    RtoMin = "tcp.rto_min" 1 ..= 120_000, Live, tcp.rto_min,
        "Least time before a retransmission, in milliseconds";
    RtoMax = "tcp.rto_max" 1000 ..= 120_000, Live, tcp.rto_max,
        "Greatest time before a retransmission, in milliseconds";
    DelayedAck = "tcp.delayed_ack" 0 ..= 500, Live, tcp.delayed_ack,
        "Milliseconds that an ACK waits for data to carry it, at most; 0: none waits";
    TimeWait = "tcp.time_wait" 0 ..= 3_600_000, Live, tcp.time_wait,
        "Milliseconds that a connection stays in TIME-WAIT";
    FinWait2 = "tcp.fin_wait2" 0 ..= 3_600_000, Live, tcp.fin_wait2,
        "Milliseconds that a connection without a program waits for its peer's FIN";
    SynRetries = "tcp.syn_retries" 1 ..= 127, Live, tcp.syn_retries,
        "Retransmissions of a SYN";
    SynAckRetries = "tcp.synack_retries" 0 ..= 255, Live, tcp.synack_retries,
        "Retransmissions of a SYN-ACK";
    Retries = "tcp.retries" 1 ..= 255, Live, tcp.retries,
        "Retransmissions of data before the connection is given up";
    OrphanRetries = "tcp.orphan_retries" 0 ..= 255, Live, tcp.orphan_retries,
        "Retransmissions of a connection that no program holds";
    OrphansMax = "tcp.orphans_max" 0 ..= 1_048_576, Live, tcp.orphans_max,
        "Connections without a program; one more is reset";
    CongestionControl = "tcp.congestion_control" 0 ..= 3, Live, tcp.congestion,
        "Congestion control of connections that do not choose";
    Ecn = "tcp.ecn" 0 ..= 2, Live, tcp.ecn,
        "Explicit congestion notification: off, agreed to, asked for";
    Pacing = "tcp.pacing" 0 ..= 1, Live, tcp.pacing,
        "Segments of every connection are spread over its round trip";
    KeepIdle = "tcp.keep_idle" 1000 ..= 32_767_000, Live, tcp.keep_alive.idle,
        "Milliseconds of silence before a keep-alive probe";
    KeepInterval = "tcp.keep_interval" 1000 ..= 32_767_000, Live, tcp.keep_alive.interval,
        "Milliseconds between keep-alive probes";
    KeepProbes = "tcp.keep_probes" 1 ..= 127, Live, tcp.keep_alive.probes,
        "Unanswered keep-alive probes before the connection is given up";
    KeepAlways = "tcp.keep_always" 0 ..= 1, Live, tcp.keep_alive.enabled,
        "Keep-alive probes for connections that do not ask for them";
    WindowScaling = "tcp.window_scaling" 0 ..= 1, Live, tcp.window_scaling,
        "Window scale option";
    Timestamps = "tcp.timestamps" 0 ..= 1, Live, tcp.timestamps,
        "Timestamps option";
    Sack = "tcp.sack" 0 ..= 1, Live, tcp.sack,
        "Selective acknowledgements";
    BacklogMax = "tcp.backlog_max" 1 ..= 1_048_576, Live, tcp.backlog_max,
        "Connections that may wait for a listener's program, whatever it asks for";
    SynEntriesMax = "tcp.syn_entries_max" 1 ..= 1_048_576, AtStart, tcp.syn_entries_max,
        "Half-open connections of an engine";
    TimeWaitsMax = "tcp.time_waits_max" 1 ..= 1_048_576, AtStart, tcp.time_waits_max,
        "Connections in TIME-WAIT of an engine";
    Syncookies = "tcp.syncookies" 0 ..= 2, Live, tcp.syn_cookies,
        "SYN cookies: never, when the table is full, always";
    MtuProbe = "tcp.mtu_probing" 0 ..= 2, Live, tcp.mtu_probing,
        "Search for the path's MTU: never, in a black hole, always";
    BaseMss = "tcp.base_mss" 88 ..= 65_495, Live, tcp.mtu_base_mss,
        "Segment size at which that search begins";
    ProbeInterval = "tcp.probe_interval" 1000 ..= 86_400_000, Live, tcp.mtu_probe_interval,
        "Milliseconds after which that search begins again";
    FastOpen = "tcp.fastopen" 0 ..= 0x207, Live, tcp.fast_open,
        "Fast Open: 1 client, 2 server, 4 and 512 each without a cookie";
    UserTimeoutOption = "tcp.user_timeout_option" 0 ..= 1, Live, tcp.user_timeout_option,
        "User timeout option of RFC 5482";
    PortFirst = "ip.port_first" 1 ..= 65_535, Live, ports.first,
        "First outgoing port";
    PortLast = "ip.port_last" 1 ..= 65_535, Live, ports.last,
        "Last outgoing port";
    Blackhole = "tcp.blackhole" 0 ..= 2, Live, tcp.blackhole,
        "Segments to closed ports that get no reset: none, SYNs, all";
    UdpBlackhole = "udp.blackhole" 0 ..= 1, Live, udp_blackhole,
        "Senders are not told that a UDP port is closed";
    FilterAck = "filter.ack_lifetime" 1000 ..= 86_400_000, Live, filter_states.ack,
        "Milliseconds that the filter knows an open TCP connection without a packet";
    FilterSyn = "filter.syn_lifetime" 1000 ..= 86_400_000, Live, filter_states.syn,
        "Milliseconds that the filter knows a connection during its handshake";
    FilterFin = "filter.fin_lifetime" 1000 ..= 86_400_000, Live, filter_states.fin,
        "Milliseconds that the filter knows a connection closed by both sides";
    FilterRst = "filter.rst_lifetime" 1000 ..= 86_400_000, Live, filter_states.rst,
        "Milliseconds that the filter knows a connection that was reset";
    FilterUdp = "filter.udp_lifetime" 1000 ..= 86_400_000, Live, filter_states.udp,
        "Milliseconds that the filter knows a UDP flow";
    FilterShort = "filter.short_lifetime" 1000 ..= 86_400_000, Live, filter_states.short,
        "Milliseconds that the filter knows a flow of another protocol";
    FilterMax = "filter.states_max" 1 ..= 1_048_576, Live, filter_states.max,
        "Flows that the filter of an engine knows; no more are let in";
    FilterKeepalive = "filter.keepalive" 0 ..= 1, Live, filter_states.keepalive,
        "An open connection of the stack's is known however long it is idle";
    FragmentsMax = "ip.fragments_max" 131_072 ..= 1_073_741_824, AtStart, fragments_bytes_max,
        "Bytes of fragments of each family that wait for the rest";
}

impl Stack {
    /// The number that is in force.
    pub fn tunable(&self, tunable: Tunable) -> u32 {
        self.config.tunable(tunable)
    }

    /// Sets a number of a running stack; one that only a new stack can have stays.
    pub fn tune(&mut self, tunable: Tunable, value: u32) {
        if tunable.effect() == Effect::AtStart {
            return;
        }
        self.config.tune(tunable, value);
        if tunable == Tunable::DelayedAck {
            self.delayed_ack = self.config.tcp.delayed_ack;
        }
        if let Some(filter) = &mut self.net.filter {
            filter.set_times(self.config.filter_states);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_range_and_unchanged_when_set() {
        let mut config = StackConfig::default();
        for tunable in Tunable::ALL {
            let (min, max) = tunable.range();
            let value = config.tunable(*tunable);
            assert!((min..=max).contains(&value), "{}", tunable.name());
            config.tune(*tunable, value);
            assert_eq!(config.tunable(*tunable), value);
            for edge in [min, max] {
                config.tune(*tunable, edge);
                let is_bits = *tunable == Tunable::FastOpen;
                assert!(
                    is_bits || config.tunable(*tunable) == edge,
                    "{}",
                    tunable.name()
                );
            }
        }
    }
}
