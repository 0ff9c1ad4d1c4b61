//! Segments written by hand, as an attacker writes them, and a stack that takes them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_stack::{
    CloseMode, ConnId, DatagramIn, Effects, Event, FrameOut, Instant, ListenOptions, ListenerId,
    NetworkState, Payload, RxMeta, SocketOptions, Stack, StackConfig, UdpId,
};
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header};
use slipstack_wire::protocol;
use slipstack_wire::tcp::{OPTIONS_MAX, TcpFlags, TcpHeader, TcpSegment};
use slipstack_wire::tcp_options::TcpOptions;

/// The stack under attack, its port, and the router to all others.
pub const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PORT: u16 = 80;
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const VICTIM_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 254];
const HEADERS: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;

/// One segment to the victim.
#[derive(Clone, Debug)]
pub struct Forged {
    pub from: SocketAddr,
    pub seq: u32,
    pub ack: u32,
    pub flags: TcpFlags,
    pub window: u16,
    pub urgent: u16,
    pub options: TcpOptions,
    /// Options as they are on the wire, instead of `options`.
    pub raw_options: Option<Vec<u8>>,
    pub payload: Vec<u8>,
}

impl Forged {
    pub fn new(from: SocketAddr, flags: TcpFlags, seq: u32, ack: u32) -> Forged {
        Forged {
            from,
            seq,
            ack,
            flags,
            window: u16::MAX,
            urgent: 0,
            options: TcpOptions::default(),
            raw_options: None,
            payload: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_options(mut self, options: TcpOptions) -> Forged {
        self.options = options;
        self
    }

    #[must_use]
    pub fn with_payload(mut self, len: usize) -> Forged {
        self.payload = vec![0xa5; len];
        self
    }

    /// The frame that the router delivers.
    pub fn frame(&self) -> Vec<u8> {
        let mut room = [0; OPTIONS_MAX];
        let len = self.options.emit(&mut room);
        let options = self.raw_options.as_deref().unwrap_or(&room[..len]);
        let l4 = 20 + options.len() + self.payload.len();
        let mut frame = vec![0; HEADERS + l4];
        let ethernet = EthernetHeader {
            dst: VICTIM_MAC,
            src: ROUTER_MAC,
            ethertype: EtherType::IPV4,
        };
        ethernet.emit(&mut frame);
        let IpAddr::V4(src) = self.from.ip() else {
            return Vec::new();
        };
        let ip = Ipv4Header {
            tos: 0,
            total_len: (20 + l4) as u16,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            protocol: protocol::TCP,
            src,
            dst: VICTIM,
        };
        ip.emit(&mut frame[ethernet::HEADER_LEN..]);
        let header = TcpHeader {
            src_port: self.from.port(),
            dst_port: PORT,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
        };
        let at = HEADERS + 20;
        header.emit(options.len(), &mut frame[HEADERS..]);
        frame[at..at + options.len()].copy_from_slice(options);
        frame[at + options.len()..].copy_from_slice(&self.payload);
        frame
    }
}

/// A part of a UDP datagram to the victim, as the router delivers it.
pub fn fragment(from: Ipv4Addr, id: u16, offset: u16, has_more: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADERS];
    let ethernet = EthernetHeader {
        dst: VICTIM_MAC,
        src: ROUTER_MAC,
        ethertype: EtherType::IPV4,
    };
    ethernet.emit(&mut frame);
    let ip = &mut frame[ethernet::HEADER_LEN..];
    let header = Ipv4Header {
        tos: 0,
        total_len: (ipv4::HEADER_LEN + payload.len()) as u16,
        identification: id,
        dont_fragment: false,
        ttl: 64,
        protocol: protocol::UDP,
        src: from,
        dst: VICTIM,
    };
    header.emit_fragment(offset, has_more, ip);
    frame.extend_from_slice(payload);
    frame
}

/// A segment that the victim sent.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    pub to: SocketAddr,
    pub header: TcpHeader,
    pub options: TcpOptions,
    pub len: u32,
}

/// The victim's behaviour. `listens` switches the record of segments on.
#[derive(Debug, Default)]
pub struct Outcome {
    pub listens: bool,
    pub said: Vec<Said>,
    pub frames: u64,
    pub events: Vec<Event>,
    pub stored: u64,
}

impl Effects for Outcome {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        self.frames += 1;
        if !self.listens || frame.header[12..14] != [8, 0] {
            return;
        }
        let Some(parsed) = frame.header.get(HEADERS..).and_then(TcpSegment::parse) else {
            return;
        };
        let dst: [u8; 4] = frame.header[30..34].try_into().unwrap_or_default();
        self.said.push(Said {
            to: SocketAddr::from((dst, parsed.header.dst_port)),
            header: parsed.header,
            options: TcpOptions::parse(parsed.options),
            len: match frame.payload {
                Payload::Stream { len, .. } => len,
                Payload::Inline(bytes) => bytes.len() as u32,
                Payload::None => 0,
            },
        });
    }

    fn store(&mut self, _: ConnId, _: u64, bytes: &[u8]) -> bool {
        self.stored += bytes.len() as u64;
        true
    }

    fn datagram(&mut self, _: UdpId, _: &DatagramIn<'_>) {}

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// A stack with a listener, behind a router.
#[derive(Debug)]
pub struct Victim {
    pub stack: Stack,
    pub fx: Outcome,
    pub now: Instant,
    pub listener: ListenerId,
}

/// An open connection as its peer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub conn: ConnId,
    pub from: SocketAddr,
    pub seq: u32,
    pub ack: u32,
}

impl Victim {
    /// # Panics
    /// When the stack refuses to listen.
    pub fn new(change: impl FnOnce(&mut StackConfig)) -> Victim {
        let now = Instant::from_millis(1000);
        let mut config = StackConfig {
            network: NetworkState::of(1500, vec![(VICTIM.into(), 24)], &[ROUTER.into()]).into(),
            mac: VICTIM_MAC,
            seed: [7; 32],
            ..StackConfig::default()
        };
        change(&mut config);
        let mut stack = Stack::new(config, now);
        let options = ListenOptions {
            backlog: 1 << 20,
            ..ListenOptions::default()
        };
        let listener = stack
            .tcp_listen(SocketAddr::from((VICTIM, PORT)), options)
            .expect("a listener");
        let mut victim = Victim {
            stack,
            fx: Outcome::default(),
            now,
            listener,
        };
        victim.meet_router();
        victim
    }

    /// The router's link address is known, and stays so.
    pub fn meet_router(&mut self) {
        let anybody = SocketAddr::from(([192, 0, 2, 1], 9));
        let options = SocketOptions::default();
        let Victim { stack, fx, now, .. } = self;
        // Only an answer to a request is accepted.
        let asks = stack.tcp_connect(*now, None, anybody, &options, fx);
        stack.on_neighbour(*now, ROUTER.into(), ROUTER_MAC, fx);
        if let Ok(conn) = asks {
            stack.tcp_close(*now, conn, CloseMode::Abort, false, fx);
        }
        fx.said.clear();
        fx.events.clear();
    }

    /// One segment, and everything that follows from it.
    #[inline(never)]
    pub fn receive_frame(&mut self, frame: &[u8]) {
        self.stack
            .on_frame(self.now, frame, RxMeta::VERIFIED, &mut self.fx);
        self.stack.on_timers(self.now, &mut self.fx);
        self.stack.flush(self.now, &mut self.fx);
    }

    /// A finished handshake.
    pub fn open(&mut self, from: SocketAddr, iss: u32, options: TcpOptions) -> Option<Open> {
        let listened = std::mem::replace(&mut self.fx.listens, true);
        self.fx.said.clear();
        self.fx.events.clear();
        let syn = Forged::new(from, TcpFlags::SYN, iss, 0).with_options(options);
        self.receive_frame(&syn.frame());
        let answer = self.fx.said.pop()?;
        let (seq, ack) = (iss.wrapping_add(1), answer.header.seq.wrapping_add(1));
        let last = Forged::new(from, TcpFlags::ACK, seq, ack);
        self.receive_frame(&last.frame());
        self.fx.listens = listened;
        let conn = self.fx.events.drain(..).find_map(|event| match event {
            Event::Accepted { conn, .. } => Some(conn),
            _ => None,
        })?;
        Some(Open {
            conn,
            from,
            seq,
            ack,
        })
    }
}
