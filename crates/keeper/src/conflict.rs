//! Detection of another station with our address (RFC 5227 2.1.1 and RFC 4862 5.4, with shorter
//! waits).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_channel::control::net::Interface;
use slipstack_device::{Device, LinkId, RxMeta, Slots, TxOffload};
use slipstack_mem::{Descriptor, RawSlice, now_ns};
use slipstack_wire::arp::{ArpPacket, FRAME_LEN};
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::icmpv6::{self, Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{self, Ipv6Header, Ipv6Packet};
use slipstack_wire::ndp::{self, Neighbour};
use slipstack_wire::protocol;

use crate::error::KeeperError;
use crate::network::Network;
use crate::regions::SlotWords;
use crate::slots::open_keeper_slot;

/// Probes and how long each waits for an answer.
// DEVIATION(RFC 5227 1.1, RFC 4862 5.1): three probes 1 to 2 s apart would delay every start by
// seconds; on the links this runs on an owner answers within milliseconds.
pub(crate) const PROBES: usize = 2;
pub(crate) const WAIT: Duration = Duration::from_millis(100);
const FRAMES_MAX: usize = 256;

/// Asks the link for our addresses, all of them at a time; an answer is an error.
pub fn probe(slots: &Slots, words: &SlotWords, network: &Network) -> Result<(), KeeperError> {
    let mut device = open_keeper_slot(slots, words)?;
    device.set_vlans(&network.state.further_links());
    let interfaces = network.state.interfaces.iter();
    let wanted = |it: &Interface| {
        let (link, own) = (it.link, it.mac);
        let addresses = it.addresses.iter();
        let wanted = addresses.map(move |(ip, _)| Wanted { link, own, ip: *ip });
        wanted.collect::<Vec<_>>()
    };
    let addresses: Vec<Wanted> = interfaces.flat_map(wanted).collect();
    match find_owner(&mut *device, &addresses) {
        Some((taken, mac)) => {
            let port = network.state.find_link(LinkId(taken.link).own().0);
            Err(KeeperError::AddressTaken {
                address: taken.ip,
                mac,
                interface: port.map(|port| port.name.clone()).unwrap_or_default(),
            })
        }
        None => Ok(()),
    }
}

/// An address that is to be ours on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub link: u16,
    /// Our link-layer address there.
    pub own: [u8; 6],
    pub ip: IpAddr,
}

impl Wanted {
    /// Sends a probe for the address; a full device loses it.
    pub fn send_probe(&self, device: &mut dyn Device) {
        let frame = match self.ip {
            IpAddr::V4(ip) => arp_probe(self.own, ip).to_vec(),
            IpAddr::V6(ip) => solicitation(self.own, ip),
        };
        let offload = TxOffload::on(self.link);
        let _ = device.tx(&frame, [RawSlice::EMPTY; 2], offload);
    }

    /// Returns whether a claim that arrived on a link is another station's to this address.
    pub fn is_claimed(&self, link: u16, ip: IpAddr, station: [u8; 6]) -> bool {
        self.link == link && self.ip == ip && self.own != station
    }
}

/// The first address for which another station answers, with that station.
fn find_owner(device: &mut dyn Device, addresses: &[Wanted]) -> Option<(Wanted, [u8; 6])> {
    let mut owner = None;
    for _ in 0..PROBES {
        for wanted in addresses {
            wanted.send_probe(device);
        }
        device.flush();
        let end = now_ns() + WAIT.as_nanos() as u64;
        while owner.is_none() && now_ns() < end {
            wait_readable(device, end.saturating_sub(now_ns()));
            device.rx(FRAMES_MAX, &mut |frame: &[u8], meta: RxMeta| {
                let Some((ip, station)) = claim(frame) else {
                    return;
                };
                let is_claimed = |it: &&Wanted| it.is_claimed(meta.link, ip, station);
                let found = addresses.iter().find(is_claimed);
                owner = owner.or_else(|| found.map(|it| (*it, station)));
            });
        }
    }
    owner
}

fn arp_probe(mac: [u8; 6], address: Ipv4Addr) -> [u8; FRAME_LEN] {
    ArpPacket::request(mac, Ipv4Addr::UNSPECIFIED, address).frame_to(ethernet::BROADCAST)
}

/// RFC 4862 5.4.2: from the unspecified address to the solicited-node group of the address.
fn solicitation(mac: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    let (src, dst) = (Ipv6Addr::UNSPECIFIED, ipv6::solicited_node(address));
    let mut body = [0; ndp::NEIGHBOUR_LEN];
    let asked = Neighbour {
        target: address,
        link: None,
        nonce: None,
    };
    let body_len = asked.emit_solicitation(&mut body);
    let message = Icmpv6Message {
        kind: Icmpv6Kind::NeighbourSolicitation,
        body: &body[..body_len],
    };
    neighbour_discovery(mac, (src, dst), &message)
}

/// A frame of neighbour discovery to a group.
fn neighbour_discovery(
    mac: [u8; 6],
    (src, dst): (Ipv6Addr, Ipv6Addr),
    message: &Icmpv6Message<'_>,
) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN + ipv6::HEADER_LEN];
    EthernetHeader {
        dst: ethernet::multicast_v6(dst),
        src: mac,
        ethertype: EtherType::IPV6,
    }
    .emit(&mut frame);
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: (icmpv6::HEADER_LEN + message.body.len()) as u16,
        next_header: protocol::ICMPV6,
        hop_limit: ndp::HOP_LIMIT,
        src,
        dst,
    }
    .emit(&mut frame[ethernet::HEADER_LEN..]);
    frame.extend_from_slice(&message.header(src, dst));
    frame.extend_from_slice(message.body);
    frame
}

/// Returns the address that the sender of a frame claims, with the station.
pub(crate) fn claim(frame: &[u8]) -> Option<(IpAddr, [u8; 6])> {
    let (header, payload) = EthernetHeader::parse(frame)?;
    match header.ethertype {
        EtherType::ARP => {
            let packet = ArpPacket::parse(payload)?;
            // RFC 5227 2.1.1: another that probes for the same address now.
            let is_probe = packet.sender_ip.is_unspecified();
            let claimed = if is_probe {
                packet.target_ip
            } else {
                packet.sender_ip
            };
            Some((claimed.into(), packet.sender_mac))
        }
        EtherType::IPV6 => {
            let packet = Ipv6Packet::parse(payload)?;
            let (src, dst) = (packet.header.src, packet.header.dst);
            if packet.header.next_header != protocol::ICMPV6
                || packet.header.hop_limit != ndp::HOP_LIMIT
            {
                return None;
            }
            let message = Icmpv6Message::parse(src, dst, packet.payload).ok()?;
            let told = match message.kind {
                Icmpv6Kind::NeighbourAdvertisement(_) => {
                    Neighbour::parse_advertisement(message.body)?
                }
                // RFC 4862 5.4.3: another that probes for the same address now.
                Icmpv6Kind::NeighbourSolicitation if src.is_unspecified() => {
                    Neighbour::parse_solicitation(message.body)?
                }
                _ => return None,
            };
            Some((told.target.into(), header.src))
        }
        _ => None,
    }
}

pub(crate) fn wait_readable(device: &dyn Device, wait_ns: u64) {
    if device.has_rx() {
        return;
    }
    let Some(fd) = Descriptor::new(device.poll_fd()) else {
        return;
    };
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: wait_ns.min(999_999_999) as _,
    };
    let _ = poll(
        &mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)],
        Some(&timeout),
    );
}
