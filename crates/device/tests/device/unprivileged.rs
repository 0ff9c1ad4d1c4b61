//! An unprivileged engine drives its slot and reads the steering table, and can do nothing else
//! with the descriptors it was given.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};

use crate::handover::{inheritable, parts};
use crate::net::{self, Namespace, PEER, Pair, STACK};
use slipstack_device::{
    Device, Port, RingPosition, SlotParams, Slots, Steering, Transport, TxOffload, iface, open_slot,
};

const ENVIRONMENT: &str = "SLIPSTACK_TEST_UNPRIVILEGED";
const NOBODY: u32 = 65_534;
const SO_DETACH_FILTER: i32 = 27;
const PACKET_FANOUT_DATA: i32 = 22;

/// The engine, run by the tests below as a process of its own; not a test itself.
#[test]
fn child_process_that_runs_an_engine() {
    let Ok(text) = std::env::var(ENVIRONMENT) else {
        return;
    };
    let (numbers, params) = text.split_once(" {").unwrap();
    let params = &format!("{{{params}");
    let mut numbers = numbers.split(' ').map(|word| word.parse::<u32>().unwrap());
    let mut next = || numbers.next().unwrap();
    let [slot, mirror, exceptions] = std::array::from_fn(|_| net::sys::inherited(next()));
    let params = SlotParams::from_text(params).unwrap();

    assert!(!rustix::process::geteuid().is_root());
    assert!(iface::set_up("lo").is_err());
    check_that_nothing_else_works(&slot, &mirror);

    let steering = Steering::from_fds([mirror, exceptions]).unwrap();
    let (local, remote) = (SocketAddr::from((STACK, 7)), SocketAddr::from((PEER, 7)));
    assert_eq!(steering.find_slot(Transport::Udp, local, remote), 1);
    let other = SocketAddr::from((PEER, 8));
    assert_eq!(steering.find_slot(Transport::Udp, local, other), 0);

    let mut device = open_slot(parts(params, slot), RingPosition::private()).unwrap();
    let mut frame = vec![0u8; 60];
    frame[..6].copy_from_slice(&[0xff; 6]);
    net::send(&mut *device, &frame, &[], TxOffload::NONE);
    device.flush();
    assert_eq!(device.counters().tx_dropped, 0);
    assert!(net::receive_until(&mut *device, |frame, _| net::is_udp(
        frame
    )));
    // The parent test waits for this line.
    println!("the engine is content");
}

fn check_that_nothing_else_works(slot: &OwnedFd, mirror: &OwnedFd) {
    let path = format!("/proc/self/fd/{}", mirror.as_raw_fd());
    let writable = rustix::fs::open(path, OFlags::RDWR, Mode::empty());
    assert!(
        writable.is_err(),
        "the steering could be opened for writing"
    );
    let set = |level, name| net::sys::set_int(slot.as_fd(), level, name, 0);
    assert!(set(libc::SOL_SOCKET, SO_DETACH_FILTER).is_err());
    assert!(set(libc::SOL_PACKET, PACKET_FANOUT_DATA).is_err());
    assert!(net::sys::bind_packet(slot.as_fd(), 1).is_err());
}

fn check(slots: &Slots, peer: &Namespace) {
    let steering = slots.steering();
    steering.set_own(&[(STACK.into(), 24)]).unwrap();
    let local = SocketAddr::from((STACK, 7));
    let flow = slipstack_device::Flow {
        proto: Transport::Udp,
        local,
        remote: SocketAddr::from((PEER, 8)),
    };
    steering.set_port(Transport::Udp, 7, Port::Slot(1)).unwrap();
    steering.add_exceptions(&[(flow, 0)]).unwrap();
    let [mirror, exceptions] = steering.read_only_fds().unwrap().map(inheritable);
    let slot = inheritable(slots.slot_fds(1).next().unwrap());
    let mut text = [&slot, &mirror, &exceptions]
        .map(|fd| fd.as_raw_fd().to_string())
        .join(" ");
    text.push_str(&format!(" {}", slots.params(1).unwrap().to_text()));
    peer.run(|| {
        let socket = std::net::UdpSocket::bind((PEER, 9)).unwrap();
        socket.send_to(b"for the engine", (STACK, 7)).unwrap();
    });
    // The unprivileged user may not read the directory of the test binary.
    let program = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let program = inheritable(program);
    let output = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .args([
            "--exact",
            "--nocapture",
            "unprivileged::child_process_that_runs_an_engine",
        ])
        .env(ENVIRONMENT, text)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the engine is content"), "{said}{error}");
}

#[test]
fn an_engine_without_privileges_has_its_slot_and_nothing_else() {
    if !net::may_run("nobody") {
        return;
    }
    let pair = Pair::new("nobody");
    let slots = Slots::of_kind("packet", "slip-v", 2).unwrap();
    pair.announce(slots.link().mac);
    check(&slots, &pair.peer);

    let peer = Namespace::new("nobody-t");
    peer.enter();
    let slots = Slots::of_kind("tap", "slip0", 2).unwrap();
    iface::add_address("slip0", PEER.into(), 24).unwrap();
    iface::set_up("slip0").unwrap();
    net::announce(&peer, "slip0", slots.link().mac);
    check(&slots, &peer);
}
