//! Packets to addresses that are not ours: those of connections that have such an address as their
//! own end (IP_TRANSPARENT), and those for others.

use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::{protocol, tcp};

use crate::counters::Counter;
use crate::effects::{Effects, RxMeta};
use crate::ip::IpMeta;
use crate::stack::{Stack, cx};
use crate::tcp::FlowKey;
use crate::time::Instant;

impl Stack {
    /// Takes a packet of IPv4 that is well-formed and not to one of our addresses.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_foreign_ipv4(
        &mut self,
        now: Instant,
        bytes: &[u8],
        link_group: bool,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        if let Ok(packet) = Ipv4Packet::parse(bytes) {
            let header = &packet.header;
            let ip = IpMeta::of_v4(header, false, meta);
            let is_whole = !packet.is_fragment && !link_group;
            if is_whole && self.has_transparent(&ip, header.protocol, packet.payload) {
                self.counters.bump(Counter::RxIpv4);
                return match header.protocol {
                    protocol::TCP => self.on_tcp(now, &ip, &packet, meta, fx),
                    _ => self.on_transparent_udp(&ip, packet.payload, meta, fx),
                };
            }
        }
        match self.config.network.is_forwarding {
            true => self.forward_v4(now, bytes, link_group, meta, fx),
            false => self.counters.bump(Counter::DropIpv4NotOurs),
        }
    }

    /// Takes a packet of IPv6 that is well-formed and not to one of our addresses.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_foreign_ipv6(
        &mut self,
        now: Instant,
        bytes: &[u8],
        link_group: bool,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        if let Some(packet) = Ipv6Packet::parse(bytes) {
            let header = &packet.header;
            let ip = IpMeta::of_v6(header, meta);
            if !link_group && self.has_transparent(&ip, header.next_header, packet.payload) {
                self.counters.bump(Counter::RxIpv6);
                return match header.next_header {
                    protocol::TCP => self.on_tcp_v6(now, &ip, packet.payload, meta, fx),
                    _ => self.on_transparent_udp(&ip, packet.payload, meta, fx),
                };
            }
        }
        match self.config.network.is_forwarding {
            true => self.forward_v6(now, bytes, link_group, meta, fx),
            false => self.counters.bump(Counter::DropIpv6NotOurs),
        }
    }

    fn on_transparent_udp(
        &mut self,
        ip: &IpMeta,
        datagram: &[u8],
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        let mut cx = cx!(self);
        self.udp.on_datagram(ip, datagram, meta, &mut cx, fx);
    }

    /// Returns whether a socket of ours has both ends of the packet.
    fn has_transparent(&self, ip: &IpMeta, number: u8, transport: &[u8]) -> bool {
        let Some(quoted) = tcp::Quoted::parse(transport) else {
            return false;
        };
        let (own, peer) = (quoted.dst_port, quoted.src_port);
        match number {
            protocol::TCP => {
                let key = FlowKey::new(ip.dst, own, ip.src, peer);
                self.tcp.has_place(&key)
            }
            protocol::UDP => {
                let ends = ((ip.dst, own).into(), (ip.src, peer).into());
                self.udp.has_connected(ends)
            }
            _ => false,
        }
    }
}
