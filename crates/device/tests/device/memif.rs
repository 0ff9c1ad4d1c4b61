//! Two memif devices joined in one process: slots, their links, and peers that reconnect.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use slipstack_device::{
    Device, LinkTags, PartialChecksum, Port, RingPosition, RxChecksum, RxMeta, Slots, Transport,
    TxOffload, VlanTag,
};

use crate::net::{self, PEER, STACK};

const PATIENCE: Duration = Duration::from_secs(10);

struct Socket(PathBuf);

impl Socket {
    fn new(tag: &str) -> Socket {
        let name = format!("slipstack-memif-{}-{tag}", std::process::id());
        Socket(std::env::temp_dir().join(name))
    }

    fn open(&self, role: &str, slots: u16) -> Slots {
        let kind = format!("memif:{},role={role},ring=64", self.0.display());
        Slots::of_kind(&kind, "memif0", slots).unwrap()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn adopt(slots: &Slots, slot: u16) -> Box<dyn Device> {
    slots.adopt(slot, RingPosition::private()).unwrap()
}

fn received(device: &mut dyn Device) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    device.rx(256, &mut |frame: &[u8], _: RxMeta| {
        frames.push(frame.to_vec())
    });
    frames
}

/// Lets all devices work until a condition holds.
fn until(
    devices: &mut [&mut Box<dyn Device>],
    mut is_met: impl FnMut(usize, Vec<Vec<u8>>) -> bool,
) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        for (index, device) in devices.iter_mut().enumerate() {
            if is_met(index, received(&mut ***device)) {
                return;
            }
        }
    }
    panic!("nothing came");
}

fn connect(server: &mut Box<dyn Device>, client: &mut Box<dyn Device>) {
    let end = Instant::now() + PATIENCE;
    let mut ups = [false; 2];
    while ups != [true; 2] {
        assert!(Instant::now() < end, "no link");
        for (device, is_up) in [&mut *server, &mut *client].into_iter().zip(&mut ups) {
            received(&mut **device);
            let notice = device.take_notice();
            *is_up |= notice.is_some_and(|it| it.has_new_peer);
        }
    }
}

/// Sends a frame, and shows the peer what was sent.
fn send(device: &mut dyn Device, header: &[u8], payload: &[u8]) {
    net::send(device, header, payload, TxOffload::NONE);
    device.flush();
}

/// A datagram from PEER to a port of STACK.
fn datagram(mac: [u8; 6], port: u16, number: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&mac);
    frame[12..16].copy_from_slice(&[0x08, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&29u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, net::UDP]);
    frame[26..30].copy_from_slice(&PEER.octets());
    frame[30..34].copy_from_slice(&STACK.octets());
    let checksum = !net::sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&9u16.to_be_bytes());
    frame[42] = number;
    frame
}

#[test]
fn frames_reach_the_steered_slot_from_any_queue() {
    if !net::may_run("memif slots") {
        return;
    }
    let socket = Socket::new("slots");
    let (server, client) = (socket.open("server", 3), socket.open("client", 2));
    let tables = server.steering();
    tables.set_own(&[(STACK.into(), 24)]).unwrap();
    tables.set_port(Transport::Udp, 7, Port::Slot(1)).unwrap();
    tables.set_port(Transport::Udp, 8, Port::Slot(2)).unwrap();
    let (mut keeper, mut sender) = (adopt(&server, 0), adopt(&client, 0));
    connect(&mut keeper, &mut sender);
    let (mut first, mut second) = (adopt(&server, 1), adopt(&server, 2));
    let mac = server.link().mac;
    let mut seen = vec![Vec::new(); 3];
    for number in 0..90 {
        let frame = datagram(mac, 6 + u16::from(number % 3), number);
        send(&mut *sender, &frame, &[]);
        if number % 30 == 29 {
            let mut left = 30;
            until(
                &mut [&mut keeper, &mut first, &mut second],
                |slot, frames| {
                    left -= frames.len();
                    seen[slot].extend(frames.iter().map(|frame| frame[42]));
                    left == 0
                },
            );
        }
    }
    for (slot, seen) in (0u8..).zip(seen) {
        let expected: Vec<u8> = (0..30).map(|n| 3 * n + slot).collect();
        assert_eq!(seen, expected, "slot {slot}");
    }
    // A frame to another station.
    send(&mut *sender, &datagram([2; 6], 7, 0), &[]);
    send(&mut *sender, &datagram(mac, 7, 1), &[]);
    until(&mut [&mut first], |_, frames| {
        assert!(frames.iter().all(|frame| frame[42] == 1));
        !frames.is_empty()
    });
    assert_eq!(first.counters().rx_foreign, 1);
}

#[test]
fn a_partial_checksum_is_announced_to_the_engine_also_where_another_slot_took_the_frame() {
    if !net::may_run("memif checksums") {
        return;
    }
    let socket = Socket::new("partial");
    let (server, client) = (socket.open("server", 3), socket.open("client", 1));
    let tables = server.steering();
    tables.set_own(&[(STACK.into(), 24)]).unwrap();
    tables.set_port(Transport::Udp, 7, Port::Slot(1)).unwrap();
    tables.set_port(Transport::Udp, 8, Port::Slot(2)).unwrap();
    let (mut keeper, mut sender) = (adopt(&server, 0), adopt(&client, 0));
    connect(&mut keeper, &mut sender);
    let mut engines = [adopt(&server, 1), adopt(&server, 2)];
    let partial = TxOffload {
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 6,
        }),
        ..TxOffload::NONE
    };
    let (left_out, none) = (RxChecksum::Partial, RxChecksum::Unknown);
    for (port, offload, expected) in [
        (7, partial, left_out),
        (8, partial, left_out),
        (7, TxOffload::NONE, none),
        (8, TxOffload::NONE, none),
    ] {
        let frame = datagram(server.link().mac, port, 1);
        net::send(&mut *sender, &frame, &[], offload);
        sender.flush();
        let (mut found, end) = (None, Instant::now() + PATIENCE);
        while found.is_none() && Instant::now() < end {
            keeper.rx(256, &mut |_: &[u8], _: RxMeta| {});
            for (engine, own) in engines.iter_mut().zip([7, 8]) {
                engine.rx(256, &mut |bytes: &[u8], meta: RxMeta| {
                    assert_eq!((own, bytes), (port, &frame[..]));
                    found = Some(meta.checksum);
                });
            }
        }
        assert_eq!(found, Some(expected), "port {port}");
    }
}

#[test]
fn engines_that_share_a_queue_send_without_waiting_for_a_flush_of_the_other() {
    if !net::may_run("memif queue of two engines") {
        return;
    }
    let socket = Socket::new("shared");
    let (server, client) = (socket.open("server", 1), socket.open("client", 3));
    let (mut peer, mut keeper) = (adopt(&server, 0), adopt(&client, 0));
    connect(&mut peer, &mut keeper);
    let mac = server.link().mac;
    let (mut first, mut second) = (adopt(&client, 1), adopt(&client, 2));
    // They ask for the link, the keeper answers, and they have it.
    let mut rounds = 0;
    until(&mut [&mut keeper, &mut first, &mut second], |slot, _| {
        rounds += usize::from(slot == 2);
        rounds == 3
    });
    for number in 0..8 {
        for (engine, device) in (0..).zip([&mut first, &mut second]) {
            let frame = datagram(mac, 7, 2 * number + engine);
            net::send(&mut **device, &frame, &[], TxOffload::NONE);
        }
    }
    let mut seen = Vec::new();
    until(&mut [&mut peer], |_, frames| {
        seen.extend(frames.iter().map(|frame| frame[42]));
        seen.len() == 16
    });
    assert_eq!(seen, (0..16).collect::<Vec<u8>>());
    assert_eq!(
        [first.counters().tx_full, second.counters().tx_full],
        [0, 0]
    );
}

#[test]
fn a_peer_that_comes_again_gets_a_new_link_and_engines_follow() {
    if !net::may_run("memif reconnection") {
        return;
    }
    let socket = Socket::new("again");
    let client = socket.open("client", 2);
    let tables = client.steering();
    tables.set_own(&[(STACK.into(), 24)]).unwrap();
    tables.set_port(Transport::Udp, 7, Port::Slot(1)).unwrap();
    let (mut keeper, mut engine) = (adopt(&client, 0), adopt(&client, 1));
    let mac = client.link().mac;
    for round in 0..3u8 {
        let before = engine.counters().tx_unlinked;
        send(&mut *engine, &[0xff; 60], &[]);
        assert_eq!(engine.counters().tx_unlinked, before + 1);
        let server = socket.open("server", 1);
        let mut peer = adopt(&server, 0);
        connect(&mut peer, &mut keeper);
        send(&mut *peer, &datagram(mac, 7, round), &[3; 900]);
        until(&mut [&mut keeper, &mut engine], |slot, frames| {
            slot == 1
                && frames
                    .iter()
                    .any(|frame| frame[42] == round && frame.len() == 960)
        });
        // The engine may have had that by way of the keeper, and no link of its own yet.
        while engine.counters().tx_frames == u64::from(round) {
            received(&mut *keeper);
            received(&mut *engine);
            send(&mut *engine, &[0xff; 60], &[]);
        }
        until(&mut [&mut peer], |_, frames| frames == [[0xff; 60]]);
        drop((peer, server));
        let end = Instant::now() + PATIENCE;
        while !keeper
            .take_notice()
            .is_some_and(|it| it.sentence.contains("ended"))
        {
            assert!(Instant::now() < end);
            received(&mut *keeper);
        }
        received(&mut *engine);
    }
}

#[test]
fn frames_that_a_peer_sent_before_it_ended_arrive() {
    if !net::may_run("memif drain") {
        return;
    }
    let socket = Socket::new("drain");
    let client = socket.open("client", 2);
    let tables = client.steering();
    tables.set_own(&[(STACK.into(), 24)]).unwrap();
    tables.set_port(Transport::Udp, 7, Port::Slot(1)).unwrap();
    let (mut keeper, mut engine) = (adopt(&client, 0), adopt(&client, 1));
    let server = socket.open("server", 1);
    let mut peer = adopt(&server, 0);
    connect(&mut peer, &mut keeper);
    received(&mut *engine);
    for number in 0..30 {
        let frame = datagram(client.link().mac, 6 + u16::from(number % 2), number);
        send(&mut *peer, &frame, &[]);
    }
    drop((peer, server));
    let mut seen = vec![Vec::new(); 2];
    until(&mut [&mut keeper, &mut engine], |slot, frames| {
        seen[slot].extend(frames.iter().map(|frame| frame[42]));
        seen.iter().map(Vec::len).sum::<usize>() == 30
    });
    for (slot, seen) in (0u8..).zip(seen) {
        let expected: Vec<u8> = (0..15).map(|n| 2 * n + slot).collect();
        assert_eq!(seen, expected, "slot {slot}");
    }
}

/// A link between two devices: the sender's only slot, and the keeper and first engine of the
/// other, which has port 7 of UDP.
struct Pair {
    peer: Box<dyn Device>,
    keeper: Box<dyn Device>,
    engine: Box<dyn Device>,
    mac: [u8; 6],
    // Their files and tables.
    _opened: (Slots, Slots, Socket),
}

impl Pair {
    fn new(tag: &str) -> Pair {
        let socket = Socket::new(tag);
        let (server, client) = (socket.open("server", 1), socket.open("client", 2));
        let tables = client.steering();
        tables.set_own(&[(STACK.into(), 24)]).unwrap();
        tables.set_port(Transport::Udp, 7, Port::Slot(1)).unwrap();
        tables.set_alive(1, true).unwrap();
        let (mut peer, mut keeper) = (adopt(&server, 0), adopt(&client, 0));
        connect(&mut peer, &mut keeper);
        let mut engine = adopt(&client, 1);
        let mac = client.link().mac;
        // It asks for the link, the keeper answers, and it has it.
        while engine.counters().tx_frames == 0 {
            received(&mut *keeper);
            received(&mut *engine);
            send(&mut *engine, &[0xff; 60], &[]);
        }
        until(&mut [&mut peer], |_, frames| !frames.is_empty());
        Pair {
            peer,
            keeper,
            engine,
            mac,
            _opened: (server, client, socket),
        }
    }

    fn send(&mut self, port: u16, number: u8) {
        let frame = datagram(self.mac, port, number);
        send(&mut *self.peer, &frame, &[]);
    }
}

fn is_readable(device: &dyn Device, longest: Duration) -> bool {
    let fd = slipstack_mem::Descriptor::new(device.poll_fd()).unwrap();
    let flags = rustix::event::PollFlags::IN;
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd.as_fd(), flags)];
    let longest = rustix::event::Timespec {
        tv_sec: longest.as_secs().cast_signed(),
        tv_nsec: longest.subsec_nanos().into(),
    };
    rustix::event::poll(&mut fds, Some(&longest)).unwrap() > 0
}

/// Sleeps as a user of the device does. Returns whether something came in time.
fn sleeps(device: &dyn Device, longest: Duration) -> bool {
    device.has_rx() || is_readable(device, longest)
}

#[test]
fn a_peer_rings_only_for_an_engine_that_sleeps() {
    if !net::may_run("memif bells") {
        return;
    }
    let mut pair = Pair::new("bells");
    for round in 0..3 {
        while sleeps(&*pair.engine, Duration::ZERO) {
            received(&mut *pair.engine);
        }
        pair.send(7, round);
        assert!(sleeps(&*pair.engine, PATIENCE));
        assert_eq!(received(&mut *pair.engine).len(), 1);
        pair.send(7, round);
        let is_rung = is_readable(&*pair.engine, Duration::ZERO);
        assert!(!is_rung, "it is awake");
        assert_eq!(received(&mut *pair.engine).len(), 1);
    }
}

#[test]
fn the_keeper_empties_the_queue_of_an_engine_that_has_stopped() {
    if !net::may_run("memif guard") {
        return;
    }
    let mut pair = Pair::new("guard");
    for is_asleep in [false, true, false] {
        if is_asleep {
            while sleeps(&*pair.engine, Duration::ZERO) {
                received(&mut *pair.engine);
            }
        }
        for port in [6, 7] {
            pair.send(port, port as u8);
        }
        let end = Instant::now() + PATIENCE;
        let mut own = Vec::new();
        while own.is_empty() {
            assert!(Instant::now() < end, "asleep: {is_asleep}");
            sleeps(&*pair.keeper, PATIENCE);
            own.extend(received(&mut *pair.keeper));
        }
        assert_eq!(own.iter().map(|it| it[42]).collect::<Vec<_>>(), [6]);
        // The other one waits for its engine.
        assert!(sleeps(&*pair.engine, PATIENCE));
        let others = received(&mut *pair.engine);
        assert_eq!(others.iter().map(|it| it[42]).collect::<Vec<_>>(), [7]);
    }
    // An engine that takes its frames is left alone.
    let before = pair.engine.counters().rx_passed_on;
    pair.send(6, 1);
    until(&mut [&mut pair.engine], |_, _| true);
    assert_eq!(pair.engine.counters().rx_passed_on, before + 1);
}

#[test]
fn frames_of_vlans_have_their_tags_and_reach_the_engine_of_their_port() {
    if !net::may_run("memif VLANs") {
        return;
    }
    let mut pair = Pair::new("vlans");
    let provider = VlanTag {
        is_provider: true,
        ..VlanTag::plain(20)
    };
    let links = |single, double| {
        let inner = Some(VlanTag::plain(7));
        let outer = provider;
        let double = LinkTags {
            link: double,
            outer,
            inner,
        };
        [LinkTags::single(single, VlanTag::plain(10)), double]
    };
    // The numbers of links are each side's own.
    pair.peer.set_vlans(&links(10, 4000));
    pair.engine.set_vlans(&links(11, 4001));
    pair.keeper.set_vlans(&links(11, 4001));
    let frame = datagram(pair.mac, 7, 1);
    let mut seen = Vec::new();
    for (sent, expected) in [(10, 11), (4000, 4001), (0, 0)] {
        net::send(&mut *pair.peer, &frame, &[], TxOffload::on(sent));
        pair.peer.flush();
        // The first by way of the keeper, which finds it at its second look.
        let end = Instant::now() + PATIENCE;
        while seen.is_empty() {
            assert!(Instant::now() < end, "{sent}");
            if sent == 10 {
                sleeps(&*pair.keeper, PATIENCE);
                received(&mut *pair.keeper);
                if pair.keeper.counters().rx_passed_on == 0 {
                    continue;
                }
            }
            pair.engine.rx(16, &mut |frame: &[u8], meta: RxMeta| {
                seen.push((frame.to_vec(), meta.link));
            });
        }
        assert_eq!(seen, [(frame.clone(), expected)]);
        seen.clear();
    }
    let back = [&[0xff; 6][..], &[2; 6], &[0x88, 0xb5], &[9; 46]].concat();
    for (sent, expected) in [(11, 10), (4001, 4000)] {
        net::send(&mut *pair.engine, &back, &[], TxOffload::on(sent));
        pair.engine.flush();
        pair.peer.rx(16, &mut |frame: &[u8], meta: RxMeta| {
            seen.push((frame.to_vec(), meta.link));
        });
        assert_eq!(seen, [(back.clone(), expected)]);
        seen.clear();
    }
    pair.peer.set_vlans(&[]);
    net::send(&mut *pair.engine, &back, &[], TxOffload::on(11));
    pair.engine.flush();
    assert!(received(&mut *pair.peer).is_empty());
    assert_eq!(pair.peer.counters().rx_vlan, 1);
}
