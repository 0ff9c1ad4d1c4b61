//! The network that the settings describe, as the value that keepers, engines and programs share.

use slipstack_channel::control::net::{
    Interface, KernelShare, NetworkState, RouteEntry, RuleEntry,
};
use slipstack_config::{Cidr, PortRange, RouteSpec, RuleSpec, Settings, VlanSpec};
use slipstack_device::{LinkId, VlanTag};

use crate::door::options;
use crate::ways;

/// The network that a keeper of these settings would be started with.
pub fn wanted_network(settings: &Settings) -> NetworkState {
    options(settings).network
}

/// The network of these settings on a device whose first port has this name: what only the device
/// knows (link-layer addresses, numbers, MTUs) is 0.
pub(crate) fn wanted(settings: &Settings, own: &str) -> NetworkState {
    let gateways = settings.gateways.iter().copied();
    let gateways = gateways.map(RouteEntry::default_by);
    let mut interfaces = ports(settings, own);
    let vlans = settings
        .sub_vlans()
        .map(|spec| vlan(settings, spec, &interfaces));
    let vlans: Vec<Interface> = vlans.collect();
    interfaces.extend(vlans);
    NetworkState {
        interfaces,
        routes: gateways
            .chain(ways::routes(settings))
            .chain(settings.routes.iter().map(route))
            .collect(),
        rules: settings
            .rules
            .iter()
            .flat_map(rule)
            .chain(ways::rules(settings))
            .collect(),
        is_forwarding: settings.forwards(),
        share: share(settings),
        ..NetworkState::default()
    }
}

fn ports(settings: &Settings, own: &str) -> Vec<Interface> {
    let further = settings.further.iter();
    let further = further.map(|spec| (spec.name.as_str(), &spec.addresses));
    let all = [(own, &settings.addresses)].into_iter().chain(further);
    let port = |(port, (name, addresses)): (u16, (&str, &Vec<Cidr>))| Interface {
        name: name.to_owned(),
        link: LinkId::new(port, 0).0,
        addresses: addresses
            .iter()
            .map(|ip| (ip.address, ip.prefix_len))
            .collect(),
        ..Interface::default()
    };
    (0..).zip(all).map(port).collect()
}

/// An interface with the name that Linux would give it.
fn vlan(settings: &Settings, spec: &VlanSpec, ports: &[Interface]) -> Interface {
    let port = settings.port_of(spec.interface.as_deref());
    let addresses = spec.addresses.iter();
    Interface {
        name: format!("{}.{}", ports[usize::from(port)].name, spec.id),
        link: LinkId::new(port, spec.id).0,
        mtu: spec.mtu.unwrap_or(0),
        addresses: addresses.map(|ip| (ip.address, ip.prefix_len)).collect(),
        tag: VlanTag {
            is_provider: spec.is_provider,
            priorities: [spec.priority; 8],
        },
        ..Interface::default()
    }
}

fn share(settings: &Settings) -> Option<KernelShare> {
    let ranges = |list: &[PortRange]| list.iter().map(|it| (it.first, it.last)).collect();
    Some(KernelShare {
        listed: settings.kni?,
        tcp: ranges(&settings.kni_tcp),
        udp: ranges(&settings.kni_udp),
        action: settings.kni_action,
        rates: [
            settings.kni_console_rate,
            settings.kni_general_rate,
            settings.kni_kernel_rate,
        ],
    })
}

fn route(spec: &RouteSpec) -> RouteEntry {
    RouteEntry {
        to: spec.to,
        via: spec.via,
        link: None,
        table: spec.table,
        metric: spec.metric,
        source: spec.source,
        mtu: spec.mtu,
        refusal: spec.refusal,
    }
}

/// One that names no network is of both families.
fn rule(spec: &RuleSpec) -> impl Iterator<Item = RuleEntry> + use<> {
    let entry = RuleEntry {
        priority: spec.priority,
        from: spec.from,
        to: spec.to,
        mark: spec.mark,
        table: spec.table,
        ..RuleEntry::default()
    };
    let is_both = spec.from.is_none() && spec.to.is_none();
    let other = RuleEntry {
        is_family_v6: true,
        ..entry.clone()
    };
    [Some(entry), is_both.then_some(other)]
        .into_iter()
        .flatten()
}
