//! Configuration of a stack when it is made.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use slipstack_network::NetworkState;
pub use slipstack_terms::EcnMode;

use crate::options::{Congestion, KeepAlive};
use crate::slaac::Identifiers;

/// Which part of a machine's networking this stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// Alone on its link: answers ARP and ICMP, resets segments to closed ports.
    #[default]
    Standalone,
    /// A keeper answers ARP and ICMP; this stack still sends ARP requests of its own.
    Engine,
    /// The stack that answers for all engines; behaves as `Standalone`.
    Keeper,
}

/// Parameters of address configuration from the link (RFC 4862).
#[derive(Clone, Debug)]
pub struct SlaacConfig {
    pub identifiers: Identifiers,
    /// The link-local one among them.
    pub addresses_max: usize,
    /// Earlier state of this link: [`crate::Stack::slaac_image`], or nothing.
    pub image: Vec<u64>,
}

#[derive(Clone, Debug)]
pub struct StackConfig {
    pub mac: [u8; 6],
    /// The network at the beginning; [`crate::Stack::set_network`] puts another in its place.
    pub network: Arc<NetworkState>,
    /// Largest TCP payload of one super-frame in bytes, 0 = the device does not segment.
    pub tso_max: u32,
    /// The device segments joined datagrams.
    pub has_udp_segmentation: bool,
    pub role: Role,
    /// Ports of active opens and unbound UDP sockets, inclusive.
    pub ephemeral: (u16, u16),
    /// Ports of those that may be picked.
    pub ports: crate::options::PortRange,
    /// The permutation of ports that the numbers of that range refer to.
    pub scatter: crate::scatter::Scatter,
    /// Senders get no error for a closed UDP port (FreeBSD's `net.inet.udp.blackhole`).
    pub udp_blackhole: bool,
    pub neighbour: NeighbourConfig,
    /// Memory of the fragments of each family that wait for the rest of their packets; beyond it
    /// the oldest go.
    pub fragments_bytes_max: u32,
    /// IPv6 addresses and default routes come from the link's routers; `None`: as configured.
    pub slaac: Option<SlaacConfig>,
    /// ICMP errors that may be sent per second (RFC 1812 4.3.2.8).
    pub icmp_errors_per_second: u32,
    pub tcp: TcpConfig,
    /// Time for which the packet filter knows flows, and their number.
    pub filter_states: crate::filter::StateTimes,
    /// Root of all randomness: ports, sequence numbers, hash keys.
    pub seed: [u8; 32],
    /// Key of initial sequence numbers and timestamp offsets (RFC 6528 3), where stacks that share
    /// an address are to number the connections of the same two ends as one would; `None`: from the
    /// seed.
    pub sequence_key: Option<[u64; 2]>,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            mac: [0x02, 0, 0, 0, 0, 1],
            network: Arc::new(NetworkState::of(1500, Vec::new(), &[])),
            tso_max: 0,
            has_udp_segmentation: false,
            role: Role::Standalone,
            ephemeral: (32768, 60999),
            ports: crate::options::PortRange {
                first: 32768,
                last: 60999,
            },
            scatter: crate::scatter::Scatter::NONE,
            udp_blackhole: false,
            neighbour: NeighbourConfig::default(),
            fragments_bytes_max: 4 << 20,
            slaac: None,
            filter_states: crate::filter::StateTimes::DEFAULT,
            icmp_errors_per_second: 1000,
            tcp: TcpConfig::default(),
            seed: [0; 32],
            sequence_key: None,
        }
    }
}

impl StackConfig {
    /// The network, to be changed before the stack is made.
    pub fn network_mut(&mut self) -> &mut NetworkState {
        Arc::make_mut(&mut self.network)
    }
}

/// Limits and times of the neighbour cache (Linux's `net.ipv4.neigh.default`).
#[derive(Clone, Debug)]
pub struct NeighbourConfig {
    /// Entries; beyond it the oldest unused one goes.
    pub entries_max: usize,
    /// Frames kept per neighbour while it is being resolved; the oldest goes first.
    pub queue_len_max: usize,
    /// Reachable time: how long a confirmed address is used without a new confirmation.
    pub reachable: Duration,
    /// Time for which an address that a neighbour announced unasked is used before it is verified
    /// (RFC 4861 10: DELAY_FIRST_PROBE_TIME).
    pub heard: Duration,
    /// Distance of requests.
    pub retry: Duration,
    /// Unanswered requests before the neighbour counts as unreachable.
    pub probes_max: u8,
}

impl Default for NeighbourConfig {
    fn default() -> Self {
        Self {
            entries_max: 1024,
            queue_len_max: 256,
            reachable: Duration::from_secs(30),
            heard: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            probes_max: 3,
        }
    }
}

/// Conditions for keeping half-open connections in a cookie instead of an entry (`tcp_syncookies`,
/// RFC 4987 3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SynCookies {
    Never,
    /// Used while the table of half-open connections, or a listener's share of it, is full.
    #[default]
    WhenFull,
    Always,
}

/// Data in SYNs (RFC 7413); the bits of `tcp_fastopen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenConfig {
    pub client: bool,
    pub server: bool,
    /// Data leaves without a cookie, and is taken without one: only where addresses cannot be
    /// forged.
    pub client_without_cookie: bool,
    pub server_without_cookie: bool,
}

impl FastOpenConfig {
    /// Linux's bits: 1, 2, 4 and 0x200.
    pub const fn from_bits(bits: u32) -> FastOpenConfig {
        FastOpenConfig {
            client: bits & 1 != 0,
            server: bits & 2 != 0,
            client_without_cookie: bits & 4 != 0,
            server_without_cookie: bits & 0x200 != 0,
        }
    }
}

impl Default for FastOpenConfig {
    fn default() -> Self {
        Self::from_bits(1)
    }
}

/// Limits, times and defaults of TCP; the values are Linux's unless noted otherwise.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Receive buffer in bytes: where auto-tuning begins and ends (`tcp_rmem`).
    pub rcvbuf_initial: u32,
    pub rcvbuf_max: u32,
    /// Send buffer in bytes: where auto-tuning begins and ends (`tcp_wmem`).
    pub sndbuf_initial: u32,
    pub sndbuf_max: u32,
    /// Initial window in segments (RFC 6928).
    pub initial_cwnd: u32,
    pub rto_min: Duration,
    pub rto_initial: Duration,
    pub rto_max: Duration,
    /// The longest delay of an ACK that waits for data to carry it, whatever the estimate; zero: no
    /// delay.
    pub delayed_ack: Duration,
    pub time_wait: Duration,
    /// Time for which an orphan stays in FIN-WAIT-2 (`tcp_fin_timeout`).
    pub fin_wait2: Duration,
    /// Retransmissions of a SYN before the attempt fails (`tcp_syn_retries`).
    pub syn_retries: u8,
    /// Retransmissions of a SYN-ACK (`tcp_synack_retries`).
    pub synack_retries: u8,
    /// Retransmissions of data before the connection is given up (`tcp_retries2`).
    pub retries: u8,
    /// Retries for a connection that no program holds (`tcp_orphan_retries`).
    pub orphan_retries: u8,
    pub congestion: Congestion,
    pub ecn: EcnMode,
    /// Segments are spread over the round trip; BBR does so anyway.
    pub pacing: bool,
    pub keep_alive: KeepAlive,
    pub window_scaling: bool,
    pub timestamps: bool,
    pub sack: bool,
    pub conns_max: u32,
    /// Connections that may wait for a listener's program, whatever backlog it requests
    /// (`somaxconn`).
    pub backlog_max: u32,
    pub syn_entries_max: u32,
    pub syn_cookies: SynCookies,
    pub mtu_probing: MtuProbing,
    /// Segment size at which a search for the path's MTU begins (Linux: `tcp_base_mss`).
    pub mtu_base_mss: u16,
    /// After this time the path may take larger packets than it did (Linux: `tcp_probe_interval`).
    pub mtu_probe_interval: Duration,
    pub fast_open: FastOpenConfig,
    /// TCP_USER_TIMEOUT is announced to peers, and theirs is obeyed (RFC 5482: ENABLED).
    pub user_timeout_option: bool,
    pub time_waits_max: u32,
    /// Connections that no program holds; beyond this number a closed one is reset at once (Linux:
    /// `tcp_max_orphans`).
    pub orphans_max: u32,
    /// Challenge ACKs per second, of the whole stack (RFC 5961 7).
    pub challenge_acks_per_second: u32,
    /// Resets to closed ports per second.
    pub resets_per_second: u32,
    /// Segments to closed ports that get no reset: 0 none, 1 SYNs, 2 all (FreeBSD's
    /// `net.inet.tcp.blackhole`).
    pub blackhole: u8,
}

/// Is the path's MTU searched for (RFC 4821; the numbers of Linux's `tcp_mtu_probing`)?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuProbing {
    /// 0: only ICMP errors lower it.
    #[default]
    Off,
    /// 1: once large packets have vanished.
    BlackHole,
    /// 2: from the base size on, by every connection.
    Always,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            rcvbuf_initial: 131_072,
            rcvbuf_max: 6 << 20,
            sndbuf_initial: 87_040,
            sndbuf_max: 4 << 20,
            initial_cwnd: 10,
            rto_min: Duration::from_millis(200),
            rto_initial: Duration::from_secs(1),
            rto_max: Duration::from_secs(120),
            // A sender's timeout is 200 ms and more (Linux: TCP_DELACK_MAX is that, to our 160).
            delayed_ack: Duration::from_millis(160),
            time_wait: Duration::from_secs(60),
            fin_wait2: Duration::from_secs(60),
            syn_retries: 6,
            synack_retries: 5,
            retries: 15,
            orphan_retries: 8,
            congestion: Congestion::Cubic,
            ecn: EcnMode::Passive,
            pacing: false,
            keep_alive: KeepAlive::LINUX,
            window_scaling: true,
            timestamps: true,
            sack: true,
            conns_max: 1 << 20,
            backlog_max: 4096,
            syn_entries_max: 16_384,
            syn_cookies: SynCookies::default(),
            mtu_probing: MtuProbing::Off,
            mtu_base_mss: 1024,
            mtu_probe_interval: Duration::from_secs(600),
            fast_open: FastOpenConfig::default(),
            user_timeout_option: false,
            time_waits_max: 262_144,
            orphans_max: 65_536,
            challenge_acks_per_second: 1000,
            resets_per_second: 1000,
            blackhole: 0,
        }
    }
}
