//! Measures the cost of a frame on each back end, in nanoseconds: sending (the peer kernel's
//! receive work runs on our core and is included) and receiving from a full queue.
//!
//! `cargo run --release -p slipstack-device --example frame_cost` as root; it makes and removes two
//! network namespaces.

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};
use slipstack_device::{
    Device, Gso, PartialChecksum, RingPosition, RxMeta, Slots, TxOffload, iface,
};
use slipstack_mem::RawSlice;

const STACK: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const FRAMES: u32 = 200_000;

/// Time of this thread on a processor, so that a busy machine does not count. The peer kernel's
/// work in our context does.
#[derive(Clone, Copy)]
struct Instant(Duration);

impl Instant {
    fn now() -> Instant {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Instant(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    fn elapsed(self) -> Duration {
        Instant::now().0 - self.0
    }
}

struct Namespace(String);

impl Namespace {
    fn new(tag: &str) -> Namespace {
        let name = format!("ss-cost-{}-{tag}", std::process::id());
        ip(&format!("netns add {name}"));
        Namespace(name)
    }

    fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.0));
    }

    fn enter(&self) {
        let file = File::open(format!("/var/run/netns/{}", self.0)).expect("namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.0));
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "ip {arguments}"
    );
}

fn main() {
    let (ours, peer) = (Namespace::new("a"), Namespace::new("b"));
    ours.ip(&format!(
        "link add slip-v type veth peer name peer-v netns {}",
        peer.0
    ));
    ours.ip("link set slip-v up");
    peer.ip("link set peer-v up");
    peer.ip(&format!("addr add {PEER}/24 dev peer-v"));
    ours.enter();
    let slots = Slots::of_kind("packet", "slip-v", 1).expect("packet sockets");
    measure("AF_PACKET on veth", &slots, &peer, "peer-v");

    peer.ip("addr flush dev peer-v");
    peer.enter();
    let slots = Slots::of_kind("tap", "slip0", 1).expect("TAP");
    iface::add_address("slip0", PEER.into(), 24).expect("address");
    iface::set_up("slip0").expect("up");
    measure("TAP", &slots, &peer, "slip0");
}

fn measure(name: &str, slots: &Slots, peer: &Namespace, interface: &str) {
    slots
        .steering()
        .set_own(&[(STACK.into(), 24)])
        .expect("own address");
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    peer.ip(&format!(
        "neigh replace {STACK} lladdr {} dev {interface}",
        mac(slots.link().mac)
    ));
    peer.enter();
    let to = iface::link(interface).expect("peer's interface").mac;
    let mut device = slots.adopt(0, RingPosition::private()).expect("slot");
    println!("{name}");
    // A frame to another station: the peer drops it at once, so that only our side is measured.
    let cost = transmit(&mut *device, [2; 6], 18, 64);
    println!("  send    18 bytes, 64 a flush: {cost:>6.0} ns when the peer drops them");
    for (len, batch) in [(18, 1), (18, 16), (18, 64), (1400, 32)] {
        let cost = transmit(&mut *device, to, len, batch);
        println!("  send {len:>5} bytes, {batch:>2} a flush: {cost:>6.0} ns");
    }
    let cost = transmit_large(&mut *device, to);
    println!("  send 64 KiB for segmentation: {cost:>8.0} ns");
    for batch in [1, 16, 64] {
        let (cost, idle) = receive(&mut *device, batch);
        println!("  receive, {batch:>2} waiting: {cost:>6.0} ns; nothing waiting: {idle:>5.0} ns");
    }
}

/// Ethernet, IPv4 and a transport header with a closed port.
fn header(from: [u8; 6], to: [u8; 6], protocol: u8, l4_header: usize, payload: usize) -> Vec<u8> {
    let mut out = vec![0; 34 + l4_header];
    out[..6].copy_from_slice(&to);
    out[6..12].copy_from_slice(&from);
    out[12] = 8;
    out[14] = 0x45;
    out[16..18].copy_from_slice(&((20 + l4_header + payload) as u16).to_be_bytes());
    out[22] = 64;
    out[23] = protocol;
    out[26..30].copy_from_slice(&STACK.octets());
    out[30..34].copy_from_slice(&PEER.octets());
    let mut sum: u32 = out[14..34]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    sum = (sum & 0xffff) + (sum >> 16);
    out[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    out[34..38].copy_from_slice(&[0, 7, 0, 9]);
    match protocol {
        17 => out[38..40].copy_from_slice(&((8 + payload) as u16).to_be_bytes()),
        _ => out[46..48].copy_from_slice(&[0x50, 0x10]),
    }
    out
}

fn transmit(device: &mut dyn Device, to: [u8; 6], len: usize, batch: u32) -> f64 {
    let sink = UdpSocket::bind((PEER, 9)).expect("sink");
    let header = header(device.info().mac, to, 17, 8, len);
    let payload = vec![0; len];
    let begin = Instant::now();
    for n in 1..=FRAMES {
        let pieces = [RawSlice::of(&payload), RawSlice::EMPTY];
        let offload = TxOffload::NONE;
        if device.tx(&header, pieces, offload).is_err() {
            device.flush();
        }
        if n % batch == 0 {
            device.flush();
        }
    }
    device.flush();
    drop(sink);
    begin.elapsed().as_nanos() as f64 / f64::from(FRAMES)
}

fn transmit_large(device: &mut dyn Device, to: [u8; 6]) -> f64 {
    const LEN: usize = 1448 * 44;
    const COUNT: u32 = 5000;
    let header = header(device.info().mac, to, 6, 20, LEN);
    let payload = vec![0; LEN];
    let offload = TxOffload {
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        gso: Some(Gso {
            mss: 1448,
            header_len: 54,
        }),
        ..TxOffload::NONE
    };
    let begin = Instant::now();
    for _ in 0..COUNT {
        let pieces = [RawSlice::of(&payload), RawSlice::EMPTY];
        let _ = device.tx(&header, pieces, offload);
        device.flush();
        // The peer's answers (there is no connection) must not pile up.
        device.rx(64, &mut |_: &[u8], _: RxMeta| {});
    }
    begin.elapsed().as_nanos() as f64 / f64::from(COUNT)
}

/// Nanoseconds for a frame that waits, and for a look when none does.
fn receive(device: &mut dyn Device, batch: usize) -> (f64, f64) {
    while device.rx(64, &mut |_: &[u8], _: RxMeta| {}) != 0 {}
    let socket = UdpSocket::bind((PEER, 0)).expect("source");
    let (mut busy, mut frames) = (Duration::ZERO, 0);
    let (mut idle, mut looks) = (Duration::ZERO, 0u32);
    let mut bytes = 0;
    for _ in 0..FRAMES as usize / 4 / batch {
        for _ in 0..batch {
            let _ = socket.send_to(&[0; 18], (STACK, 7));
        }
        let begin = Instant::now();
        frames += device.rx(batch, &mut |frame: &[u8], _: RxMeta| bytes += frame.len());
        busy += begin.elapsed();
        let begin = Instant::now();
        device.rx(batch, &mut |_: &[u8], _: RxMeta| {});
        idle += begin.elapsed();
        looks += 1;
    }
    assert!(bytes > 0, "nothing arrived");
    (
        busy.as_nanos() as f64 / frames as f64,
        idle.as_nanos() as f64 / f64::from(looks),
    )
}
