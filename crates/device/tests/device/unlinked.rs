//! Devices without a link: one that discards everything, and one that replays a capture.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use slipstack_device::{
    Capture, Device, DeviceError, Direction, RingPosition, RxMeta, Slots, TxOffload,
};
use slipstack_wire::arp::ArpPacket;
use slipstack_wire::ethernet::{self, EthernetHeader};

use crate::net;

const OWN: [u8; 6] = [2, 9, 9, 9, 9, 9];

fn arp_request(mac: [u8; 6]) -> Vec<u8> {
    let asked = ArpPacket::request(mac, net::STACK, net::PEER);
    asked.frame_to(ethernet::BROADCAST).into()
}

fn datagram(number: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&OWN);
    frame[12..16].copy_from_slice(&[0x08, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&29u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, net::UDP]);
    frame[26..30].copy_from_slice(&net::PEER.octets());
    frame[30..34].copy_from_slice(&net::STACK.octets());
    let checksum = !net::sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[38..40].copy_from_slice(&9u16.to_be_bytes());
    frame[42] = number;
    frame
}

fn received(device: &mut dyn Device) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    device.rx(64, &mut |frame: &[u8], _: RxMeta| {
        frames.push(frame.to_vec())
    });
    frames
}

#[test]
fn a_null_device_swallows_frames_and_knows_every_neighbour() {
    if !net::may_run("null device") {
        return;
    }
    let slots = Slots::of_kind("null", "null0", 2).unwrap();
    let mut device = slots.adopt(1, RingPosition::private()).unwrap();
    net::send(&mut *device, &[0xff; 60], &[7; 900], TxOffload::NONE);
    assert!(!device.has_rx());
    assert_eq!(device.counters().tx_bytes, 960);
    let own = device.info().mac;
    net::send(&mut *device, &arp_request(own), &[], TxOffload::NONE);
    assert!(device.has_rx());
    let [answer] = received(&mut *device).try_into().unwrap();
    let (header, payload) = EthernetHeader::parse(&answer).unwrap();
    assert_eq!(header.dst, own);
    assert_eq!(ArpPacket::parse(payload).unwrap().sender_ip, net::PEER);
    assert!(!device.has_rx());
}

/// A capture of an ARP request, three datagrams 40 ms apart, and a sent one.
struct Recorded(PathBuf);

impl Recorded {
    fn new(tag: &str) -> Recorded {
        let name = format!("slipstack-replay-{}-{tag}.pcapng", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut capture = Capture::new(
            File::create(&path).unwrap(),
            "eth7",
            slipstack_device::SNAPLEN_MAX,
        )
        .unwrap();
        let frames = [
            (Direction::Inbound, arp_request([2; 6])),
            (Direction::Inbound, datagram(0)),
            (Direction::Outbound, datagram(99)),
            (Direction::Inbound, datagram(1)),
            (Direction::Inbound, datagram(2)),
        ];
        for ((way, frame), n) in frames.into_iter().zip(0u64..) {
            let at = Duration::from_millis(5_000 + 20 * n);
            capture.frame(at, way, &frame).unwrap();
        }
        capture.flush().unwrap();
        Recorded(path)
    }

    fn open(&self, suffix: &str) -> Slots {
        let kind = format!("replay:{}{suffix}", self.0.display());
        Slots::of_kind(&kind, "replay0", 3).unwrap()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| frame[42]).collect()
}

/// Returns the next frames, once the device's descriptor is readable.
fn when_due(device: &mut dyn Device) -> Vec<Vec<u8>> {
    loop {
        let fd = slipstack_mem::Descriptor::new(device.poll_fd()).unwrap();
        let flags = rustix::event::PollFlags::IN;
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd.as_fd(), flags)];
        rustix::event::poll(&mut fds, None).unwrap();
        let frames = received(device);
        if !frames.is_empty() {
            return frames;
        }
    }
}

#[test]
fn a_replay_gives_engines_the_datagrams_and_the_keeper_the_rest() {
    if !net::may_run("replay") {
        return;
    }
    let file = Recorded::new("fast");
    let slots = file.open(",fast");
    assert_eq!(slots.link().mac, OWN);
    let mut keeper = slots.adopt(0, RingPosition::private()).unwrap();
    assert_eq!(when_due(&mut *keeper), [arp_request([2; 6])]);
    let mut engine = slots.adopt(1, RingPosition::private()).unwrap();
    // A program that has just opened its engine has no socket yet.
    assert!(!engine.has_rx());
    assert_eq!(numbers(&when_due(&mut *engine)), [0, 1, 2]);
    assert!(!engine.has_rx());
    let mut idle = slots.adopt(2, RingPosition::private()).unwrap();
    assert!(received(&mut *idle).is_empty());
}

#[test]
fn a_replay_keeps_the_times_and_its_successor_continues() {
    if !net::may_run("replay") {
        return;
    }
    let file = Recorded::new("timed");
    let slots = file.open("");
    let region = slipstack_mem::Region::create("replay", 4096).unwrap();
    let position = || RingPosition::new(region.clone(), 0).unwrap();
    let began = Instant::now();
    let mut first = slots.adopt(1, position()).unwrap();
    assert_eq!(numbers(&when_due(&mut *first)), [0]);
    assert!(!first.has_rx());
    assert_eq!(numbers(&when_due(&mut *first)), [1]);
    assert!(began.elapsed() >= Duration::from_millis(39));
    drop(first);
    let mut second = slots.adopt(1, position()).unwrap();
    assert_eq!(numbers(&when_due(&mut *second)), [2]);
}

#[test]
fn a_file_that_is_no_capture_is_refused_with_its_name() {
    if !net::may_run("replay") {
        return;
    }
    for (kind, word) in [
        ("replay", "replay:FILE"),
        ("replay:/nowhere", "/nowhere"),
        (
            "replay:/proc/self/status",
            "neither a pcapng nor a pcap file",
        ),
    ] {
        let error = Slots::of_kind(kind, "replay0", 2).err().unwrap();
        assert!(matches!(error, DeviceError::Unsuitable(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}
