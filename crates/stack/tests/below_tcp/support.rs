//! A stack under test: frames are built by hand, effects are recorded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use slipstack_stack::*;
use slipstack_wire::arp::{ArpOperation, ArpPacket};
use slipstack_wire::ethernet::{self, BROADCAST, EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv4::{Ipv4Header, Ipv4Packet};
use slipstack_wire::ipv6::Ipv6Header;
use slipstack_wire::{checksum, protocol, udp};

pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];
pub const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A returned error: destination, reason, offender, type and code, quoted payload.
pub type Returned = (SocketAddr, Reason, IpAddr, [u8; 2], Vec<u8>);

#[derive(Debug, Default)]
pub struct Recorder {
    pub frames: Vec<Vec<u8>>,
    pub local: Vec<bool>,
    /// The VLAN of each frame.
    pub links: Vec<u16>,
    /// Segmentation of each frame.
    pub cuts: Vec<Option<Gso>>,
    pub datagrams: Vec<(UdpId, SocketAddr, SocketAddr, Vec<u8>)>,
    pub events: Vec<Event>,
    pub groups: Vec<(LinkedGroup, GroupFilter)>,
    pub returned: Vec<Returned>,
    /// MTU, or position of the error, in each of them.
    pub returned_info: Vec<u32>,
}

impl Effects for Recorder {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        let mut bytes = frame.header.to_vec();
        let payload: &[u8] = match frame.payload {
            Payload::None => &[],
            Payload::Inline(bytes) => bytes,
            Payload::Stream { .. } => panic!("nobody wrote to a stream"),
        };
        if let Some(partial) = frame.offload.checksum {
            partial.complete(&mut bytes, [payload]);
        }
        bytes.extend_from_slice(payload);
        self.frames.push(bytes);
        self.local.push(frame.local);
        self.links.push(frame.offload.link);
        self.cuts.push(frame.offload.gso);
    }

    fn store(&mut self, _: ConnId, _: u64, _: &[u8]) -> bool {
        false
    }

    fn datagram(&mut self, udp: UdpId, datagram: &DatagramIn<'_>) {
        let bytes = datagram.payload.to_vec();
        self.datagrams
            .push((udp, datagram.from, datagram.to, bytes));
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn group(&mut self, group: LinkedGroup, filter: &GroupFilter) {
        self.groups.push((group, filter.clone()));
    }

    fn returned(&mut self, _: UdpId, to: SocketAddr, reason: Reason, told: &IcmpDetails<'_>) {
        let (which, payload) = ([told.kind, told.code], told.payload.to_vec());
        self.returned_info.push(told.info);
        self.returned
            .push((to, reason, told.offender, which, payload));
    }
}

/// A stack, its clock and its recorded effects.
pub struct Table {
    pub stack: Stack,
    pub now: Instant,
    pub fx: Recorder,
}

impl Table {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut StackConfig)) -> Self {
        let mut config = StackConfig {
            network: NetworkState::of(1500, vec![(IP.into(), 24)], &[GATEWAY.into()]).into(),
            mac: MAC,
            seed: [42; 32],
            ..StackConfig::default()
        };
        change(&mut config);
        let now = Instant::from_millis(1_000_000);
        Self {
            stack: Stack::new(config, now),
            now,
            fx: Recorder::default(),
        }
    }

    pub fn input(&mut self, frame: &[u8]) {
        self.stack
            .on_frame(self.now, frame, RxMeta::UNKNOWN, &mut self.fx);
    }

    /// Lets time pass, with timers at the times that the stack returns.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.plus_nanos(ms * 1_000_000);
        while let Some(at) = self.stack.next_deadline().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.stack.on_timers(self.now, &mut self.fx);
        }
        self.now = end;
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.stack.counters().value(counter)
    }

    pub fn take_frames(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.fx.frames)
    }

    /// The peer announces itself by an ARP request for us.
    pub fn introduce_peer(&mut self) {
        self.input(&arp_frame(ArpOperation::Request, PEER_MAC, PEER, IP));
        self.take_frames();
    }

    pub fn set_multicast(&mut self, id: UdpId, option: MulticastOption) -> Result<(), SocketError> {
        self.stack
            .udp_set_option(id, SocketOption::Multicast(option))
    }

    pub fn bind(&mut self, addr: &str) -> UdpId {
        self.stack
            .udp_bind(addr.parse().unwrap(), UdpOptions::default())
            .unwrap()
    }
}

pub fn arp_frame(operation: ArpOperation, mac: [u8; 6], from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let dst = if operation == ArpOperation::Request {
        BROADCAST
    } else {
        MAC
    };
    let packet = ArpPacket {
        operation,
        sender_mac: mac,
        sender_ip: from,
        target_mac: MAC,
        target_ip: to,
    };
    packet.frame_to(dst).into()
}

pub fn ip_frame(proto: u8, src: Ipv4Addr, dst: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 34];
    EthernetHeader {
        dst: MAC,
        src: PEER_MAC,
        ethertype: EtherType::IPV4,
    }
    .emit(&mut frame);
    Ipv4Header {
        tos: 0,
        total_len: 20 + payload.len() as u16,
        identification: 1,
        dont_fragment: false,
        ttl: 64,
        protocol: proto,
        src,
        dst,
    }
    .emit(&mut frame[14..]);
    frame.extend_from_slice(payload);
    frame
}

pub fn udp_frame(src: (Ipv4Addr, u16), dst: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = udp::header(src.1, dst.1, payload.len()).to_vec();
    datagram.extend_from_slice(payload);
    let mut sum = checksum::pseudo_v4(src.0, dst.0, protocol::UDP, datagram.len() as u32);
    sum.add_bytes(&datagram);
    datagram[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    ip_frame(protocol::UDP, src.0, dst.0, &datagram)
}

pub fn icmp_frame(src: Ipv4Addr, dst: Ipv4Addr, kind: IcmpKind, body: &[u8]) -> Vec<u8> {
    let message = IcmpMessage { kind, body };
    ip_frame(
        protocol::ICMP,
        src,
        dst,
        &[&message.header()[..], body].concat(),
    )
}

/// Changes bytes of the IP header and repairs its checksum.
pub fn patch_ip(mut frame: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut frame[14..34]);
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

pub fn arp_of(frame: &[u8]) -> ArpPacket {
    let (ethernet, rest) = EthernetHeader::parse(frame).unwrap();
    assert_eq!(ethernet.ethertype, EtherType::ARP);
    ArpPacket::parse(rest).unwrap()
}

pub fn ip_of(frame: &[u8]) -> Ipv4Packet<'_> {
    let (ethernet, rest) = EthernetHeader::parse(frame).unwrap();
    assert_eq!(ethernet.ethertype, EtherType::IPV4);
    Ipv4Packet::parse(rest).unwrap()
}

pub fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(ip), port)
}

/// A packet of IPv6 to us, or to a group, from a station on our link.
pub fn packet6(
    station: [u8; 6],
    next_header: u8,
    (src, dst): (Ipv6Addr, Ipv6Addr),
    hops: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 54];
    EthernetHeader {
        dst: if dst.is_multicast() {
            ethernet::multicast_v6(dst)
        } else {
            MAC
        },
        src: station,
        ethertype: EtherType::IPV6,
    }
    .emit(&mut bytes);
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: hops,
        src,
        dst,
    }
    .emit(&mut bytes[14..]);
    bytes.extend_from_slice(payload);
    bytes
}

/// A message of ICMPv6 from a station on our link.
pub fn icmpv6(
    station: [u8; 6],
    (src, dst): (Ipv6Addr, Ipv6Addr),
    hops: u8,
    kind: Icmpv6Kind,
    body: &[u8],
) -> Vec<u8> {
    let message = Icmpv6Message { kind, body };
    let bytes = [&message.header(src, dst)[..], body].concat();
    packet6(station, protocol::ICMPV6, (src, dst), hops, &bytes)
}
