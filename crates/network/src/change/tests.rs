use alloc::string::ToString;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn state() -> NetworkState {
    NetworkState {
        interfaces: vec![Interface {
            name: "eth1".to_owned(),
            index: 7,
            mtu: 1500,
            addresses: vec![(ip("10.0.0.5"), 24)],
            ..Interface::default()
        }],
        ..NetworkState::default()
    }
}

fn vlan(name: &str, vlan: u16) -> Change {
    Change::AddVlan {
        name: name.to_owned(),
        link: vlan,
        id: LinkId(vlan).vlan(),
        is_provider: false,
        within: None,
    }
}

fn address(interface: &str, text: &str, len: u8) -> Change {
    Change::AddAddress {
        interface: interface.to_owned(),
        address: (ip(text), len),
        mode: Mode::Add,
        is_certain: false,
    }
}

fn route(to: &str, len: u8, via: &str, table: u32) -> Change {
    Change::AddRoute {
        route: RouteEntry {
            to: (ip(to), len),
            table,
            ..RouteEntry::default_by(ip(via))
        },
        mode: Mode::Add,
    }
}

#[test]
fn a_route_is_appended_behind_one_with_another_gateway_alone() {
    let appended = |via: &str| match route("10.9.0.0", 16, via, MAIN_TABLE) {
        Change::AddRoute { route, .. } => Change::AddRoute {
            route,
            mode: Mode::Append,
        },
        other => other,
    };
    let first = state().changed(&[appended("10.0.0.1")]).unwrap();
    let both = first.changed(&[appended("10.0.0.2")]).unwrap();
    let gateways = |state: &NetworkState| -> Vec<_> {
        let all = state.routes.iter().filter(|it| it.to.1 == 16);
        all.map(|it| it.via.unwrap().to_string()).collect()
    };
    assert_eq!(gateways(&both), ["10.0.0.1", "10.0.0.2"]);
    let again = both.changed(&[appended("10.0.0.1")]).unwrap_err();
    assert_eq!(again.refused, Refused::Exists);
}

#[test]
fn network_changes_are_applied_all_or_not_at_all() {
    let before = state();
    let changes = [
        vlan("eth1.10", 10),
        address("eth1.10", "10.10.10.5", 24),
        route("0.0.0.0", 0, "10.10.10.1", 10),
    ];
    let after = before.changed(&changes).unwrap();
    assert_eq!((after.revision, after.interfaces.len()), (1, 2));
    let mut bad = changes.to_vec();
    bad.push(route("0.0.0.0", 0, "10.99.0.1", 20));
    let error = before.changed(&bad).unwrap_err();
    assert_eq!((error.at, error.refused), (3, Refused::InvalidGateway));
}

#[test]
fn duplicates_are_refused_with_linuxs_message() {
    let table = [
        (vec![address("eth1", "10.0.0.5", 24)], "File exists"),
        (vec![address("eth9", "10.0.0.6", 24)], "Cannot find device"),
        (vec![vlan("eth1.5", 5), vlan("x", 5)], "File exists"),
        (
            vec![Change::DelAddress {
                interface: "eth1".to_owned(),
                ip: ip("10.0.0.6"),
                prefix_len: None,
            }],
            "Cannot assign requested address",
        ),
        (
            vec![Change::DelRoute(RouteKey::to((ip("0.0.0.0"), 0)))],
            "No such process",
        ),
    ];
    for (changes, says) in table {
        let error = state().changed(&changes).unwrap_err();
        assert_eq!(error.to_string(), says, "{changes:?}");
    }
}

#[test]
fn removing_an_interface_or_address_removes_the_routes_that_use_it() {
    let changes = [
        vlan("v", 10),
        address("v", "10.10.10.5", 24),
        route("0.0.0.0", 0, "10.10.10.1", 10),
        route("0.0.0.0", 0, "10.0.0.1", 254),
    ];
    let both = state().changed(&changes).unwrap();
    let one = both.changed(&[Change::DelInterface {
        name: "v".to_owned(),
    }]);
    let one = one.unwrap();
    assert_eq!((one.interfaces.len(), one.routes.len()), (1, 1));
    let none = both.changed(&[Change::DelAddress {
        interface: "v".to_owned(),
        ip: ip("10.10.10.5"),
        prefix_len: Some(24),
    }]);
    assert_eq!(none.unwrap().routes.len(), 1);
}

/// A device with two ports.
fn two_ports() -> NetworkState {
    let mut state = state();
    state.interfaces.push(Interface {
        name: "eth2".to_owned(),
        index: 8,
        link: LinkId::new(1, 0).0,
        mac: [2, 0, 0, 0, 0, 8],
        mtu: 9000,
        addresses: vec![(ip("10.2.0.5"), 24)],
        ..Interface::default()
    });
    state
}

#[test]
fn a_vlan_has_the_address_and_mtu_limit_of_its_own_port() {
    let link = LinkId::new(1, 10).0;
    let mtu = |name: &str, mtu| Change::SetMtu {
        name: name.to_owned(),
        mtu,
    };
    let changes = [
        vlan("eth1.10", 10),
        vlan("eth2.10", link),
        mtu("eth2.10", 8000),
    ];
    let after = two_ports().changed(&changes).unwrap();
    let made = after.find("eth2.10").unwrap();
    assert_eq!((made.mac, made.mtu), ([2, 0, 0, 0, 0, 8], 8000));
    assert_ne!(made.index, after.find("eth1.10").unwrap().index);
    assert_eq!(after.port_of(made).name, "eth2");
    let refused = |changes: &[Change]| after.changed(changes).unwrap_err().refused;
    assert_eq!(refused(&[mtu("eth1.10", 8000)]), Refused::InvalidMtu);
    assert_eq!(refused(&[mtu("eth2", 9001)]), Refused::InvalidMtu);
    assert_eq!(refused(&[vlan("x", link)]), Refused::Exists);
    let nowhere = vlan("x", LinkId::new(2, 10).0);
    assert_eq!(refused(&[nowhere]), Refused::NoSuchInterface);
    let gone = Change::DelInterface {
        name: "eth2".to_owned(),
    };
    assert_eq!(refused(&[gone]), Refused::OwnInterface);
}

#[test]
fn the_mtu_of_a_port_is_the_smaller_of_the_set_one_and_the_devices() {
    let mtu = |name: &str, mtu| Change::SetMtu {
        name: name.to_owned(),
        mtu,
    };
    let mtus = |state: &NetworkState| ["eth2", "eth2.10"].map(|name| state.find(name).unwrap().mtu);
    let link = LinkId::new(1, 10).0;
    let wide = two_ports().changed(&[vlan("eth2.10", link)]).unwrap();
    let narrow = wide.changed(&[mtu("eth2", 1400)]).unwrap();
    assert_eq!(mtus(&narrow), [1400, 1400]);
    let follows = |state: &NetworkState, mtu| {
        let mut port = state.find("eth2").unwrap().clone();
        port.follow_device(mtu);
        (port.mtu, port.device_mtu())
    };
    assert_eq!(follows(&narrow, 1500), (1400, 1500));
    assert_eq!(follows(&narrow, 1300), (1300, 1300));
    assert_eq!(follows(&wide, 1500), (1500, 1500));
    // As on Linux, what is above does not become wider by itself.
    let again = narrow.changed(&[mtu("eth2", 9000)]).unwrap();
    assert_eq!(mtus(&again), [9000, 1400]);
    assert_eq!(follows(&again, 9500), (9500, 9500));
}

#[test]
fn a_gateway_is_reached_by_the_port_of_its_network() {
    let state = two_ports();
    let after = state
        .changed(&[route("0.0.0.0", 0, "10.2.0.1", MAIN_TABLE)])
        .unwrap();
    assert_eq!(after.link_of(&after.routes[0]), Some(LinkId::new(1, 0).0));
    let overlaps = [address("eth1", "10.2.0.6", 24)];
    let error = state.changed(&overlaps).unwrap_err();
    assert_eq!(error.refused, Refused::Overlaps);
}

#[test]
fn the_mtu_of_a_provider_vlan_is_smaller_by_its_tag_and_it_has_priorities() {
    let provider = Change::AddVlan {
        name: "eth1.20".to_owned(),
        link: 20,
        id: 20,
        is_provider: true,
        within: None,
    };
    let priorities = |name: &str, priority| Change::SetPriorities {
        name: name.to_owned(),
        priorities: [priority; 8],
    };
    let with_vlan = state()
        .changed(&[provider, priorities("eth1.20", 5)])
        .unwrap();
    let made = with_vlan.find("eth1.20").unwrap();
    assert_eq!((made.mtu, made.tag.is_provider), (1496, true));
    assert_eq!(made.tag.priorities, [5; 8]);
    assert!(
        with_vlan.changed(&[vlan("other", 20)]).is_err(),
        "one of each number"
    );
    for (name, priority) in [("eth1.20", 8), ("eth1", 1)] {
        let refused = with_vlan
            .changed(&[priorities(name, priority)])
            .unwrap_err();
        assert_eq!(refused.refused, Refused::InvalidPriority, "{name}");
    }
    // One of the other kind takes its place.
    let wanted = state().changed(&[vlan("eth1.20", 20)]).unwrap();
    let changes = with_vlan.changes_to(&wanted).unwrap();
    let made = with_vlan.changed(&changes).unwrap();
    assert_eq!(made.interfaces, wanted.interfaces);
}
