//! A stack, and a peer whose segments the test writes by hand.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::fast_open::FastOpen;
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::tcp::{OPTIONS_MAX, TcpFlags, TcpHeader, TcpSegment};
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};
use slipstack_wire::user_timeout::UserTimeout;
use slipstack_wire::{RxMeta, TxOffload, protocol};

use crate::{
    ConnId, Effects, Event, FrameOut, Instant, ListenOptions, ListenerId, Payload, Reason,
    SocketOptions, Stack, StackConfig, TcpSizes,
};

pub fn sizes(connections: usize, half_open: usize, time_wait: usize) -> TcpSizes {
    TcpSizes {
        connections,
        half_open,
        time_wait,
    }
}

pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const PORT: u16 = 80;
pub const PEER_PORT: u16 = 40_000;
/// The peer's initial sequence number.
pub const ISS: u32 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

pub const ACK: TcpFlags = TcpFlags::ACK;
pub const SYN: TcpFlags = TcpFlags::SYN;
pub const FIN: TcpFlags = TcpFlags::FIN;
pub const RST: TcpFlags = TcpFlags::RST;

/// A segment that the stack sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub header: TcpHeader,
    pub options: TcpOptions,
    pub fast_open: Option<FastOpen>,
    pub user_timeout: Option<UserTimeout>,
    /// Offset and length of the payload in the stream.
    pub data: Option<(u64, u32)>,
    pub offload: TxOffload,
    /// The TOS byte.
    pub tos: u8,
    pub identification: u16,
    pub dont_fragment: bool,
}

impl Sent {
    pub fn is(&self, flags: TcpFlags) -> bool {
        self.header.flags.contains(flags)
    }

    pub fn len(&self) -> u32 {
        self.data.map_or(0, |d| d.1)
    }
}

#[derive(Default)]
pub struct Recorder {
    pub sent: Vec<Sent>,
    pub events: Vec<Event>,
    pub stored: BTreeMap<u64, Vec<u8>>,
    pub refuses: bool,
    /// Other engines share the address; how many segments have been left to them.
    pub others: Option<u32>,
    /// The program is behind.
    pub has_unread: bool,
}

impl Effects for Recorder {
    fn has_unread(&mut self, _conn: ConnId) -> bool {
        self.has_unread
    }

    fn transmit(&mut self, frame: FrameOut<'_>) {
        let at = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
        if frame.header[12..14] != [8, 0] {
            return;
        }
        let parsed = TcpSegment::parse(&frame.header[at..]).expect("a TCP header");
        let data = match frame.payload {
            Payload::Stream { offset, len, .. } => Some((offset, len)),
            Payload::None | Payload::Inline(_) => None,
        };
        let options = TcpOptions::parse(parsed.options);
        self.sent.push(Sent {
            header: parsed.header,
            options,
            fast_open: FastOpen::find(parsed.options),
            user_timeout: UserTimeout::find(parsed.options),
            data,
            offload: frame.offload,
            tos: frame.header[ethernet::HEADER_LEN + 1],
            identification: u16::from_be_bytes([
                frame.header[ethernet::HEADER_LEN + 4],
                frame.header[ethernet::HEADER_LEN + 5],
            ]),
            dont_fragment: frame.header[ethernet::HEADER_LEN + 6] & 0x40 != 0,
        });
    }

    fn store(&mut self, _conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        if !self.refuses {
            self.stored.insert(offset, bytes.to_vec());
        }
        !self.refuses
    }

    fn datagram(&mut self, _: crate::UdpId, _: &crate::DatagramIn<'_>) {}

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn stray(&mut self, _: &crate::IpMeta, _: &[u8]) -> bool {
        self.others.as_mut().map(|count| *count += 1).is_some()
    }
}

pub struct World {
    pub stack: Stack,
    pub fx: Recorder,
    pub now: Instant,
    /// The peer's next sequence number and what it has acknowledged of ours.
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub stamps: Option<Timestamps>,
    pub conn: Option<ConnId>,
    pub listener: Option<ListenerId>,
    /// TOS byte of the peer's packets.
    pub tos: u8,
    /// Hop limit of the peer's packets.
    pub ttl: u8,
    /// The peer's frames come together; [`World::end_burst`] ends them.
    pub is_burst: bool,
    /// The destination of the peer's segments.
    pub to: Ipv4Addr,
    /// Way in which its frames come.
    pub meta: RxMeta,
}

pub fn config() -> StackConfig {
    StackConfig {
        network: slipstack_network::NetworkState::of(1500, alloc::vec![(OURS.into(), 24)], &[])
            .into(),
        ..StackConfig::default()
    }
}

impl World {
    pub fn new(config: StackConfig) -> World {
        let now = Instant(SECOND);
        let mut world = World {
            stack: Stack::new(config, now),
            fx: Recorder::default(),
            now,
            seq: ISS,
            ack: 0,
            window: 65_535,
            stamps: None,
            conn: None,
            listener: None,
            tos: 0,
            ttl: 64,
            is_burst: false,
            to: OURS,
            meta: RxMeta::VERIFIED,
        };
        // The peer's address is known before anything is sent.
        let ask =
            world
                .stack
                .tcp_connect(now, None, peer(), &SocketOptions::default(), &mut world.fx);
        world
            .stack
            .on_neighbour(now, PEER.into(), [2, 0, 0, 0, 0, 2], &mut world.fx);
        if let Ok(conn) = ask {
            world
                .stack
                .tcp_close(now, conn, crate::CloseMode::Abort, false, &mut world.fx);
        }
        world.clear();
        world
    }

    pub fn clear(&mut self) {
        self.fx.sent.clear();
        self.fx.events.clear();
    }

    /// Sets the largest packet of the link, as a router's advertisement does.
    pub fn set_link_mtu(&mut self, mtu: u16) {
        let mut learnt = (*self.stack.net.learnt).clone();
        learnt.link_mtu = Some(mtu);
        self.stack.learn(self.now, learnt);
    }

    pub fn listen(&mut self) -> ListenerId {
        self.listen_with(ListenOptions::default())
    }

    pub fn listen_with(&mut self, options: ListenOptions) -> ListenerId {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let listener = self.stack.tcp_listen(any, options).unwrap();
        self.listener = Some(listener);
        listener
    }

    /// A segment of the peer with the given numbers.
    pub fn inject(
        &mut self,
        ports: (u16, u16),
        seq: u32,
        ack: u32,
        flags: TcpFlags,
        options: &TcpOptions,
        payload: &[u8],
    ) {
        let mut room = [0; OPTIONS_MAX];
        let len = options.emit(&mut room);
        self.inject_raw(ports, (seq, ack), flags, &room[..len], payload);
    }

    /// Injects a segment with raw options. The turn of a segment that opens or closes ends with it.
    pub fn inject_raw(
        &mut self,
        ports: (u16, u16),
        numbers: (u32, u32),
        flags: TcpFlags,
        options: &[u8],
        payload: &[u8],
    ) {
        self.deliver(ports, numbers, flags, options, payload);
        if flags.is_syn() || flags.is_fin() {
            self.flush();
        }
    }

    /// Injects a segment while the turn goes on.
    pub fn deliver(
        &mut self,
        ports: (u16, u16),
        (seq, ack): (u32, u32),
        flags: TcpFlags,
        options: &[u8],
        payload: &[u8],
    ) {
        let options_len = options.len();
        let l4 = 20 + options_len + payload.len();
        let mut frame = alloc::vec![0; 34 + l4];
        EthernetHeader {
            dst: self.stack.config().mac,
            src: [2, 0, 0, 0, 0, 2],
            ethertype: EtherType::IPV4,
        }
        .emit(&mut frame);
        Ipv4Header {
            tos: self.tos,
            total_len: (20 + l4) as u16,
            identification: 0,
            dont_fragment: true,
            ttl: self.ttl,
            protocol: protocol::TCP,
            src: PEER,
            dst: self.to,
        }
        .emit(&mut frame[14..]);
        let header = TcpHeader {
            src_port: ports.0,
            dst_port: ports.1,
            seq,
            ack,
            flags,
            window: self.window,
            urgent: 0,
        };
        header.emit(options_len, &mut frame[34..]);
        frame[54..54 + options_len].copy_from_slice(options);
        frame[54 + options_len..].copy_from_slice(payload);
        let World {
            stack,
            fx,
            now,
            meta,
            ..
        } = self;
        if self.is_burst {
            stack.on_burst_frame(*now, &frame, *meta, fx);
        } else {
            stack.on_frame(*now, &frame, *meta, fx);
        }
    }

    pub fn end_burst(&mut self) {
        self.stack.end_burst(self.now, &mut self.fx);
    }

    /// A segment at the peer's position; the position moves on.
    pub fn peer(&mut self, flags: TcpFlags, payload: &[u8]) {
        self.peer_at(0, flags, payload);
        let syn_fin = u32::from(flags.is_fin()) + u32::from(flags.is_syn());
        self.seq = self.seq.wrapping_add(payload.len() as u32 + syn_fin);
    }

    /// A segment `ahead` bytes beyond the peer's position, which stays.
    pub fn peer_at(&mut self, ahead: u32, flags: TcpFlags, payload: &[u8]) {
        let options = TcpOptions {
            timestamps: self.stamps,
            ..TcpOptions::default()
        };
        self.peer_with(ahead, flags, payload, options);
    }

    pub fn peer_with(&mut self, ahead: u32, flags: TcpFlags, payload: &[u8], options: TcpOptions) {
        let (seq, ack) = (self.seq.wrapping_add(ahead), self.ack);
        self.inject((PEER_PORT, PORT), seq, ack, flags, &options, payload);
    }

    pub fn flush(&mut self) {
        self.stack.flush(self.now, &mut self.fx);
    }

    /// Time passes; timers fire in their order.
    pub fn sleep(&mut self, ns: u64) {
        let end = self.now.plus_nanos(ns);
        self.flush();
        while let Some(at) = self.stack.next_deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            // The peer's link-layer address stays known, even if it answers nothing else.
            self.stack
                .on_neighbour(self.now, PEER.into(), [2, 0, 0, 0, 0, 2], &mut self.fx);
            self.stack.on_timers(self.now, &mut self.fx);
            self.flush();
        }
        self.now = end;
        self.stack.on_timers(end, &mut self.fx);
        self.flush();
    }

    pub fn take_sent(&mut self) -> Vec<Sent> {
        core::mem::take(&mut self.fx.sent)
    }

    /// The only segment sent since the last look.
    pub fn only(&mut self) -> Sent {
        let sent = self.take_sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent[0].clone()
    }

    pub fn none(&mut self) {
        let sent = self.take_sent();
        assert!(sent.is_empty(), "{sent:?}");
    }

    /// A passive open with the given options of the peer's SYN.
    pub fn accept(&mut self, options: TcpOptions) -> ConnId {
        self.inject((PEER_PORT, PORT), self.seq, 0, SYN, &options, &[]);
        self.seq = self.seq.wrapping_add(1);
        let answer = self.only();
        assert!(answer.is(SYN | ACK));
        self.ack = answer.header.seq.wrapping_add(1);
        self.now.0 += 10 * MS;
        self.stamps = options.timestamps.map(|t| Timestamps {
            value: t.value + 10,
            echo: answer.options.timestamps.map_or(0, |t| t.value),
        });
        self.peer(ACK, &[]);
        let conn = self.fx.events.iter().find_map(|event| match event {
            Event::Accepted { conn, .. } => Some(*conn),
            _ => None,
        });
        self.flush();
        self.conn = conn;
        conn.expect("accepted")
    }

    pub fn write(&mut self, upto: u64) {
        let conn = self.conn.unwrap();
        self.stack.tcp_written(conn, upto, false);
        self.flush();
    }

    pub fn has(&self, wanted: Event) -> bool {
        self.fx.events.contains(&wanted)
    }

    pub fn failed(&self) -> Option<Reason> {
        self.fx.events.iter().find_map(|event| match event {
            Event::Failed { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    pub fn is_released(&self) -> bool {
        self.has(Event::Released {
            conn: self.conn.unwrap(),
        })
    }

    /// The peer acknowledges `bytes` more.
    pub fn acknowledge(&mut self, bytes: u32) {
        self.ack = self.ack.wrapping_add(bytes);
        self.peer(ACK, &[]);
    }
}

pub fn peer() -> SocketAddr {
    SocketAddr::from((PEER, PEER_PORT))
}

/// A world with one accepted connection; MSS 1000, SACK.
pub fn established() -> World {
    let mut world = World::new(config());
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        sack_permitted: true,
        ..TcpOptions::default()
    });
    world.clear();
    world
}

/// Returns a world with an established connection that uses timestamps.
pub fn established_with_stamps() -> World {
    let mut world = World::new(config());
    world.listen();
    let stamps = Some(Timestamps {
        value: 50_000,
        echo: 0,
    });
    world.accept(TcpOptions {
        mss: Some(1012),
        sack_permitted: true,
        timestamps: stamps,
        ..TcpOptions::default()
    });
    world.clear();
    world
}
