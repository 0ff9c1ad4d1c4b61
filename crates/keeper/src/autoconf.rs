//! Addresses that the link itself gives (RFC 4862): a link-local one, and those of the prefixes that its routers tell.
//!
//! RFC 4861 6.3.4 and 6.3.7 (what a host asks and believes), RFC 7217 5 (identifiers that stay the same on a link and say
//! nothing elsewhere), RFC 4862 5.3, 5.5.3. Once, before the first program starts.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use slipstack_device::{Device, RxMeta, Slots, TxOffload};
use slipstack_mem::{RawSlice, now_ns};
use slipstack_stack::rng::SipKey;
use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::{self, Ipv6Packet};
use slipstack_wire::ndp::{self, Prefix, RouterAdvertisement};
use slipstack_wire::protocol;

use crate::conflict::{find_owner, neighbour_discovery, wait_readable};
use crate::error::KeeperError;
use crate::regions::SlotWords;
use crate::world::{Network, open_keeper_slot, random_u64};

/// Solicitations, and how long each waits for an answer.
// DEVIATION(RFC 4861 10): three of them 4 s apart would delay a start without a router by 12 s; on the links that this
// runs on a router answers within half a second (RFC 4861 6.2.6).
const SOLICITATIONS: usize = 3;
const WAIT: Duration = Duration::from_millis(1000);
const FRAMES_MAX: usize = 256;
/// RFC 7217 5: how often another identifier is tried when one is taken.
const TRIES: u64 = 3;
/// RFC 4862 5.5.3 (d): prefix and identifier make up an address.
const PREFIX_LEN: u8 = 64;
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// What a router has told.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    router: Option<Ipv6Addr>,
    prefixes: Vec<Prefix>,
    mtu: Option<u16>,
}

/// Gives the stack its addresses, its router and the link's MTU. Without a router it has the link-local address.
pub fn configure(
    slots: &Slots,
    words: &SlotWords,
    network: &mut Network,
    interface: &str,
) -> Result<(), KeeperError> {
    let mut device = open_keeper_slot(slots, words)?;
    let identifiers = Identifiers::new(interface);
    let link_local = take_address(
        &mut *device,
        network.mac,
        &identifiers,
        LINK_LOCAL,
        interface,
    )?;
    network.addresses.push((link_local.into(), PREFIX_LEN));
    let Some(told) = ask_routers(&mut *device, network.mac, link_local) else {
        eprintln!(
            "no IPv6 router has answered on {interface}; the stack has its link-local address"
        );
        return Ok(());
    };
    for prefix in told.prefixes.iter().filter(|prefix| is_usable(prefix)) {
        let taken = take_address(
            &mut *device,
            network.mac,
            &identifiers,
            prefix.prefix,
            interface,
        )?;
        // RFC 5942 4: without the flag nobody else of the prefix is on the link.
        let len = if prefix.is_on_link { PREFIX_LEN } else { 128 };
        network.addresses.push((taken.into(), len));
    }
    network.gateways.extend(told.router.map(IpAddr::V6));
    network.mtu = told.mtu.map_or(network.mtu, |mtu| mtu.min(network.mtu));
    Ok(())
}

/// RFC 4862 5.5.3 (a) to (d).
fn is_usable(prefix: &Prefix) -> bool {
    prefix.is_autonomous
        && prefix.len == PREFIX_LEN
        && prefix.valid_s != 0
        && prefix.preferred_s <= prefix.valid_s
        && !prefix.prefix.is_unicast_link_local()
        && !prefix.prefix.is_multicast()
}

/// RFC 7217 5: the interface identifiers of this machine.
struct Identifiers {
    secret: SipKey,
    interface: u64,
}

impl Identifiers {
    fn new(interface: &str) -> Identifiers {
        let secret = machine_secret().unwrap_or_else(|| SipKey {
            k0: random_u64(),
            k1: random_u64(),
        });
        let interface = interface
            .bytes()
            .fold(0, |hash, byte| secret.hash_words([hash, u64::from(byte)]));
        Identifiers { secret, interface }
    }

    fn address(&self, prefix: Ipv6Addr, attempt: u64) -> Ipv6Addr {
        let network = (prefix.to_bits() >> 64) as u64;
        let identifier = self.secret.hash_words([network, self.interface, attempt]);
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(identifier))
    }
}

/// Stays the same over restarts, and differs between machines.
fn machine_secret() -> Option<SipKey> {
    let text = std::fs::read_to_string("/etc/machine-id").ok()?;
    let number = u128::from_str_radix(text.trim(), 16).ok()?;
    Some(SipKey {
        k0: (number >> 64) as u64,
        k1: number as u64,
    })
}

/// An address of a prefix that nobody else has (RFC 4862 5.4).
fn take_address(
    device: &mut dyn Device,
    mac: [u8; 6],
    identifiers: &Identifiers,
    prefix: Ipv6Addr,
    interface: &str,
) -> Result<Ipv6Addr, KeeperError> {
    let mut taken = None;
    for attempt in 0..TRIES {
        let address = identifiers.address(prefix, attempt);
        match find_owner(device, mac, address.into()) {
            None => return Ok(address),
            Some(owner) => taken = Some((address, owner)),
        }
    }
    let (address, mac) = taken.unwrap_or((prefix, mac));
    Err(KeeperError::AddressTaken {
        address: address.into(),
        mac,
        interface: interface.to_owned(),
    })
}

/// `None`: nobody answers.
fn ask_routers(device: &mut dyn Device, mac: [u8; 6], from: Ipv6Addr) -> Option<Told> {
    let body = ndp::router_solicitation(mac);
    let message = Icmpv6Message {
        kind: Icmpv6Kind::RouterSolicitation,
        body: &body,
    };
    let frame = neighbour_discovery(mac, (from, ALL_ROUTERS), &message);
    for _ in 0..SOLICITATIONS {
        let _ = device.tx(&frame, [RawSlice::EMPTY; 2], TxOffload::default());
        device.flush();
        let end = now_ns() + WAIT.as_nanos() as u64;
        let mut told = None;
        while told.is_none() && now_ns() < end {
            wait_readable(device, end.saturating_sub(now_ns()));
            device.rx(FRAMES_MAX, &mut |frame: &[u8], _: RxMeta| {
                told = told.take().or_else(|| advertised(frame));
            });
        }
        if told.is_some() {
            return told;
        }
    }
    None
}

/// RFC 4861 6.1.2: what is believed of a frame.
fn advertised(frame: &[u8]) -> Option<Told> {
    let (header, payload) = EthernetHeader::parse(frame)?;
    let packet = (header.ethertype == EtherType::IPV6).then(|| Ipv6Packet::parse(payload))??;
    let (src, dst) = (packet.header.src, packet.header.dst);
    let is_of_link = packet.header.hop_limit == ndp::HOP_LIMIT && src.is_unicast_link_local();
    if packet.header.next_header != protocol::ICMPV6 || !is_of_link {
        return None;
    }
    let message = Icmpv6Message::parse(src, dst, packet.payload).ok()?;
    let Icmpv6Kind::RouterAdvertisement(rest) = message.kind else {
        return None;
    };
    let told = RouterAdvertisement::parse(rest, message.body)?;
    let mtu = told.mtu.and_then(|mtu| u16::try_from(mtu).ok());
    Some(Told {
        router: (told.lifetime_s != 0).then_some(src),
        prefixes: told.prefixes().collect(),
        mtu: mtu.filter(|mtu| *mtu >= ipv6::MTU_MIN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn advertisement(src: Ipv6Addr, lifetime_s: u16, mtu: u32) -> Vec<u8> {
        let [a, b] = lifetime_s.to_be_bytes();
        let mut body = vec![0; 8];
        body.extend([5, 1, 0, 0]);
        body.extend(mtu.to_be_bytes());
        body.extend([3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 7, 8, 0, 0, 0, 0]);
        body.extend("2001:db8::".parse::<Ipv6Addr>().unwrap().octets());
        let message = Icmpv6Message {
            kind: Icmpv6Kind::RouterAdvertisement([64, 0, a, b]),
            body: &body,
        };
        neighbour_discovery(MAC, (src, ALL_NODES), &message)
    }

    #[test]
    fn an_advertisement_tells_router_prefixes_and_mtu() {
        let told = advertised(&advertisement(ROUTER, 1800, 1400)).unwrap();
        assert_eq!((told.router, told.mtu), (Some(ROUTER), Some(1400)));
        let prefix = told.prefixes[0];
        assert_eq!(prefix.prefix, "2001:db8::".parse::<Ipv6Addr>().unwrap());
        assert!(is_usable(&prefix) && prefix.is_on_link);
        // No default router, and an MTU that no link has.
        let told = advertised(&advertisement(ROUTER, 0, 1000)).unwrap();
        assert_eq!((told.router, told.mtu), (None, None));
    }

    #[test]
    fn what_does_not_come_from_a_router_of_the_link_is_not_believed() {
        let global = "2001:db8::1".parse().unwrap();
        assert_eq!(advertised(&advertisement(global, 1800, 1400)), None);
        let good = advertisement(ROUTER, 1800, 1400);
        let mut far = good.clone();
        far[21] = 254;
        let mut broken = good.clone();
        *broken.last_mut().unwrap() ^= 1;
        for frame in [&far[..], &broken, &good[..good.len() - 1]] {
            assert_eq!(advertised(frame), None);
        }
    }

    #[test]
    fn prefixes_that_make_no_address_are_left_out() {
        let good = advertised(&advertisement(ROUTER, 1800, 1400))
            .unwrap()
            .prefixes[0];
        let with = |change: &dyn Fn(&mut Prefix)| {
            let mut prefix = good;
            change(&mut prefix);
            is_usable(&prefix)
        };
        assert!(!with(&|p| p.is_autonomous = false));
        assert!(!with(&|p| p.len = 48));
        assert!(!with(&|p| p.valid_s = 0));
        assert!(!with(&|p| p.preferred_s = p.valid_s + 1));
        assert!(!with(&|p| p.prefix = LINK_LOCAL));
    }

    #[test]
    fn identifiers_stay_the_same_and_differ_by_prefix_interface_and_try() {
        let secret = SipKey { k0: 1, k1: 2 };
        let of = |interface| Identifiers { secret, interface };
        let net = |n| Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 0);
        let first = of(1).address(net(1), 0);
        assert_eq!(first, of(1).address(net(1), 0));
        let low = |ip: Ipv6Addr| ip.to_bits() as u64;
        for other in [
            of(1).address(net(2), 0),
            of(2).address(net(1), 0),
            of(1).address(net(1), 1),
        ] {
            assert_ne!(low(first), low(other));
        }
        assert_eq!(first.segments()[..4], net(1).segments()[..4]);
    }
}
