//! The network that the settings describe, as the value that keepers, engines and programs share.

use slipstack_channel::control::net::{
    Interface, KernelShare, NetworkState, RouteEntry, RuleAction, RuleEntry, RuleInput,
};
use slipstack_config::{
    Cidr, LOOPBACK, PortRange, RouteSpec, RuleSpec, RuleTarget, Settings, VlanSpec,
};
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
    let mut state = NetworkState {
        interfaces: ports(settings, own),
        ..NetworkState::default()
    };
    // VLANs of the ports first: a port numbers its links itself.
    for spec in settings.sub_vlans().filter(|spec| spec.within.is_none()) {
        add_vlan(settings, spec, &mut state);
    }
    for spec in settings.sub_vlans().filter(|spec| spec.within.is_some()) {
        add_vlan(settings, spec, &mut state);
    }
    let link_of = |spec: &VlanSpec| vlan_of(settings, spec, &state).map_or(0, |it| it.link);
    NetworkState {
        routes: gateways
            .chain(ways::routes(settings, &link_of))
            .chain(settings.routes.iter().map(|spec| route(spec, &state)))
            .collect(),
        rules: settings
            .rules
            .iter()
            .flat_map(|spec| rule(spec, &state))
            .chain(ways::rules(settings, &link_of))
            .collect(),
        is_forwarding: settings.forwards(),
        connects_all_tables: settings.connects_all_tables(),
        share: share(settings),
        ..state.clone()
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

/// The interface that a VLAN is of, if it is there.
fn parent_of<'a>(
    settings: &Settings,
    spec: &VlanSpec,
    state: &'a NetworkState,
) -> Option<&'a Interface> {
    let port = settings.port_of(spec.interface.as_deref());
    let port = state.ports().nth(usize::from(port))?;
    let Some(outer) = spec.within else {
        return Some(port);
    };
    let found = [false, true].into_iter();
    found
        .filter_map(|is_provider| state.find_vlan(port, outer, is_provider))
        .next()
}

/// The interface that has been made of a VLAN.
fn vlan_of<'a>(
    settings: &Settings,
    spec: &VlanSpec,
    state: &'a NetworkState,
) -> Option<&'a Interface> {
    let parent = parent_of(settings, spec, state)?;
    let is_provider = spec.is_provider && spec.within.is_none();
    state.find_vlan(parent, spec.id, is_provider)
}

/// Adds an interface with the name that Linux would give it, and for a VLAN within a VLAN the outer
/// one, if that is not there.
fn add_vlan(settings: &Settings, spec: &VlanSpec, state: &mut NetworkState) {
    if let Some(outer) = spec.within
        && parent_of(settings, spec, state).is_none()
    {
        let outer = VlanSpec {
            id: outer,
            within: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
            mtu: None,
            ..spec.clone()
        };
        add_vlan(settings, &outer, state);
    }
    let Some(parent) = parent_of(settings, spec, state) else {
        return;
    };
    let addresses = spec.addresses.iter();
    let interface = Interface {
        name: format!("{}.{}", parent.name, spec.id),
        link: state.free_link(parent, spec.id),
        mtu: spec.mtu.unwrap_or(0),
        addresses: addresses.map(|ip| (ip.address, ip.prefix_len)).collect(),
        tag: VlanTag {
            is_provider: spec.is_provider && spec.within.is_none(),
            id: spec.id,
            priorities: [spec.priority; 8],
        },
        within: spec.within.map(|_| parent.link),
        ..Interface::default()
    };
    state.interfaces.push(interface);
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

/// Stands for an interface that is not there, which the keeper refuses.
const NO_LINK: u16 = u16::MAX;

fn link_named(state: &NetworkState, name: &str) -> u16 {
    state.find(name).map_or(NO_LINK, |it| it.link)
}

fn route(spec: &RouteSpec, state: &NetworkState) -> RouteEntry {
    RouteEntry {
        to: spec.to,
        via: spec.via,
        link: spec.device.as_ref().map(|name| link_named(state, name)),
        table: spec.table,
        metric: spec.metric,
        source: spec.source,
        mtu: spec.mtu,
        refusal: spec.refusal,
    }
}

/// One that names no network is of both families.
fn rule(spec: &RuleSpec, state: &NetworkState) -> impl Iterator<Item = RuleEntry> + use<> {
    let (action, table) = match spec.target {
        RuleTarget::Table(id) => (RuleAction::Lookup, id),
        RuleTarget::Unreachable => (RuleAction::Unreachable, 0),
        RuleTarget::Prohibit => (RuleAction::Prohibit, 0),
        RuleTarget::Blackhole => (RuleAction::Blackhole, 0),
    };
    let input = spec.input.as_deref().map(|name| match name {
        LOOPBACK => RuleInput::Own,
        name => RuleInput::Link(link_named(state, name)),
    });
    let entry = RuleEntry {
        priority: spec.priority,
        from: spec.from,
        to: spec.to,
        mark: spec.mark,
        tos: spec.tos,
        carried: spec.carried,
        input,
        output: spec.output.as_ref().map(|name| link_named(state, name)),
        is_not: spec.is_not,
        action,
        is_family_v6: false,
        table,
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
