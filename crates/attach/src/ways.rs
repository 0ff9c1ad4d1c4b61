//! Routes of further interfaces: their gateways, and the rules that select them.

use std::net::IpAddr;

use slipstack_channel::control::net::{MAIN_TABLE, RouteEntry, RuleEntry};
use slipstack_config::{Cidr, InterfaceSpec, Settings, VlanSpec};
use slipstack_device::LinkId;

/// Behind the rules that an operator gives.
const PRIORITY: u32 = 2000;

/// A link with gateways.
struct Way<'a> {
    link: LinkId,
    addresses: &'a [Cidr],
    /// Each with its table.
    gateways: Vec<(IpAddr, u32)>,
}

/// Gateways of further interfaces and VLANs.
fn ways<'a>(
    settings: &'a Settings,
    link_of: &impl Fn(&VlanSpec) -> u16,
) -> impl Iterator<Item = Way<'a>> {
    let interfaces = settings.further.iter().zip(1..);
    let interfaces = interfaces.map(|(spec, port)| of_interface(settings, spec, port));
    let vlans = settings.sub_vlans().map(|spec| {
        let link = LinkId(link_of(spec));
        let table = spec.table.unwrap_or(link.0.into());
        let gateways = spec.gateways.iter();
        Way {
            link,
            addresses: &spec.addresses,
            gateways: gateways.map(|gateway| (*gateway, table)).collect(),
        }
    });
    interfaces.chain(vlans)
}

/// The first gateway of a family is the way out of everything that has no other.
fn of_interface<'a>(settings: &'a Settings, spec: &'a InterfaceSpec, port: u16) -> Way<'a> {
    let link = LinkId::new(port, 0);
    let before = settings.further.iter().take(usize::from(port) - 1);
    let before: Vec<IpAddr> = settings
        .gateways
        .iter()
        .chain(before.flat_map(|it| &it.gateways))
        .copied()
        .collect();
    let table = |gateway: &IpAddr| {
        let has_other = before.iter().any(|it| it.is_ipv4() == gateway.is_ipv4());
        let own = if has_other { link.0.into() } else { MAIN_TABLE };
        spec.table.unwrap_or(own)
    };
    let gateways = spec.gateways.iter();
    Way {
        link,
        addresses: &spec.addresses,
        gateways: gateways.map(|gateway| (*gateway, table(gateway))).collect(),
    }
}

/// Returns the routes to the gateways of the VLANs, in their tables.
pub(crate) fn routes(
    settings: &Settings,
    link_of: &impl Fn(&VlanSpec) -> u16,
) -> impl Iterator<Item = RouteEntry> {
    ways(settings, link_of).flat_map(|way| {
        let link = way.link.0;
        let gateways = way.gateways.into_iter();
        gateways.map(move |(gateway, table)| RouteEntry {
            link: Some(link),
            table,
            ..RouteEntry::default_by(gateway)
        })
    })
}

/// Answers leave by the link by which the request arrived: packets from its addresses use its
/// table.
pub(crate) fn rules(
    settings: &Settings,
    link_of: &impl Fn(&VlanSpec) -> u16,
) -> impl Iterator<Item = RuleEntry> {
    ways(settings, link_of).flat_map(|way| {
        let rules = way.addresses.iter().filter_map(|ip| {
            let is_v4 = ip.address.is_ipv4();
            let mut gateways = way.gateways.iter();
            let (_, table) = gateways.find(|(gateway, _)| gateway.is_ipv4() == is_v4)?;
            let has_own = *table != MAIN_TABLE;
            has_own.then_some(RuleEntry {
                priority: PRIORITY,
                from: Some((ip.address, if is_v4 { 32 } else { 128 })),
                table: *table,
                ..RuleEntry::default()
            })
        });
        rules.collect::<Vec<_>>()
    })
}
