//! IPv4 output, and next hops of both families: builds headers around a segment and hands over the
//! frame.

use core::net::{IpAddr, Ipv4Addr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::{Gso, PartialChecksum, TxOffload, checksum, tcp, tcp_options};

use super::transmit::transmit;
use super::{Cx, Hop, L4_HEADER_MAX, NextHop, OutPacket, OutSegment, Output, Way};
use crate::bound;
use crate::counters::Counter;
use crate::effects::{Effects, FrameOut, Payload};
use crate::error::{Reason, SocketError};
use crate::held::HeldFrame;
use crate::ip::Ends;
use crate::path_mtu::{self, PathMtus};
use crate::time::Instant;

/// Longest header over IPv4.
const HEADER_MAX_V4: usize = L4_OFFSET + L4_HEADER_MAX;
const L4_OFFSET: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
/// The commonest transport header, worth a copy of known length.
const TCP_WITH_TIMESTAMPS: usize = tcp::HEADER_LEN + tcp_options::TIMESTAMPS_LEN;

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
        self.output_within(self.net.mtu_max, now, packet, hint, &segment, fx)
    }

    /// Sends a segment in a packet of at most `mtu` bytes.
    #[inline]
    pub(super) fn output_within(
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
            && self.net.is_current(hop, now)
        {
            let mut buffer = [0; HEADER_MAX_V4];
            let frame = self.frame(&mut buffer, packet, Ends { src, dst }, segment, hop);
            return self.send(now, frame, fx);
        }
        self.find_and_send(now, packet, Ends { src, dst }, hint, segment, fx)
    }

    /// The next hop is not at hand.
    #[inline(never)]
    fn find_and_send(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        ends: Ends<Ipv4Addr>,
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
        self.send_by(now, &way, frame, fx)
    }

    /// The way of a packet; `hint` is used, and renewed.
    pub(crate) fn find_way(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        hint: &mut Option<NextHop>,
        fx: &mut impl Effects,
    ) -> Result<Way, Output> {
        if let Some(hop) = hint
            && self.net.is_current(hop, now)
        {
            return Ok(Way::Out(*hop));
        }
        match self.net.find_next_hop(now, packet, self.counters, fx) {
            Hop::Known(hop) => {
                // Found again by the destination alone.
                let is_by_destination = packet.choice.is_none()
                    && self.net.fib(packet.dst.is_ipv6()).is_by_destination();
                if is_by_destination {
                    self.net.destinations.keep(bound::bits(packet.dst), hop);
                }
                Ok(Way::Out(*hint.insert(hop)))
            }
            Hop::Asking(neighbour, hop) => Ok(Way::Wait(neighbour, hop)),
            Hop::TableFull => {
                Err(self.refuse(Counter::DropNeighbourTable, Reason::HostUnreachable))
            }
            Hop::NoRoute => {
                let reason = match self.net.refusal(&packet.query()) {
                    SocketError::HostUnreachable => Reason::HostUnreachable,
                    SocketError::NotPermitted => Reason::Prohibited,
                    _ => Reason::NetUnreachable,
                };
                Err(self.refuse(Counter::DropNoRoute, reason))
            }
        }
    }

    pub(crate) fn send_by(
        &mut self,
        now: Instant,
        way: &Way,
        frame: FrameOut<'_>,
        fx: &mut impl Effects,
    ) -> Output {
        match way {
            Way::Out(_) => self.send(now, frame, fx),
            Way::Wait(..) if self.is_kept_in(now, &frame) => Output::Sent,
            Way::Wait(neighbour, _) => {
                let held = HeldFrame::new(&frame);
                self.net.neighbours.hold(*neighbour, held, self.counters);
                Output::Held
            }
        }
    }

    #[inline]
    fn send(&mut self, now: Instant, frame: FrameOut<'_>, fx: &mut impl Effects) -> Output {
        self.send_at_once(now, frame, fx)
    }

    /// As [`Cx::send`], in the caller: a frame is many words to hand over.
    #[inline(always)]
    fn send_at_once(&mut self, now: Instant, frame: FrameOut<'_>, fx: &mut impl Effects) -> Output {
        // To the sender it is as if a wire had lost it.
        if self.is_kept_in(now, &frame) {
            return Output::Sent;
        }
        if frame.local {
            self.counters.bump(Counter::TxLocal);
        }
        transmit(frame, self.counters, fx);
        Output::Sent
    }

    /// Sends a TCP segment over IPv4 whose headers are complete except for the transport checksum.
    #[inline(always)]
    pub fn send_plain(
        &mut self,
        now: Instant,
        header: &[u8],
        payload: Payload<'_>,
        gso_mss: Option<u16>,
        hop: NextHop,
        fx: &mut impl Effects,
    ) -> Output {
        let total_len = header.len() + payload.len() - ethernet::HEADER_LEN;
        let len_max = gso_mss.map_or(self.net.mtu_max, |_| u16::MAX);
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
                link: hop.link,
                class: hop.class,
            },
            local: hop.local,
        };
        self.send_at_once(now, frame, fx)
    }

    /// A packet to `dst` was too large for its path, which takes `mtu` bytes.
    #[cold]
    pub fn learn_path_mtu(&mut self, now: Instant, dst: IpAddr, mtu: u16) {
        let Self {
            net, rng, counters, ..
        } = self;
        if mtu >= net.mtu_max || !path_mtu::is_possible(dst.is_ipv4(), mtu) {
            return;
        }
        let all = net
            .path_mtus
            .get_or_insert_with(|| PathMtus::new(rng).into());
        if all.learn(now, dst, mtu) {
            counters.bump(Counter::PathMtusLearnt);
            net.destinations.forget(bound::bits(dst));
        }
    }

    #[cold]
    pub(super) fn refuse(&mut self, why: Counter, reason: Reason) -> Output {
        self.counters.bump(why);
        Output::Unreachable(reason)
    }

    /// Writes all headers into `buffer`; lengths have been checked.
    #[inline]
    fn frame<'a>(
        &mut self,
        buffer: &'a mut [u8; HEADER_MAX_V4],
        packet: &OutPacket,
        Ends { src, dst }: Ends<Ipv4Addr>,
        segment: &OutSegment<'a>,
        hop: &NextHop,
    ) -> FrameOut<'a> {
        let l4_len = segment.header.len() + segment.payload.len();
        // Places that the compiler knows: no checks and no calls for them.
        let (below, l4) = buffer.split_at_mut(L4_OFFSET);
        EthernetHeader {
            dst: hop.mac,
            src: self.net.macs.on(hop.link),
            ethertype: EtherType::IPV4,
        }
        .emit(below);
        // RFC 6864 4.1: a packet that cannot be fragmented needs no identification.
        let identification = if packet.dont_fragment {
            0
        } else {
            self.net.identifications.take(packet, segment.packets())
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
        let pseudo = || checksum::pseudo_v4(src, dst, packet.protocol, l4_len as u32);
        complete(buffer, L4_OFFSET, segment, pseudo, hop)
    }
}

/// Returns a frame whose headers are complete except for the transport checksum, which is left to
/// the device.
#[inline]
pub(super) fn complete<'a>(
    buffer: &'a mut [u8],
    l4_at: usize,
    segment: &OutSegment<'a>,
    pseudo: impl FnOnce() -> checksum::Sum,
    hop: &NextHop,
) -> FrameOut<'a> {
    let mut offload = hop.offload();
    if let Some(at) = segment.checksum_at {
        let field = l4_at + usize::from(at);
        if let Some(field) = buffer.get_mut(field..field + 2) {
            field.copy_from_slice(&pseudo().fold().to_be_bytes());
        }
        offload.checksum = Some(PartialChecksum {
            start: l4_at as u16,
            offset: at,
        });
    }
    let header_len = l4_at + segment.header.len();
    if !hop.local {
        offload.gso = segment.gso_mss.map(|mss| Gso {
            mss,
            header_len: header_len as u16,
        });
    }
    FrameOut {
        header: &buffer[..header_len],
        payload: segment.payload,
        offload,
        local: hop.local,
    }
}
