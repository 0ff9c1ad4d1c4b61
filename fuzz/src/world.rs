//! A stack's environment, with the invariants that hold for any input.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use slipstack_stack::{
    ConnId, DatagramIn, Effects, Event, FrameOut, Instant, ListenOptions, NetworkState, Payload,
    Stack, StackConfig, TcpConfig, UdpId, UdpOptions,
};
use slipstack_wire::tcp::TcpSegment;

use crate::frames::{OWN, OWN_MAC, OWN6, PEER, PEER_MAC};

const TCP: u8 = 6;

/// The last segment that the stack has sent in a flow.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub own_port: u16,
    pub peer_port: u16,
    /// Sequence number after the segment.
    pub next: u32,
    pub ack: u32,
}

/// State of a connection.
#[derive(Debug, Default)]
pub struct Known {
    pub written: u64,
    pub received: u64,
    acked: u64,
    /// Whether its bytes were stored at the engine that it comes from.
    is_foreign: bool,
    /// Disjoint ranges of stored bytes: start to end.
    stored: BTreeMap<u64, u64>,
}

impl Known {
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// A connection that has come from elsewhere.
    pub fn restore(&mut self, acked: u64, written: u64) {
        (self.acked, self.written, self.is_foreign) = (acked, written, true);
    }
}

#[derive(Debug, Default)]
pub struct World {
    /// Frames sent since the counter was last reset.
    pub frames: usize,
    pub conns: BTreeMap<(u32, u32), Known>,
    /// Newest flow last.
    pub sent: Vec<Sent>,
    /// Every seventh offset finds no room.
    pub is_tight: bool,
}

fn key(conn: ConnId) -> (u32, u32) {
    (conn.index, conn.generation)
}

impl World {
    /// One of the living connections.
    pub fn pick(&self, choice: u8) -> Option<ConnId> {
        let at = usize::from(choice) % self.conns.len().max(1);
        let (&(index, generation), _) = self.conns.iter().nth(at)?;
        Some(ConnId { index, generation })
    }

    pub fn known(&mut self, conn: ConnId) -> &mut Known {
        self.conns.entry(key(conn)).or_default()
    }

    fn note_segment(&mut self, header: &[u8], payload_len: usize) {
        let Some(segment) = header.get(34..).and_then(TcpSegment::parse) else {
            return;
        };
        let tcp = segment.header;
        let counted = u32::from(tcp.flags.is_syn()) + u32::from(tcp.flags.is_fin());
        let len = (segment.payload.len() + payload_len) as u32;
        let sent = Sent {
            own_port: tcp.src_port,
            peer_port: tcp.dst_port,
            next: tcp.seq.wrapping_add(counted + len),
            ack: tcp.ack,
        };
        self.sent
            .retain(|old| (old.own_port, old.peer_port) != (sent.own_port, sent.peer_port));
        self.sent.push(sent);
    }
}

impl Effects for World {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        assert!(frame.header.len() >= 14);
        self.frames += 1;
        // A frame that waited for its neighbour may come after its bytes were acknowledged, or
        // after its connection.
        if let Payload::Stream { conn, offset, len } = frame.payload
            && let Some(known) = self.conns.get(&key(conn))
        {
            let end = offset + u64::from(len);
            assert!(
                end <= known.written,
                "{end} sent, {} written",
                known.written
            );
        }
        if frame.header.get(23) == Some(&TCP) {
            self.note_segment(frame.header, frame.payload.len());
        }
    }

    fn store(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        assert!(!bytes.is_empty());
        if self.is_tight && offset % 7 == 6 {
            return false;
        }
        let stored = &mut self.known(conn).stored;
        let (mut start, mut end) = (offset, offset + bytes.len() as u64);
        while let Some((&from, &to)) = stored.range(..=end).next_back() {
            if to < start {
                break;
            }
            (start, end) = (start.min(from), end.max(to));
            stored.remove(&from);
        }
        stored.insert(start, end);
        true
    }

    fn datagram(&mut self, _udp: UdpId, _datagram: &DatagramIn<'_>) {}

    fn event(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, .. } | Event::Connected { conn } => {
                self.known(conn);
            }
            Event::Received { conn, upto } => {
                let known = self.known(conn);
                assert!(upto > known.received, "nothing new was received");
                known.received = upto;
                let covered = known.stored.first_key_value();
                let is_stored = covered.is_some_and(|(&from, &to)| from == 0 && to >= upto);
                assert!(
                    is_stored || known.is_foreign,
                    "received up to {upto}, stored {:?}",
                    known.stored
                );
            }
            Event::Acked { conn, upto } => {
                let known = self.known(conn);
                assert!(
                    upto >= known.acked && upto <= known.written,
                    "{upto}: {known:?}"
                );
                known.acked = upto;
            }
            Event::Released { conn } => {
                self.conns.remove(&key(conn));
            }
            _ => {}
        }
    }
}

/// A stack that listens on port 80 and 8080, has a UDP socket on port 53, and knows its
/// neighbour.
pub fn stack(now: Instant, world: &mut World) -> Stack {
    let config = StackConfig {
        network: NetworkState::of(1500, vec![(OWN.into(), 24), (OWN6.into(), 64)], &[]).into(),
        mac: OWN_MAC,
        seed: [7; 32],
        tcp: TcpConfig {
            user_timeout_option: true,
            ..TcpConfig::default()
        },
        ..StackConfig::default()
    };
    let mut stack = Stack::new(config, now);
    for port in [80, 8080] {
        let listener = stack.tcp_listen(SocketAddr::from((OWN, port)), ListenOptions::default());
        assert!(listener.is_ok());
    }
    let listener = stack.tcp_listen(SocketAddr::from((OWN6, 80)), ListenOptions::default());
    assert!(listener.is_ok());
    let udp = stack.udp_bind(SocketAddr::from((OWN6, 53)), UdpOptions::default());
    assert!(udp.is_ok());
    let udp = stack.udp_bind(SocketAddr::from((OWN, 53)), UdpOptions::default());
    assert!(udp.is_ok());
    stack.on_neighbour(now, PEER.into(), PEER_MAC, world);
    stack
}
