//! Bounds that the program sets for one connection: of its timers (TCP_RTO_MIN_US, TCP_RTO_MAX_MS,
//! TCP_DELACK_MAX_US, TCP_THIN_LINEAR_TIMEOUTS), and of the hop limit of its peer's packets
//! (IP_MINTTL, IPV6_MINHOPCOUNT); the size of its own (IP_MTU_DISCOVER, IPV6_MTU_DISCOVER); and
//! whether the program's end resets it (SO_LINGER).
//!
//! RFC 5082 3: packets of a neighbour arrive with the hop limit 255, those from farther away with
//! less.

mod of_connection;

use crate::config::TcpConfig;
use crate::options::{MtuDiscovery, SocketOptions};
use crate::time::nanos;

/// Linux refuses smaller ones (do_tcp_setsockopt()); a program may write others into the channel.
const RTO_MAX_LEAST_MS: u64 = 1_000;
const RTO_MIN_LEAST_US: u64 = 2_000;

/// 0 stands for the configured bound; a hop limit of 0 admits every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub rto_min_us: u32,
    pub rto_max_ms: u32,
    pub ack_delay_max_us: u32,
    pub hops_min: u8,
    /// The first timeouts of a connection with few segments in flight are equally long.
    pub is_linear: bool,
    pub mtu_discovery: MtuDiscovery,
    /// The program's end resets the connection.
    pub resets_at_end: bool,
}

impl Bounds {
    pub fn of(options: &SocketOptions, is_v4: bool) -> Bounds {
        Bounds {
            rto_min_us: options.rto_min_us,
            rto_max_ms: options.rto_max_ms,
            ack_delay_max_us: options.ack_delay_max_us,
            hops_min: if is_v4 {
                options.hops_min
            } else {
                options.hops_min_v6
            },
            is_linear: options.is_linear,
            mtu_discovery: if is_v4 {
                options.mtu_discovery
            } else {
                options.mtu_discovery_v6
            },
            resets_at_end: options.resets_at_end,
        }
    }

    pub fn rto_max_ns(&self, tcp: &TcpConfig) -> u64 {
        match u64::from(self.rto_max_ms) {
            0 => nanos(tcp.rto_max),
            ms => ms.max(RTO_MAX_LEAST_MS) * 1_000_000,
        }
    }

    pub fn rto_min_ns(&self, tcp: &TcpConfig) -> u64 {
        match u64::from(self.rto_min_us) {
            0 => nanos(tcp.rto_min),
            us => us.max(RTO_MIN_LEAST_US) * 1_000,
        }
    }

    pub fn ack_delay_max_ns(&self, tcp: &TcpConfig) -> u64 {
        let most = nanos(tcp.delayed_ack);
        match u64::from(self.ack_delay_max_us) {
            0 => most,
            us => most.min(us * 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_is_not_set_is_the_configured_one() {
        let tcp = TcpConfig::default();
        let none = Bounds::default();
        assert_eq!(none.rto_min_ns(&tcp), nanos(tcp.rto_min));
        assert_eq!(none.rto_max_ns(&tcp), nanos(tcp.rto_max));
        assert_eq!(none.ack_delay_max_ns(&tcp), nanos(tcp.delayed_ack));
        let set = Bounds {
            rto_min_us: 40_000,
            rto_max_ms: 2_000,
            ack_delay_max_us: 10_000_000,
            ..none
        };
        assert_eq!(set.rto_min_ns(&tcp), 40_000_000);
        assert_eq!(set.rto_max_ns(&tcp), 2_000_000_000);
        assert_eq!(set.ack_delay_max_ns(&tcp), nanos(tcp.delayed_ack));
    }

    #[test]
    fn the_hop_limit_is_that_of_the_connection_s_family() {
        let options = SocketOptions {
            hops_min: 255,
            hops_min_v6: 254,
            ..SocketOptions::default()
        };
        assert_eq!(Bounds::of(&options, true).hops_min, 255);
        assert_eq!(Bounds::of(&options, false).hops_min, 254);
    }
}
