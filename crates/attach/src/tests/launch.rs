//! A program starts only if the running stack is the one that was asked for.

use slipstack_channel::control::net::{Interface, KernelShare, Listed, RouteEntry, ShareAction};
use slipstack_channel::control::{Switch, Welcome};
use slipstack_config::Settings;

use super::{settings, welcome};
use crate::error::Error;
use crate::launch::{check_network, other_slots};

fn asked(variables: &[(&str, &str)]) -> Settings {
    let mut all = vec![("IF", "eth1"), ("IP", "10.0.0.5/24")];
    all.retain(|(name, _)| !variables.iter().any(|(other, _)| other == name));
    all.extend(variables);
    settings(&all)
}

fn check(variables: &[(&str, &str)], welcome: &Welcome) -> Result<(), Error> {
    check_network(&asked(variables), welcome)
}

#[test]
fn a_program_that_names_an_existing_interface_gets_it() {
    check(&[], &welcome()).unwrap();
    check(&[("DEVICE", "packet")], &welcome()).unwrap();
    let mut with_port = welcome();
    with_port.network.interfaces.push(Interface {
        name: "eth2".to_owned(),
        link: slipstack_device::LinkId::new(1, 0).0,
        addresses: vec![([10, 0, 1, 5].into(), 24)],
        ..Interface::default()
    });
    check(&[], &with_port).unwrap();
}

#[test]
fn another_address_is_refused_with_an_error_that_names_both() {
    match check(&[("IP", "10.0.0.6/24")], &welcome()) {
        Err(Error::OtherAddress { has, wanted, .. }) => {
            assert_eq!(
                (has.as_str(), wanted.as_str()),
                ("10.0.0.5/24", "10.0.0.6/24")
            );
        }
        other => panic!("{other:?}"),
    }
    // A prefix is part of it.
    let error = check(&[("IP", "10.0.0.5/16")], &welcome());
    assert!(matches!(error, Err(Error::OtherAddress { .. })));
}

#[test]
fn another_kind_of_device_is_refused() {
    let error = check(&[("DEVICE", "xdp")], &welcome());
    assert!(matches!(error, Err(Error::OtherDevice { .. })));
    let mut native = welcome();
    native.device.kind = "xdp:native".to_owned();
    check(&[("DEVICE", "xdp")], &native).unwrap();
}

#[test]
fn another_device_of_the_same_kind_is_refused_with_an_error_that_names_both() {
    let mut replay = welcome();
    replay.device.kind = "replay:timed".to_owned();
    replay.device.asked = Some("replay:/a.pcap".to_owned());
    check(&[("DEVICE", "replay:/a.pcap")], &replay).unwrap();
    check(&[("DEVICE", "auto")], &replay).unwrap();
    for words in ["replay:/b.pcap", "replay:/a.pcap,fast", "replay:a.pcap"] {
        let error = check(&[("DEVICE", words)], &replay)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("kind replay:/a.pcap, not replay:/"),
            "{error}"
        );
    }
    let mut port = welcome();
    port.device.kind = "dpdk:net_null0 (net_null)".to_owned();
    port.device.asked = Some("dpdk:--no-huge  --vdev=net_null0".to_owned());
    check(&[("DEVICE", "dpdk:--no-huge --vdev=net_null0")], &port).unwrap();
    check(&[("DEVICE", "dpdk:--no-huge --vdev=net_ring0")], &port).unwrap_err();
}

#[test]
fn device_modes_in_options_must_be_those_of_the_open_device() {
    let mut generic = welcome();
    generic.device.kind = "xdp:generic,busy=8".to_owned();
    generic.device.asked = Some("xdp:auto,busy=8".to_owned());
    let xdp = ("DEVICE", "xdp");
    check(&[xdp], &generic).unwrap();
    check(
        &[xdp, ("XDP_MODE", "generic"), ("XDP_BUSY_POLL", "8")],
        &generic,
    )
    .unwrap();
    for (name, value, missing) in [
        ("XDP_MODE", "native", "xdp:native"),
        ("XDP_BUSY_POLL", "16", "xdp:busy=16"),
        ("XDP_ANY_PORT", "true", "xdp:any-port"),
    ] {
        let error = check(&[xdp, (name, value)], &generic)
            .unwrap_err()
            .to_string();
        assert!(error.contains(missing), "{error}");
    }
}

#[test]
fn another_vlan_is_refused_with_an_error_that_names_both() {
    let mut tagged = welcome();
    tagged.vlan = 5;
    let error = check(&[], &tagged);
    assert!(matches!(
        error,
        Err(Error::OtherVlan {
            has: 5,
            wanted: 0,
            ..
        })
    ));
}

#[test]
fn a_switch_that_the_device_was_opened_without_is_refused() {
    let switches = [
        ("NO_TSO", Switch::NoSegmentation),
        ("NO_TX_CHECKSUM", Switch::NoChecksum),
        ("PROMISCUOUS", Switch::Promiscuous),
        ("SLAAC", Switch::Autoconfigured),
        ("FORWARD", Switch::Forwarding),
    ];
    for (variable, switch) in switches {
        match check(&[(variable, "true")], &welcome()) {
            Err(Error::OtherSwitch { wanted, .. }) => {
                assert_eq!(wanted.to_uppercase().replace('-', "_"), variable);
            }
            other => panic!("{variable}: {other:?}"),
        }
        let mut with = welcome();
        with.device.switches = vec![switch];
        check(&[(variable, "true")], &with).unwrap();
        // One that is not named is as it is.
        check(&[], &with).unwrap();
    }
}

#[test]
fn a_joining_program_may_not_name_another_spread_and_other_slots_are_reported() {
    let mut running = welcome();
    running.device.spread = "shares 4,1".to_owned();
    running.device.slots = 8;
    let shares = ("SPREAD", "shares");
    check(&[shares, ("SPREAD_SHARES", "4,1")], &running).unwrap();
    for (variables, wanted) in [
        (&[("SPREAD", "turns")][..], "turns"),
        (&[("SPREAD", "hash")], "hash"),
        (&[shares, ("SPREAD_SHARES", "4,2")], "shares 4,2"),
    ] {
        let error = check(variables, &running).unwrap_err().to_string();
        let both = format!("with --spread shares 4,1, not {wanted};");
        assert!(error.contains(&both), "{error}");
    }
    check(&[("SLOTS", "32")], &running).unwrap();
    let told = |slots: &str| other_slots(&asked(&[("SLOTS", slots)]), &running);
    assert_eq!((told("8"), told("")), (String::new(), String::new()));
    assert_eq!(told("32"), "; its stack was started with 8 slots, not 32");
}

#[test]
fn a_joining_program_may_only_name_routes_that_the_keeper_has() {
    let route = [("ROUTE", "10.9.0.0/16,via=10.0.0.1")];
    let error = check(&route, &welcome());
    assert!(matches!(error, Err(Error::OtherRoutes { .. })));
    let mut routed = welcome();
    routed.network.routes = crate::door::options(&asked(&route)).network.routes;
    check(&route, &routed).unwrap();
    // Further routes do not matter.
    let other = RouteEntry::default_by([10, 0, 0, 9].into());
    routed.network.routes.push(other);
    check(&route, &routed).unwrap();
}

#[test]
fn a_joining_program_cannot_turn_on_sharing_with_the_kernel() {
    let kni = [("KNI", "accept")];
    assert!(matches!(
        check(&kni, &welcome()),
        Err(Error::NotShared { .. })
    ));
    let mut shared = welcome();
    shared.network.share = Some(KernelShare {
        listed: Listed::Kernel,
        tcp: Vec::new(),
        udp: Vec::new(),
        action: ShareAction::Default,
        rates: [0; 3],
    });
    check(&kni, &shared).unwrap();
    // A program that does not ask for sharing uses the keeper's.
    check(&[], &shared).unwrap();
}
