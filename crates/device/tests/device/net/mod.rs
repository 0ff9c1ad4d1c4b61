//! Two network namespaces joined by a veth pair, frames by hand, and a way to run code in either.

pub mod sys;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use slipstack_device::{Device, PartialChecksum, RxMeta, TxOffload};
use slipstack_mem::RawSlice;

/// The stack's address, and the kernel's on the other side.
pub const STACK: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// Ethernet and IPv4 header.
pub const L4: usize = 34;

/// Returns false, with a printed reason, if namespaces cannot be made.
pub fn may_run(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("{test}: skipped, needs root for network namespaces");
    }
    is_root
}

pub fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status();
    assert!(status.is_ok_and(|s| s.success()), "ip {arguments}");
}

/// A namespace, deleted with this value.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new(tag: &str) -> Namespace {
        let name = format!("ss-dev-{}-{tag}", std::process::id());
        ip(&format!("netns add {name}"));
        let namespace = Namespace { name };
        namespace.sysctl("net.ipv6.conf.all.disable_ipv6", "1");
        namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
        namespace.ip("link set lo up");
        namespace
    }

    pub fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.name));
    }

    /// Runs a command inside; its output.
    pub fn exec(&self, command: &str) -> String {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.name])
            .args(command.split_whitespace())
            .output()
            .expect("ip netns exec");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn sysctl(&self, key: &str, value: &str) {
        let path = key.replace('.', "/");
        let (path, value) = (format!("/proc/sys/{path}"), value.to_owned());
        self.run(move || std::fs::write(path, value).expect("sysctl"));
    }

    /// Moves the calling thread into the namespace.
    pub fn enter(&self) {
        let file = File::open(format!("/var/run/netns/{}", self.name)).expect("namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns");
    }

    /// Runs `body` on a thread inside the namespace.
    pub fn run<T: Send + 'static>(&self, body: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(body).join().expect("thread in namespace")
    }

    pub fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let name = self.name.clone();
        std::thread::spawn(move || {
            let there = std::mem::ManuallyDrop::new(Namespace { name });
            there.enter();
            body()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

/// Our namespace, in which the calling thread is then, and the kernel peer's, joined by `slip-v`
/// (ours) and `peer-v` with [`PEER`].
pub struct Pair {
    pub ours: Namespace,
    pub peer: Namespace,
}

impl Pair {
    pub fn new(tag: &str) -> Pair {
        let ours = Namespace::new(&format!("{tag}-a"));
        let peer = Namespace::new(&format!("{tag}-b"));
        ours.ip(&format!(
            "link add slip-v type veth peer name peer-v netns {}",
            peer.name
        ));
        ours.ip("link set slip-v up");
        peer.ip("link set peer-v up");
        peer.ip(&format!("addr add {PEER}/24 dev peer-v"));
        ours.enter();
        Pair { ours, peer }
    }

    /// Tells the peer's kernel where the stack is.
    pub fn announce(&self, mac: [u8; 6]) {
        announce(&self.peer, "peer-v", mac);
    }
}

pub fn announce(namespace: &Namespace, interface: &str, mac: [u8; 6]) {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    namespace.ip(&format!(
        "neigh replace {STACK} lladdr {mac} dev {interface}"
    ));
}

/// The sum of 16-bit words, folded.
pub fn sum(bytes: &[u8], start: u32) -> u16 {
    let mut total = bytes.chunks(2).fold(start, |total, pair| {
        total + u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))
    });
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

pub fn pseudo_sum(frame: &[u8], l4_len: usize) -> u16 {
    sum(&frame[26..34], u32::from(frame[23]) + l4_len as u32)
}

/// Turns a received frame's Ethernet and IPv4 header around for an answer with `l4_len` bytes.
pub fn answer_header(frame: &[u8], l4_len: usize) -> Vec<u8> {
    let mut header = frame[..L4].to_vec();
    header[..6].copy_from_slice(&frame[6..12]);
    header[6..12].copy_from_slice(&frame[..6]);
    header[14] = 0x45;
    header[16..18].copy_from_slice(&((20 + l4_len) as u16).to_be_bytes());
    header[18..22].copy_from_slice(&[0, 1, 0x40, 0]);
    header[22] = 64;
    header[24..26].copy_from_slice(&[0, 0]);
    header[26..30].copy_from_slice(&frame[30..34]);
    header[30..34].copy_from_slice(&frame[26..30]);
    let checksum = !sum(&header[14..34], 0);
    header[24..26].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Puts the pseudo-header sum into a transport header's checksum field, `offset` bytes into it, and
/// returns the offload for the device.
pub fn partial(header: &mut [u8], offset: usize, l4_len: usize) -> PartialChecksum {
    let sum = pseudo_sum(header, l4_len);
    header[L4 + offset..L4 + offset + 2].copy_from_slice(&sum.to_be_bytes());
    PartialChecksum {
        start: L4 as u16,
        offset: offset as u16,
    }
}

pub fn send(device: &mut dyn Device, header: &[u8], payload: &[u8], offload: TxOffload) {
    let half = payload.len() / 3;
    let pieces = [
        RawSlice::of(&payload[..half]),
        RawSlice::of(&payload[half..]),
    ];
    assert_eq!(device.tx(header, pieces, offload), Ok(()));
}

/// A UDP frame with its header and its payload, for the echo below.
pub fn is_udp(frame: &[u8]) -> bool {
    frame.len() >= 42 && frame[12..14] == [8, 0] && frame[23] == UDP
}

pub fn is_tcp(frame: &[u8]) -> bool {
    frame.len() >= 54 && frame[12..14] == [8, 0] && frame[23] == TCP
}

pub fn ports(frame: &[u8]) -> (u16, u16) {
    let at = |i: usize| u16::from_be_bytes([frame[i], frame[i + 1]]);
    (at(L4), at(L4 + 2))
}

/// Source and destination of a TCP or UDP frame.
pub fn endpoints(frame: &[u8]) -> (SocketAddr, SocketAddr) {
    let ip = |i: usize| Ipv4Addr::new(frame[i], frame[i + 1], frame[i + 2], frame[i + 3]);
    let (source, destination) = ports(frame);
    (
        SocketAddr::from((ip(26), source)),
        SocketAddr::from((ip(30), destination)),
    )
}

/// Receives until `done` returns true or five seconds are over.
pub fn receive_until(
    device: &mut dyn Device,
    mut on_frame: impl FnMut(&[u8], RxMeta) -> bool,
) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    let mut is_done = false;
    while !is_done && Instant::now() < end {
        let count = device.rx(64, &mut |frame: &[u8], meta: RxMeta| {
            if !is_done {
                is_done = on_frame(frame, meta);
            }
        });
        if count == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    is_done
}

/// Everything that arrives within a time.
pub fn drain(device: &mut dyn Device, time: Duration) -> Vec<(Vec<u8>, RxMeta)> {
    let end = Instant::now() + time;
    let mut frames = Vec::new();
    while Instant::now() < end {
        device.rx(64, &mut |frame: &[u8], meta: RxMeta| {
            frames.push((frame.to_vec(), meta))
        });
        std::thread::sleep(Duration::from_micros(200));
    }
    frames
}

/// A broadcast frame of an unknown type.
pub fn broadcast() -> Vec<u8> {
    let mut frame = vec![0u8; 60];
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[12..14].copy_from_slice(&[0x88, 0xb6]);
    frame
}
