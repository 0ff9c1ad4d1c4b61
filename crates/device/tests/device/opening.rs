//! Obstacles to opening a device are named, and nothing is left when it is gone.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::net::{self, Namespace, Pair};
use slipstack_device::{DeviceError, Slots, iface};

#[test]
fn each_reason_why_a_device_does_not_open_has_its_own_error() {
    if !net::may_run("errors") {
        return;
    }
    let pair = Pair::new("errors");
    let open = |name| Slots::of_kind("packet", name, 1).err();
    assert!(matches!(
        open("nowhere"),
        Some(DeviceError::NoSuchInterface(_))
    ));
    assert!(matches!(
        open("no/name"),
        Some(DeviceError::BadInterfaceName(_))
    ));
    pair.ours.ip("link set slip-v down");
    assert!(matches!(
        open("slip-v"),
        Some(DeviceError::InterfaceDown(_))
    ));
    pair.ours.ip("link set slip-v up");
    assert!(open("slip-v").is_none());
    let many = Slots::of_kind("packet", "slip-v", 1000).err();
    assert!(matches!(many, Some(DeviceError::OutOfRange { .. })));

    let tap = Slots::of_kind("tap", "slip0", 2).unwrap();
    let again = Slots::of_kind("tap", "slip0", 2).err();
    assert!(matches!(again, Some(DeviceError::TapBusy(_))), "{again:?}");
    let taken = Slots::of_kind("tap", "slip-v", 1).err();
    assert!(matches!(taken, Some(DeviceError::TapBusy(_))), "{taken:?}");
    assert!(iface::exists("slip0"));
    drop(tap);
    assert!(vanishes("slip0"));
}

/// A program that another test has just started holds the descriptor as well, until its exec.
fn vanishes(name: &str) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while iface::exists(name) {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn the_kernels_side_of_an_interface_can_be_read_and_set_up() {
    if !net::may_run("iface") {
        return;
    }
    let namespace = Namespace::new("iface");
    namespace.enter();
    let first = iface::free_private_subnet().unwrap();
    assert_eq!(first.octets(), [10, 254, 0, 0]);
    let _tap = Slots::of_kind("tap", "slip0", 1).unwrap();
    assert!(!iface::link("slip0").unwrap().is_up);
    iface::add_address("slip0", [10, 254, 0, 1].into(), 24).unwrap();
    iface::add_address("slip0", [10, 254, 0, 1].into(), 24).unwrap();
    iface::set_mtu("slip0", 1400).unwrap();
    iface::set_up("slip0").unwrap();
    let link = iface::link("slip0").unwrap();
    assert!(link.is_up && link.is_ethernet);
    assert_eq!(link.mtu, 1400);
    let addresses = iface::addresses().unwrap();
    let given: IpAddr = [10, 254, 0, 1].into();
    let ours = addresses.iter().find(|it| it.ip == given).unwrap();
    assert_eq!((ours.index, ours.prefix), (link.index, 24));
    let routes = iface::routes().unwrap();
    assert!(
        routes
            .iter()
            .any(|r| r.prefix == 24 && r.index == Some(link.index))
    );
    let next = iface::free_private_subnet().unwrap();
    assert_eq!(next.octets(), [10, 254, 1, 0]);
    assert!(!iface::is_forwarding("slip0"));
    namespace.sysctl("net.ipv4.ip_forward", "1");
    assert!(iface::is_forwarding("slip0"));
}
