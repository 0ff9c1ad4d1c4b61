//! Frames between each back end and a kernel: small ones with and without offloads, 64 KiB ones
//! both ways, and coalesced datagrams.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::net::{self, L4, Namespace, PEER, Pair, STACK};
use slipstack_device::{
    Device, Gso, Port, Rest, RingPosition, RxChecksum, RxMeta, Sink, Slots, Transport, TxOffload,
    iface,
};
use slipstack_mem::{RawSpace, Region, now_ns};

/// A device under test and the kernel that it talks to.
struct Bench {
    device: Box<dyn Device>,
    peer: Namespace,
    /// Kept for the time of the test, as the keeper would.
    _slots: Slots,
    _ours: Option<Namespace>,
}

fn first_slot(slots: &Slots) -> Box<dyn Device> {
    slots.steering().set_own(&[(STACK.into(), 24)]).unwrap();
    slots.adopt(0, RingPosition::private()).unwrap()
}

fn packet(tag: &str) -> Bench {
    let pair = Pair::new(tag);
    let slots = Slots::of_kind("packet", "slip-v", 1).unwrap();
    pair.announce(slots.link().mac);
    Bench {
        device: first_slot(&slots),
        peer: pair.peer,
        _slots: slots,
        _ours: Some(pair.ours),
    }
}

/// The slot that has the interface's queue, and is sent everything.
fn xdp(tag: &str, kind: &str) -> Bench {
    let pair = Pair::new(tag);
    let slots = Slots::of_kind(kind, "slip-v", 2).unwrap();
    pair.announce(slots.link().mac);
    let steering = slots.steering();
    steering.set_own(&[(STACK.into(), 24)]).unwrap();
    for proto in [Transport::Tcp, Transport::Udp] {
        steering
            .set_ports(proto, 0..=u16::MAX, Port::Slot(1))
            .unwrap();
    }
    Bench {
        device: slots.adopt(1, RingPosition::private()).unwrap(),
        peer: pair.peer,
        _slots: slots,
        _ours: Some(pair.ours),
    }
}

fn tap(tag: &str) -> Bench {
    let peer = Namespace::new(tag);
    peer.enter();
    let slots = Slots::of_kind("tap", "slip0", 1).unwrap();
    iface::add_address("slip0", PEER.into(), 24).unwrap();
    iface::set_up("slip0").unwrap();
    net::announce(&peer, "slip0", slots.link().mac);
    Bench {
        device: first_slot(&slots),
        peer,
        _slots: slots,
        _ours: None,
    }
}

fn for_each_back_end(test: &str, body: fn(&mut Bench)) {
    if net::may_run(test) {
        body(&mut packet(&format!("{test}-p")));
        body(&mut tap(&format!("{test}-t")));
        body(&mut xdp(&format!("{test}-g"), "xdp:generic"));
    }
}

/// A native program has the kernel at the other end of a veth pair cut its frames itself.
fn for_each_and_native(test: &str, body: fn(&mut Bench)) {
    for_each_back_end(test, body);
    if net::may_run(test) {
        body(&mut xdp(&format!("{test}-x"), "xdp:native"));
    }
}

/// Answers a UDP frame with its own payload, leaving the checksum to the device or not.
pub fn echo(device: &mut dyn Device, frame: &[u8], is_partial: bool) {
    let payload = &frame[42..];
    let l4_len = 8 + payload.len();
    let mut header = net::answer_header(frame, l4_len);
    header.extend_from_slice(&frame[L4 + 2..L4 + 4]);
    header.extend_from_slice(&frame[L4..L4 + 2]);
    header.extend_from_slice(&(l4_len as u16).to_be_bytes());
    header.extend_from_slice(&[0, 0]);
    let mut offload = TxOffload::NONE;
    if is_partial {
        offload.checksum = Some(net::partial(&mut header, 6, l4_len));
    } else {
        let pseudo = u32::from(net::pseudo_sum(&header, l4_len));
        let whole = [&header[L4..], payload].concat();
        let checksum = !net::sum(&whole, pseudo);
        header[40..42].copy_from_slice(&checksum.to_be_bytes());
    }
    net::send(device, &header, payload, offload);
    device.flush();
}

#[test]
fn datagrams_come_and_go_with_whole_and_partial_checksums() {
    for_each_and_native("echo", |bench| {
        for (round, len) in [1usize, 18, 500, 1472, 1471, 40].into_iter().enumerate() {
            let client = bench.peer.spawn(move || {
                let socket = UdpSocket::bind((PEER, 0)).unwrap();
                socket
                    .set_read_timeout(Some(Duration::from_secs(4)))
                    .unwrap();
                let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
                socket.send_to(&sent, (STACK, 7)).unwrap();
                let mut back = vec![0; 2000];
                let (len, _) = socket.recv_from(&mut back).unwrap();
                assert_eq!(sent, back[..len]);
            });
            let mut request = Vec::new();
            assert!(net::receive_until(&mut *bench.device, |frame, meta| {
                if net::is_udp(frame) {
                    assert_eq!(meta.checksum, RxChecksum::Partial);
                    assert!(!meta.gso);
                    request = frame.to_vec();
                }
                net::is_udp(frame)
            }));
            let len = 28 + 14 + len;
            echo(&mut *bench.device, &request[..len], round % 2 == 0);
            client.join().unwrap();
        }
        assert_eq!(bench.device.counters().tx_dropped, 0);
        assert_eq!(bench.device.counters().rx_malformed, 0);
    });
}

#[test]
fn frames_keep_their_order_through_the_arena_and_around_large_ones() {
    for_each_and_native("order", |bench| {
        let (ready, wait) = std::sync::mpsc::channel();
        let server = bench.peer.spawn(move || {
            let socket = UdpSocket::bind((PEER, 9)).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(4)))
                .unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 2000];
            (0..150)
                .map(|_| {
                    socket.recv(&mut buffer).unwrap();
                    buffer[0]
                })
                .collect::<Vec<u8>>()
        });
        wait.recv().unwrap();
        let mut request = vec![0u8; 42];
        let link = bench
            .peer
            .exec("cat /sys/class/net/peer-v/address /sys/class/net/slip0/address");
        let mac: Vec<u8> = link
            .trim()
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        request[..6].copy_from_slice(&bench.device.info().mac);
        request[6..12].copy_from_slice(&mac);
        request[12] = 8;
        request[23] = net::UDP;
        request[26..30].copy_from_slice(&PEER.octets());
        request[30..34].copy_from_slice(&STACK.octets());
        request[L4..L4 + 2].copy_from_slice(&9u16.to_be_bytes());
        for n in 0..150u8 {
            let len = if n % 10 == 9 { 1400 } else { 20 };
            let mut frame = request.clone();
            frame.extend(std::iter::repeat_n(n, len));
            let payload = frame[42..].to_vec();
            let l4_len = 8 + payload.len();
            let mut header = net::answer_header(&frame, l4_len);
            header.extend_from_slice(&[0, 7, 0, 9]);
            header.extend_from_slice(&(l4_len as u16).to_be_bytes());
            header.extend_from_slice(&[0, 0]);
            let checksum = Some(net::partial(&mut header, 6, l4_len));
            net::send(
                &mut *bench.device,
                &header,
                &payload,
                TxOffload {
                    checksum,
                    ..TxOffload::NONE
                },
            );
        }
        bench.device.flush();
        assert_eq!(server.join().unwrap(), (0..150).collect::<Vec<u8>>());
    });
}

/// A one-connection TCP, just enough to receive a few segments and to send one super-frame.
struct MiniTcp {
    request: Vec<u8>,
    next_in: u32,
    next_out: u32,
}

impl MiniTcp {
    fn segment(&self, flags: u8, options: &[u8], payload_len: usize) -> (Vec<u8>, TxOffload) {
        let l4_len = 20 + options.len() + payload_len;
        let mut header = net::answer_header(&self.request, l4_len);
        header.extend_from_slice(&self.request[L4 + 2..L4 + 4]);
        header.extend_from_slice(&self.request[L4..L4 + 2]);
        header.extend_from_slice(&self.next_out.to_be_bytes());
        header.extend_from_slice(&self.next_in.to_be_bytes());
        header.push(((20 + options.len()) as u8 / 4) << 4);
        header.push(flags);
        header.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
        header.extend_from_slice(options);
        let checksum = Some(net::partial(&mut header, 16, l4_len));
        (
            header,
            TxOffload {
                checksum,
                ..TxOffload::NONE
            },
        )
    }
}

#[test]
fn super_frames_of_tcp_come_and_go() {
    const IN: usize = 12_000;
    const OUT: usize = 40_000;
    for_each_back_end("gso", |bench| {
        let client = bench.peer.spawn(|| {
            let mut stream = TcpStream::connect((STACK, 80)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(4)))
                .unwrap();
            stream.write_all(&[0x5a; IN]).unwrap();
            let mut back = vec![0; OUT];
            stream.read_exact(&mut back).unwrap();
            assert!(back.iter().enumerate().all(|(i, &b)| b == (i % 251) as u8));
        });
        let device = &mut *bench.device;
        let mut tcp = None;
        assert!(net::receive_until(device, |frame, _| {
            let is_syn = net::is_tcp(frame) && frame[L4 + 13] == 0x02;
            if is_syn {
                let seq = u32::from_be_bytes(frame[L4 + 4..L4 + 8].try_into().unwrap());
                tcp = Some(MiniTcp {
                    request: frame.to_vec(),
                    next_in: seq.wrapping_add(1),
                    next_out: 1000,
                });
            }
            is_syn
        }));
        let mut tcp = tcp.unwrap();
        let (header, offload) = tcp.segment(0x12, &[2, 4, 0x05, 0xb4], 0);
        net::send(device, &header, &[], offload);
        device.flush();
        tcp.next_out += 1;

        let (mut received, mut saw_gso) = (0, false);
        assert!(net::receive_until(device, |frame, meta: RxMeta| {
            if net::is_tcp(frame) {
                let header_len = L4 + usize::from(frame[L4 + 12] >> 4) * 4;
                let total = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
                let payload = &frame[header_len..total];
                assert!(payload.iter().all(|&b| b == 0x5a));
                received += payload.len();
                saw_gso |= meta.gso && frame.len() > 1514;
            }
            received == IN
        }));
        assert!(saw_gso, "the kernel's segmentation was left to us");
        tcp.next_in = tcp.next_in.wrapping_add(IN as u32);

        let payload: Vec<u8> = (0..OUT).map(|i| (i % 251) as u8).collect();
        let (header, mut offload) = tcp.segment(0x18, &[], OUT);
        offload.gso = Some(Gso {
            mss: 1460,
            header_len: header.len() as u16,
        });
        net::send(device, &header, &payload, offload);
        device.flush();
        client.join().unwrap();
    });
}

/// Fetches every other large frame into a region, in two pieces.
struct Fetcher {
    region: Region,
    /// UDP payloads, and how many of them bypassed the device's buffer.
    payloads: Vec<Vec<u8>>,
    fetched: usize,
    shown: usize,
}

const UDP_PAYLOAD: usize = L4 + 8;

impl Sink for Fetcher {
    fn frame(&mut self, frame: &[u8], _: RxMeta) {
        if net::is_udp(frame) {
            self.payloads.push(frame[UDP_PAYLOAD..].to_vec());
        }
    }

    fn large(&mut self, beginning: &[u8], meta: RxMeta, rest: &mut dyn Rest) {
        if !net::is_udp(beginning) {
            return;
        }
        self.shown += 1;
        if self.shown.is_multiple_of(2) {
            return;
        }
        assert!(meta.gso && beginning.len() < rest.frame_len());
        let len = rest.frame_len() - UDP_PAYLOAD;
        let first = self.shown * 700 % len;
        let space = |offset, len| self.region.space(offset, len).unwrap();
        assert!(!rest.fetch(UDP_PAYLOAD, [space(0, len - 1), RawSpace::EMPTY]));
        assert!(!rest.fetch(beginning.len() + 1, [space(0, len), RawSpace::EMPTY]));
        assert!(rest.fetch(UDP_PAYLOAD, [space(9, first), space(70_000, len - first)]));
        assert!(!rest.fetch(UDP_PAYLOAD, [space(0, len), RawSpace::EMPTY]));
        let mut bytes = vec![0; len];
        assert!(self.region.read_into(9, &mut bytes[..first]));
        assert!(self.region.read_into(70_000, &mut bytes[first..]));
        self.payloads.push(bytes);
        self.fetched += 1;
    }
}

#[test]
fn large_frames_go_where_their_reader_wants_them() {
    const UDP_SEGMENT: i32 = 103;
    const COUNT: usize = 24;
    for_each_back_end("fetch", |bench| {
        let datagram = |n: usize| -> Vec<u8> {
            let len = 3000 + n * 2000;
            (0..len).map(|at| (at / 7 + n) as u8).collect()
        };
        let client = bench.peer.spawn(move || {
            let socket = UdpSocket::bind((PEER, 0)).unwrap();
            net::sys::set_int(socket.as_fd(), libc::SOL_UDP, UDP_SEGMENT, 1000).unwrap();
            for n in 0..COUNT {
                let to = SocketAddr::from((STACK, 7));
                socket.send_to(&datagram(n), to).unwrap();
            }
        });
        let mut sink = Fetcher {
            region: Region::create("fetch", 256 * 1024).unwrap(),
            payloads: Vec::new(),
            fetched: 0,
            shown: 0,
        };
        let end = Instant::now() + Duration::from_secs(5);
        while sink.payloads.len() < COUNT && Instant::now() < end {
            bench.device.rx(64, &mut sink);
        }
        client.join().unwrap();
        assert_eq!(sink.payloads.len(), COUNT);
        for (n, payload) in sink.payloads.iter().enumerate() {
            assert!(*payload == datagram(n), "{n}");
        }
        let counters = bench.device.counters();
        assert_eq!(counters.rx_direct as usize, sink.fetched);
        // The first one shows that the queue keeps step with the ring.
        if counters.rx_large > 0 {
            assert_eq!(sink.shown, COUNT - 1);
            assert_eq!(sink.fetched, COUNT / 2);
        }
    });
}

#[test]
fn coalesced_datagrams_arrive_joined_with_their_size() {
    const UDP_SEGMENT: i32 = 103;
    for_each_back_end("ujoin", |bench| {
        let client = bench.peer.spawn(|| {
            let socket = UdpSocket::bind((PEER, 0)).unwrap();
            net::sys::set_int(socket.as_fd(), libc::SOL_UDP, UDP_SEGMENT, 1000).unwrap();
            let bytes: Vec<u8> = (0..5500).map(|i| (i / 1000) as u8).collect();
            socket
                .send_to(&bytes, SocketAddr::from((STACK, 7)))
                .unwrap();
        });
        // A kernel before 6.2 segments them for a TAP.
        let mut seen = Vec::new();
        let is_whole = net::receive_until(&mut *bench.device, |frame, meta| {
            if net::is_udp(frame) {
                assert_eq!(meta.gso, meta.segment != 0);
                assert!(meta.segment == 1000 || frame.len() <= 1042);
                assert_eq!(net::sum(&frame[14..34], 0), 0xffff);
                seen.extend(frame[42..].chunks(1000).map(|part| (part[0], part.len())));
            }
            seen.len() == 6
        });
        assert!(is_whole, "{seen:?}");
        client.join().unwrap();
        assert_eq!(seen.last(), Some(&(5, 500)));
    });
}

/// Counts frames, handled with the clock as it was read then.
struct Late {
    clock_ns: u64,
    frames: usize,
}

impl Sink for Late {
    fn frame(&mut self, frame: &[u8], _: RxMeta) {
        self.frames += usize::from(net::is_udp(frame));
    }

    fn clock_ns(&self) -> Option<u64> {
        Some(self.clock_ns)
    }
}

#[test]
fn frames_that_came_after_the_clock_was_read_wait_for_the_next_run() {
    if !net::may_run("late") {
        return;
    }
    let bench = &mut packet("late-p");
    let mut sink = Late {
        clock_ns: now_ns(),
        frames: 0,
    };
    let client = bench.peer.spawn(|| {
        let socket = UdpSocket::bind((PEER, 0)).unwrap();
        for _ in 0..3 {
            socket.send_to(b"early", (STACK, 7)).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    client.join().unwrap();
    // Other frames may come first, and each run takes its first one.
    while bench.device.has_rx() && sink.frames == 0 {
        bench.device.rx(64, &mut sink);
    }
    assert_eq!(sink.frames, 1);
    sink.clock_ns = now_ns();
    bench.device.rx(64, &mut sink);
    assert_eq!(sink.frames, 3);
}

#[test]
fn the_arrival_time_of_the_next_frame_is_known() {
    if !net::may_run("since") {
        return;
    }
    let bench = &mut packet("since-p");
    let before_ns = now_ns();
    let client = bench.peer.spawn(|| {
        let socket = UdpSocket::bind((PEER, 0)).unwrap();
        for _ in 0..2 {
            socket.send_to(b"early", (STACK, 7)).unwrap();
        }
    });
    client.join().unwrap();
    let after_ns = now_ns();
    // The two clocks may differ by this much while both are read.
    let moment_ns = 1_000_000;
    while bench.device.has_rx() {
        let since_ns = bench.device.waiting_since_ns().unwrap();
        assert!((before_ns - moment_ns..after_ns + moment_ns).contains(&since_ns));
        bench.device.rx(1, &mut |_: &[u8], _: RxMeta| {});
    }
    assert_eq!(bench.device.waiting_since_ns(), None);
}
