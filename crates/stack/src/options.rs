//! Socket options in the stack's own words, with Linux's defaults.
//!
//! `tos` is the differentiated services field of RFC 9293 3.9.1.9.

use core::time::Duration;

use crate::fib::Choice;

/// Which congestion control a connection runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Congestion {
    #[default]
    Cubic,
    NewReno,
    Dctcp,
    Bbr,
}

impl Congestion {
    pub const ALL: [Self; 4] = [Self::Cubic, Self::NewReno, Self::Dctcp, Self::Bbr];

    /// Linux's name (`TCP_CONGESTION`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// It reads marks as a measure, so the handshake offers ECN whatever the configuration says
    /// (RFC 8257 3).
    pub const fn needs_ecn(self) -> bool {
        matches!(self, Self::Dctcp)
    }
}

/// TCP keep-alive (RFC 9293 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    pub enabled: bool,
    /// Silence before the first probe.
    pub idle: Duration,
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            enabled: false,
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
}

/// Everything that can be set before a connection exists. `None` = the configuration's default.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SocketOptions {
    pub no_delay: bool,
    pub cork: bool,
    pub quick_ack: bool,
    /// An active open may put data into its SYN (RFC 7413).
    pub fast_open: bool,
    /// Limit of a listener's connections whose data was taken with the SYN and whose handshake is
    /// not done (RFC 7413 5.1).
    pub fast_open_queue: u32,
    /// Timeouts of a listener's SYN-ACK before an ACK that brings no data opens a connection
    /// (TCP_DEFER_ACCEPT).
    pub defer_accept: u8,
    pub keep_alive: KeepAlive,
    pub user_timeout: Option<Duration>,
    /// Fixed receive buffer (switches auto-tuning off).
    pub rcvbuf: Option<u32>,
    /// Fixed send buffer (switches auto-tuning off).
    pub sndbuf: Option<u32>,
    pub congestion: Option<Congestion>,
    /// Upper limit of the MSS, both announced and used.
    pub mss: Option<u16>,
    /// How long an orphan stays in FIN-WAIT-2.
    pub linger2: Option<Duration>,
    /// Range of the local port, if the stack picks it (IP_LOCAL_PORT_RANGE).
    pub port_range: PortRange,
    /// Retransmissions of a SYN (TCP_SYNCNT).
    pub syn_retries: Option<u8>,
    /// Largest window that is announced (TCP_WINDOW_CLAMP).
    pub window_clamp: Option<u32>,
    /// Type of service of IPv4 packets.
    pub tos: u8,
    /// 0: what the link says.
    pub ttl: u8,
    /// Traffic class of IPv6 packets.
    pub tos_v6: u8,
    pub ttl_v6: u8,
    /// Path MTU discovery of UDP sockets.
    pub mtu_discovery: MtuDiscovery,
    pub mtu_discovery_v6: MtuDiscovery,
    /// By which way packets leave, beside what rules and routes say.
    pub choice: Choice,
}

/// One part of a [`Choice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    Mark(u32),
    /// 0 = as the rules say.
    Table(u16),
    /// As [`Choice::link_of`]; 0 = any.
    Link(u16),
}

impl Chosen {
    pub fn put(self, choice: &mut Choice) {
        match self {
            Chosen::Mark(mark) => choice.mark = mark,
            Chosen::Table(table) => choice.table = table,
            Chosen::Link(link) => choice.link = link,
        }
    }
}

/// IP time to live unless the program, or of IPv6 a router, says otherwise (Linux, RFC 1700).
pub const DEFAULT_TTL: u8 = 64;

/// One change to a living connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption {
    NoDelay(bool),
    Cork(bool),
    QuickAck(bool),
    KeepAlive(KeepAlive),
    UserTimeout(Option<Duration>),
    RcvBuf(u32),
    SndBuf(u32),
    Congestion(Congestion),
    MaxSeg(u16),
    Linger2(Option<Duration>),
    /// 0 = the default.
    SynCount(u8),
    WindowClamp(u32),
    /// Type of service of IPv4 packets; the next two are for IPv6.
    Tos(u8),
    Ttl(u8),
    TosV6(u8),
    TtlV6(u8),
    Choose(Chosen),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Established connections that may wait for accept, as `listen(2)` counts them.
    pub backlog: u32,
    /// May share the address with other listeners that say so too.
    pub reuse_port: bool,
    /// On [::]: IPv4 is not taken in.
    pub is_v6_only: bool,
    /// Options that accepted connections inherit.
    pub socket: SocketOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 128,
            reuse_port: false,
            is_v6_only: false,
            socket: SocketOptions::default(),
        }
    }
}

/// Ports that may be picked, inclusive; 0 as a bound: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    /// This range of a socket in its stack's, as inet_sk_get_local_port_range(): a bound outside of
    /// the stack's is none.
    #[must_use]
    pub fn within(self, stack: PortRange) -> PortRange {
        let of = |bound: u16, default| if stack.has(bound) { bound } else { default };
        PortRange {
            first: of(self.first, stack.first),
            last: of(self.last, stack.last),
        }
    }

    #[inline]
    #[must_use]
    pub fn has(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Number of ports.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.last.saturating_sub(self.first)) + 1
    }
}

/// Treatment of a packet larger than its path takes (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum MtuDiscovery {
    /// It is cut here; a smaller one may be cut on its way.
    Dont,
    /// It is cut here; a smaller one may not be cut any more, so that the path tells what it takes.
    #[default]
    Want,
    /// It is refused.
    Do,
    /// As `Do`, by the link's MTU, whatever the path has told.
    Probe,
    /// It is refused by the link's MTU; a smaller one may be cut on its way.
    Interface,
    /// It is cut here by the link's MTU, and may be again on its way.
    Omit,
}

impl MtuDiscovery {
    /// In the order of Linux's numbers.
    pub const ALL: [Self; 6] = [
        Self::Dont,
        Self::Want,
        Self::Do,
        Self::Probe,
        Self::Interface,
        Self::Omit,
    ];

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    pub(crate) const fn heeds_path(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Do)
    }

    pub(crate) const fn may_fragment(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Omit)
    }

    pub(crate) const fn forbids_fragments(self) -> bool {
        matches!(self, Self::Want | Self::Do | Self::Probe)
    }

    /// Whether ICMP errors may lower what the path is taken to take.
    pub(crate) const fn learns(self) -> bool {
        !matches!(self, Self::Interface | Self::Omit)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UdpOptions {
    /// May be bound beside others that say so too.
    pub is_shared: bool,
    /// Such sockets divide their senders by the flow's hash; otherwise the last one gets all.
    pub reuse_port: bool,
    /// On [::]: IPv4 is not taken in.
    pub is_v6_only: bool,
    /// Range of the port, if the stack picks it.
    pub port_range: PortRange,
    pub broadcast: bool,
    /// Joined datagrams are delivered as they come (UDP_GRO).
    pub takes_joined: bool,
    /// Errors are reported even while the socket is not connected (IP_RECVERR, IPV6_RECVERR).
    pub returns_v4: bool,
    pub returns_v6: bool,
    /// Type of service of IPv4 packets.
    pub tos: u8,
    /// 0: what the link says.
    pub ttl: u8,
    /// Traffic class of IPv6 packets.
    pub tos_v6: u8,
    pub ttl_v6: u8,
    pub mtu_discovery: MtuDiscovery,
    pub mtu_discovery_v6: MtuDiscovery,
    pub choice: Choice,
}

/// One change to a bound UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpOption {
    Broadcast(bool),
    TakesJoined(bool),
    ReturnsV4(bool),
    ReturnsV6(bool),
    /// Type of service of IPv4 packets; the next two are for IPv6.
    Tos(u8),
    Ttl(u8),
    TosV6(u8),
    TtlV6(u8),
    MtuDiscovery(MtuDiscovery),
    MtuDiscoveryV6(MtuDiscovery),
    Choose(Chosen),
}

/// How a program lets go of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Written data is delivered, then FIN.
    Orderly,
    /// RST at once (SO_LINGER with zero time).
    Abort,
}
