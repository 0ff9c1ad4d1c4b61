//! Look-ups of routes for `scripts/lookups`, which counts their instructions: `lookups one|many
//! COUNT`.
//!
//! `one` is an interface with one address and a default gateway; `many` has 128 VLANs with 64
//! addresses and a table each, a rule for each address, and 10,000 routes of prefix lengths from 12
//! to 28.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use slipstack_stack::fib::Query;
use slipstack_stack::{Interface, NetworkState, RouteEntry, RuleEntry, routes4};

const VLANS: u16 = 128;
const ADDRESSES: u16 = 64;
const ROUTES: u32 = 10_000;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, which, count] = words.as_slice() else {
        panic!("lookups one|many COUNT");
    };
    let count: u32 = count.parse().expect("a number");
    let (network, sources) = match which.as_str() {
        "one" => one(),
        _ => many(),
    };
    let routes = routes4(&network);
    for n in 0..count {
        let source = sources[n as usize % sources.len()];
        let dst = Ipv4Addr::from_bits(n.wrapping_mul(2_654_435_761) >> 3 | 0x2000_0000);
        let query = Query::between(source, dst.into());
        black_box(routes.find(black_box(&query)).expect("a way"));
    }
}

fn one() -> (NetworkState, Vec<Option<IpAddr>>) {
    let own = Ipv4Addr::new(10, 0, 0, 5).into();
    let gateway = Ipv4Addr::new(10, 0, 0, 1).into();
    let network = NetworkState::of(1500, vec![(own, 24)], &[gateway]);
    (network, vec![None, Some(own)])
}

fn many() -> (NetworkState, Vec<Option<IpAddr>>) {
    let (mut network, mut sources) = one();
    for link in 1..=VLANS {
        let at = |host: u16| IpAddr::from([10, 1, link as u8, host as u8]);
        let addresses = 1..=ADDRESSES;
        network.interfaces.push(Interface {
            link,
            mtu: 1500,
            addresses: addresses
                .clone()
                .map(|host| (at(host + 1), if host == 1 { 24 } else { 32 }))
                .collect(),
            ..Interface::default()
        });
        let table = u32::from(link) + 1000;
        network.routes.push(RouteEntry {
            link: Some(link),
            table,
            ..RouteEntry::default_by(at(1))
        });
        for host in addresses {
            network.rules.push(RuleEntry {
                priority: 2000,
                from: Some((at(host + 1), 32)),
                table,
                ..RuleEntry::default()
            });
            sources.push(Some(at(host + 1)));
        }
    }
    for n in 0..ROUTES {
        let net = Ipv4Addr::from_bits(n.wrapping_mul(2_654_435_761) | 0x2000_0000);
        let gateway = Ipv4Addr::new(10, 0, 0, 2 + (n % 250) as u8);
        network.routes.push(RouteEntry {
            to: (net.into(), 12 + (n % 17) as u8),
            link: Some(0),
            ..RouteEntry::default_by(gateway.into())
        });
    }
    (network, sources)
}
