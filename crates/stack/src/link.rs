//! The way down: Ethernet and IP headers around a transport segment, next hop included.

mod datagram;
mod v6;

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::{Gso, PartialChecksum, TxOffload, checksum, ipv6, tcp, tcp_options};

use crate::bound;
use crate::config::StackConfig;
use crate::counters::{Counter, Counters};
use crate::destination::Destinations;
use crate::effects::{Effects, FrameOut, Payload};
use crate::error::Reason;
use crate::identification::Identifications;
use crate::neighbour::{Held, Neighbours, Resolution};
use crate::path_mtu::PathMtus;
use crate::rng::{Rng, SipKey};
use crate::route::{Route, Routes};
use crate::route6::Routes6;
use crate::tcp::FastOpenCache;
use crate::time::Instant;

/// Longest transport header (TCP with 40 bytes of options).
pub const L4_HEADER_MAX: usize = 60;
/// Longest header of a frame that we send, over IPv6.
pub const HEADER_MAX: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + L4_HEADER_MAX;
/// The same over IPv4.
const HEADER_MAX_V4: usize = L4_OFFSET + L4_HEADER_MAX;
const L4_OFFSET: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
/// The commonest transport header, worth a copy of known length.
const TCP_WITH_TIMESTAMPS: usize = tcp::HEADER_LEN + tcp_options::TIMESTAMPS_LEN;

/// What protocols above the link need of the stack, borrowed for one call.
#[derive(Debug)]
pub struct Cx<'a> {
    pub config: &'a StackConfig,
    pub link: &'a mut Link,
    pub rng: &'a mut Rng,
    pub counters: &'a mut Counters,
}

/// The network header of a packet to send.
#[derive(Clone, Copy, Debug)]
pub struct OutPacket {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
    pub dont_fragment: bool,
}

/// A transport header and what follows it.
#[derive(Clone, Copy, Debug)]
pub struct OutSegment<'a> {
    /// At most [`L4_HEADER_MAX`] bytes; a checksum field that is left to the device is zero.
    pub header: &'a [u8],
    pub payload: Payload<'a>,
    /// Where in `header` the partial checksum goes; `None` = the header is complete.
    pub checksum_at: Option<u16>,
    /// Cut the payload into segments of this size.
    pub gso_mss: Option<u16>,
}

/// A resolved next hop, kept by whoever sends often. Ends with the link's epoch or with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    mac: [u8; 6],
    local: bool,
    /// Largest IP packet that the path takes, as far as is known.
    mtu: u16,
    epoch: u32,
    valid_until: Instant,
}

impl NextHop {
    pub const fn is_local(&self) -> bool {
        self.local
    }

    #[inline]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Sent,
    /// Held while the neighbour is asked for.
    Held,
    /// Dropped; counted.
    Unreachable(Reason),
}

/// What a destination allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Largest IP packet in bytes, as far as is known.
    pub mtu: u16,
    /// The same of our own link, which is what comes in.
    pub link_mtu: u16,
    /// Largest TCP payload of a super-frame, 0 = none.
    pub tso_max: u32,
    /// The destination is one of our own addresses.
    pub local: bool,
}

/// The interface: its addresses, routes and neighbours.
#[derive(Debug)]
pub struct Link {
    pub(crate) mac: [u8; 6],
    mtu: u16,
    tso_max: u32,
    pub(crate) routes: Routes,
    pub(crate) routes6: Routes6,
    /// Of flow labels.
    label_key: SipKey,
    pub(crate) neighbours: Neighbours,
    /// What is known of servers besides their neighbours' addresses.
    pub fast_open: FastOpenCache,
    destinations: Destinations,
    identifications: Identifications,
    /// Made for the first that is learnt.
    path_mtus: Option<Box<PathMtus>>,
}

impl Link {
    pub fn new(config: &StackConfig, rng: &mut Rng) -> Self {
        Self {
            mac: config.mac,
            mtu: config.mtu,
            tso_max: config.tso_max,
            routes: Routes::of(&config.addrs, &config.gateways),
            routes6: Routes6::of(&config.addrs, &config.gateways),
            neighbours: Neighbours::new(config.neighbour.clone(), rng.sip_key()),
            fast_open: FastOpenCache::new(rng),
            destinations: Destinations::new(),
            identifications: Identifications::new(rng),
            path_mtus: None,
            label_key: rng.sip_key(),
        }
    }

    /// The next hop that was last found for a destination ([`bound::bits`]), if it may still be used.
    #[inline]
    pub fn recall(&self, dst: u128, now: Instant) -> Option<NextHop> {
        self.destinations
            .find(dst)
            .filter(|hop| self.is_current(hop, now))
    }

    /// What a destination behind this next hop allows.
    #[inline]
    pub fn path_over(&self, hop: &NextHop) -> Path {
        Path {
            mtu: hop.mtu,
            link_mtu: self.mtu,
            tso_max: if hop.local { 0 } else { self.tso_max },
            local: hop.local,
        }
    }

    /// The same for a destination whose next hop may be known; `None`: there is no route.
    #[inline]
    pub fn path_by(
        &self,
        now: Instant,
        hop: &Option<NextHop>,
        dst: impl FnOnce() -> IpAddr,
    ) -> Option<Path> {
        match hop {
            Some(hop) => Some(self.path_over(hop)),
            None => self.find_path(now, dst()),
        }
    }

    /// Whether a next hop may still be used.
    #[inline]
    pub fn is_current(&self, hop: &NextHop, now: Instant) -> bool {
        hop.epoch == self.neighbours.epoch() && now < hop.valid_until
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Whether an address is one of ours.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.routes.is_own(ip),
            IpAddr::V6(ip) => self.routes6.is_own(ip),
        }
    }

    /// The address we use towards `dst`; `None` = no route.
    pub fn find_source(&self, dst: IpAddr) -> Option<IpAddr> {
        match dst {
            IpAddr::V4(dst) => self.routes.find_source(dst).map(IpAddr::V4),
            IpAddr::V6(dst) => self.routes6.find_source(dst).map(IpAddr::V6),
        }
    }

    /// `None`: there is no route.
    pub fn find_path(&self, now: Instant, dst: IpAddr) -> Option<Path> {
        let local = matches!(self.find_route(dst)?, Route::Local);
        Some(Path {
            mtu: self.path_mtu(now, dst),
            link_mtu: self.mtu,
            tso_max: if local { 0 } else { self.tso_max },
            local,
        })
    }

    fn find_route(&self, dst: IpAddr) -> Option<Route<IpAddr>> {
        match dst {
            IpAddr::V4(dst) => self.routes.find(dst).map(Route::either),
            IpAddr::V6(dst) => self.routes6.find(dst).map(Route::either),
        }
    }

    fn path_mtu(&self, now: Instant, dst: IpAddr) -> u16 {
        let learnt = self.path_mtus.as_ref().and_then(|all| all.find(now, dst));
        learnt.map_or(self.mtu, |learnt| learnt.min(self.mtu))
    }

    fn find_next_hop(
        &mut self,
        now: Instant,
        (src, dst): (IpAddr, IpAddr),
        counters: &mut Counters,
        fx: &mut impl Effects,
    ) -> Hop {
        let mtu = self.path_mtu(now, dst);
        let (mac, local, valid_until) = match self.find_route(dst) {
            None => return Hop::NoRoute,
            Some(Route::Local) => (self.mac, true, Instant::FAR_FUTURE),
            Some(Route::Broadcast) => (ethernet::BROADCAST, false, Instant::FAR_FUTURE),
            Some(Route::Multicast) => (group_mac(dst), false, Instant::FAR_FUTURE),
            Some(Route::Neighbour(hop)) => {
                let station = (self.mac, src);
                match self.neighbours.resolve(now, hop, station, counters, fx) {
                    Resolution::Known { mac, valid_until } => (mac, false, valid_until),
                    Resolution::Asking => {
                        // Stands in frames until the neighbour has answered.
                        let unresolved = NextHop {
                            mac: [0; 6],
                            local: false,
                            mtu,
                            epoch: self.neighbours.epoch(),
                            valid_until: now,
                        };
                        return Hop::Asking(hop, unresolved);
                    }
                    Resolution::TableFull => return Hop::TableFull,
                }
            }
        };
        Hop::Known(NextHop {
            mac,
            local,
            mtu,
            epoch: self.neighbours.epoch(),
            valid_until,
        })
    }
}

fn group_mac(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(group) => ethernet::multicast_v4(group),
        IpAddr::V6(group) => ethernet::multicast_v6(group),
    }
}

enum Hop {
    Known(NextHop),
    Asking(IpAddr, NextHop),
    TableFull,
    NoRoute,
}

/// Where the frames of a packet go.
#[derive(Clone, Copy, Debug)]
enum Way {
    Out(NextHop),
    /// They wait for this neighbour's address.
    Wait(IpAddr, NextHop),
}

impl Way {
    /// What stands in the frame.
    fn hop(&self) -> &NextHop {
        match self {
            Way::Out(hop) | Way::Wait(_, hop) => hop,
        }
    }
}

impl Cx<'_> {
    /// Sends a segment that fits the link. `hint` is the caller's cached next hop.
    #[inline]
    pub fn output(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        hint: &mut Option<NextHop>,
        segment: OutSegment<'_>,
        fx: &mut impl Effects,
    ) -> Output {
        self.output_within(self.link.mtu, now, packet, hint, &segment, fx)
    }

    /// Sends a segment in a packet of at most `mtu` bytes.
    #[inline]
    fn output_within(
        &mut self,
        mtu: u16,
        now: Instant,
        packet: &OutPacket,
        hint: &mut Option<NextHop>,
        segment: &OutSegment<'_>,
        fx: &mut impl Effects,
    ) -> Output {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) else {
            return self.output_v6(mtu, now, packet, hint, segment, fx);
        };
        let total_len = ipv4::HEADER_LEN + segment.header.len() + segment.payload.len();
        let len_max = if segment.gso_mss.is_some() {
            u16::MAX
        } else {
            mtu
        };
        if total_len > usize::from(len_max) || segment.header.len() > L4_HEADER_MAX {
            return self.refuse(Counter::DropTooBig, Reason::MessageTooLong);
        }
        if let Some(hop) = hint
            && self.link.is_current(hop, now)
        {
            let mut buffer = [0; HEADER_MAX_V4];
            let frame = self.frame(&mut buffer, packet, (src, dst), segment, hop);
            return self.send(frame, fx);
        }
        self.find_and_send(now, packet, (src, dst), hint, segment, fx)
    }

    /// The next hop is not at hand.
    #[inline(never)]
    fn find_and_send(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        ends: (Ipv4Addr, Ipv4Addr),
        hint: &mut Option<NextHop>,
        segment: &OutSegment<'_>,
        fx: &mut impl Effects,
    ) -> Output {
        let way = match self.find_way(now, packet, hint, fx) {
            Ok(way) => way,
            Err(refused) => return refused,
        };
        let mut buffer = [0; HEADER_MAX_V4];
        let frame = self.frame(&mut buffer, packet, ends, segment, way.hop());
        self.send_by(&way, frame, fx)
    }

    /// The way of a packet; `hint` is used, and renewed.
    fn find_way(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        hint: &mut Option<NextHop>,
        fx: &mut impl Effects,
    ) -> Result<Way, Output> {
        if let Some(hop) = hint
            && self.link.is_current(hop, now)
        {
            return Ok(Way::Out(*hop));
        }
        let ends = (packet.src, packet.dst);
        match self.link.find_next_hop(now, ends, self.counters, fx) {
            Hop::Known(hop) => {
                self.link.destinations.keep(bound::bits(packet.dst), hop);
                Ok(Way::Out(*hint.insert(hop)))
            }
            Hop::Asking(neighbour, hop) => Ok(Way::Wait(neighbour, hop)),
            Hop::TableFull => {
                Err(self.refuse(Counter::DropNeighbourTable, Reason::HostUnreachable))
            }
            Hop::NoRoute => Err(self.refuse(Counter::DropNoRoute, Reason::NetUnreachable)),
        }
    }

    fn send_by(&mut self, way: &Way, frame: FrameOut<'_>, fx: &mut impl Effects) -> Output {
        match way {
            Way::Out(_) => self.send(frame, fx),
            Way::Wait(neighbour, _) => {
                let held = Held::new(&frame);
                self.link.neighbours.hold(*neighbour, held, self.counters);
                Output::Held
            }
        }
    }

    #[inline]
    fn send(&mut self, frame: FrameOut<'_>, fx: &mut impl Effects) -> Output {
        if frame.local {
            self.counters.bump(Counter::TxLocal);
        }
        transmit(frame, self.counters, fx);
        Output::Sent
    }

    /// Sends a TCP segment over IPv4 whose headers are complete but for the transport checksum.
    #[inline]
    pub fn send_plain(
        &mut self,
        header: &[u8],
        payload: Payload<'_>,
        gso_mss: Option<u16>,
        hop: NextHop,
        fx: &mut impl Effects,
    ) -> Output {
        let total_len = header.len() + payload.len() - ethernet::HEADER_LEN;
        let len_max = gso_mss.map_or(self.link.mtu, |_| u16::MAX);
        if total_len > usize::from(len_max) {
            return self.refuse(Counter::DropTooBig, Reason::MessageTooLong);
        }
        let header_len = header.len() as u16;
        let frame = FrameOut {
            header,
            payload,
            offload: TxOffload {
                checksum: Some(PartialChecksum {
                    start: L4_OFFSET as u16,
                    offset: tcp::CHECKSUM_AT,
                }),
                gso: gso_mss
                    .filter(|_| !hop.local)
                    .map(|mss| Gso { mss, header_len }),
            },
            local: hop.local,
        };
        self.send(frame, fx)
    }

    /// A packet to `dst` was too large for its path, which takes `mtu` bytes.
    #[cold]
    pub fn learn_path_mtu(&mut self, now: Instant, dst: IpAddr, mtu: u16) {
        let Self {
            link,
            rng,
            counters,
            ..
        } = self;
        if mtu >= link.mtu {
            return;
        }
        let all = link
            .path_mtus
            .get_or_insert_with(|| PathMtus::new(rng).into());
        if all.learn(now, dst, mtu) {
            counters.bump(Counter::PathMtusLearnt);
            link.destinations.forget(bound::bits(dst));
        }
    }

    #[cold]
    fn refuse(&mut self, why: Counter, reason: Reason) -> Output {
        self.counters.bump(why);
        Output::Unreachable(reason)
    }

    /// Writes all headers into `buffer`; lengths have been checked.
    #[inline]
    fn frame<'a>(
        &mut self,
        buffer: &'a mut [u8; HEADER_MAX_V4],
        packet: &OutPacket,
        (src, dst): (Ipv4Addr, Ipv4Addr),
        segment: &OutSegment<'a>,
        hop: &NextHop,
    ) -> FrameOut<'a> {
        let l4_len = segment.header.len() + segment.payload.len();
        // Places that the compiler knows: no checks and no calls for them.
        let (below, l4) = buffer.split_at_mut(L4_OFFSET);
        EthernetHeader {
            dst: hop.mac,
            src: self.link.mac,
            ethertype: EtherType::IPV4,
        }
        .emit(below);
        // RFC 6864 4.1: a packet that cannot be fragmented needs no identification.
        let identification = if packet.dont_fragment {
            0
        } else {
            self.link.identifications.next(packet)
        };
        Ipv4Header {
            tos: packet.tos,
            total_len: (ipv4::HEADER_LEN + l4_len) as u16,
            identification,
            dont_fragment: packet.dont_fragment,
            ttl: packet.ttl,
            protocol: packet.protocol,
            src,
            dst,
        }
        .emit(&mut below[ethernet::HEADER_LEN..]);
        match segment.header.try_into() {
            Ok::<&[u8; TCP_WITH_TIMESTAMPS], _>(header) => {
                l4[..TCP_WITH_TIMESTAMPS].copy_from_slice(header);
            }
            Err(_) => l4[..segment.header.len()].copy_from_slice(segment.header),
        }
        let mut offload = TxOffload::NONE;
        if let Some(at) = segment.checksum_at {
            let sum = checksum::pseudo_v4(src, dst, packet.protocol, l4_len as u32).fold();
            if let Some(field) = l4.get_mut(usize::from(at)..usize::from(at) + 2) {
                field.copy_from_slice(&sum.to_be_bytes());
            }
            offload.checksum = Some(PartialChecksum {
                start: L4_OFFSET as u16,
                offset: at,
            });
        }
        let header_len = L4_OFFSET + segment.header.len();
        if !hop.local {
            offload.gso = segment.gso_mss.map(|mss| Gso {
                mss,
                header_len: header_len as u16,
            });
        }
        let header = &buffer[..header_len];
        FrameOut {
            header,
            payload: segment.payload,
            offload,
            local: hop.local,
        }
    }
}

/// Counts a frame and hands it over.
#[inline]
pub(crate) fn transmit(frame: FrameOut<'_>, counters: &mut Counters, fx: &mut impl Effects) {
    counters.bump(Counter::TxFrames);
    counters.add(
        Counter::TxBytes,
        (frame.header.len() + frame.payload.len()) as u64,
    );
    fx.transmit(frame);
}
