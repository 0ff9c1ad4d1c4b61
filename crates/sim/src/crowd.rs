//! Very many established connections in one stack, to measure the cost of each. Their peers have no
//! stack: each is a few counters.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_stack::{
    ConnId, DatagramIn, Effects, Event, FrameOut, Instant, ListenOptions, NetworkState, RxMeta,
    SocketError, Stack, StackConfig, UdpId,
};
use slipstack_wire::plain::{HEADER_MAX, PlainHeader};
use slipstack_wire::tcp::{TcpFlags, TcpSegment};
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT: u16 = 80;
const PORTS_PER_PEER: u32 = 50_000;
/// Between two segments.
const STEP_NS: u64 = 2_000;
const REQUEST: [u8; 100] = [b'q'; 100];
const ANSWER_LEN: u64 = 200;

/// The stack's last report.
#[derive(Default)]
struct Listener {
    sent: Option<Sent>,
    accepted: Option<ConnId>,
}

#[derive(Clone, Copy)]
struct Sent {
    seq: u32,
    ack: u32,
}

impl Effects for Listener {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        let segment = frame.header.get(34..).and_then(TcpSegment::parse);
        self.sent = segment.map(|segment| Sent {
            seq: segment.header.seq,
            ack: segment.header.ack,
        });
    }

    fn store(&mut self, _: ConnId, _: u64, _: &[u8]) -> bool {
        true
    }

    fn datagram(&mut self, _: UdpId, _: &DatagramIn<'_>) {}

    fn event(&mut self, event: Event) {
        if let Event::Accepted { conn, .. } = event {
            self.accepted = Some(conn);
        }
    }
}

/// The other side of one connection.
struct Peer {
    conn: ConnId,
    /// Next of ours and of theirs.
    seq: u32,
    ack: u32,
    rounds: u32,
}

/// One stack and its peers.
pub struct Crowd {
    stack: Stack,
    fx: Listener,
    now: Instant,
    peers: Vec<Peer>,
}

/// Something did not happen that had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Listen(SocketError),
    Handshake(u32),
    Request(u32),
}

impl Crowd {
    /// Bytes that the peers take, which are not the stack's.
    pub const PEER_BYTES: usize = size_of::<Peer>();

    pub fn new(connections: u32) -> Result<Crowd, Refused> {
        let now = Instant(1_000_000_000);
        let mut config = StackConfig {
            network: NetworkState::of(1500, vec![(OURS.into(), 8)], &[]).into(),
            mac: OUR_MAC,
            ..StackConfig::default()
        };
        config.tcp.conns_max = connections;
        let mut crowd = Crowd {
            stack: Stack::new(config, now),
            fx: Listener::default(),
            now,
            peers: Vec::with_capacity(connections as usize),
        };
        let options = ListenOptions {
            backlog: connections,
            ..ListenOptions::default()
        };
        let local = SocketAddr::from((OURS, PORT));
        crowd
            .stack
            .tcp_listen(local, options)
            .map_err(Refused::Listen)?;
        for index in 0..connections {
            crowd.connect(index).ok_or(Refused::Handshake(index))?;
        }
        Ok(crowd)
    }

    pub fn established(&self) -> usize {
        self.stack.tcp_sizes().connections
    }

    /// A segment of a peer, as its device would hand it over.
    fn peer_says(
        &mut self,
        index: u32,
        flags: TcpFlags,
        (seq, ack): (u32, u32),
        options: Option<TcpOptions>,
        payload: &[u8],
    ) {
        self.now.0 += STEP_NS;
        let stamps = Timestamps {
            value: (self.now.0 / 1_000_000) as u32,
            echo: 0,
        };
        let header = PlainHeader {
            link_dst: OUR_MAC,
            link_src: PEER_MAC,
            tos: 0,
            ttl: 64,
            src: address_of(index),
            dst: OURS,
            src_port: (1024 + index % PORTS_PER_PEER) as u16,
            dst_port: PORT,
            seq,
            ack,
            flags,
            window: 60_000,
            payload_len: payload.len() as u32,
        };
        let mut frame = [0; HEADER_MAX + REQUEST.len()];
        let mut room = [0; HEADER_MAX];
        let offer = options.map(|options| TcpOptions {
            timestamps: Some(stamps),
            ..options
        });
        let len = match offer.and_then(|offer| offer.syn_words()) {
            Some(words) => header.emit(words, &mut room),
            None => header.emit(stamps.words(), &mut room),
        };
        frame[..len].copy_from_slice(&room[..len]);
        frame[len..len + payload.len()].copy_from_slice(payload);
        let frame = &frame[..len + payload.len()];
        self.stack
            .on_frame(self.now, frame, RxMeta::VERIFIED, &mut self.fx);
    }

    fn connect(&mut self, index: u32) -> Option<()> {
        let peer = IpAddr::V4(address_of(index));
        if index.is_multiple_of(PORTS_PER_PEER) {
            self.stack
                .on_neighbour(self.now, peer, PEER_MAC, &mut self.fx);
        }
        let offer = TcpOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            ..TcpOptions::default()
        };
        let isn = index.wrapping_mul(77_777);
        self.peer_says(index, TcpFlags::SYN, (isn, 0), Some(offer), &[]);
        // A SYN is answered at the end of the turn.
        self.stack.flush(self.now, &mut self.fx);
        let answer = self.fx.sent.take()?;
        let (seq, ack) = (answer.ack, answer.seq.wrapping_add(1));
        self.peer_says(index, TcpFlags::ACK, (seq, ack), None, &[]);
        let conn = self.fx.accepted.take()?;
        self.stack.flush(self.now, &mut self.fx);
        self.peers.push(Peer {
            conn,
            seq,
            ack,
            rounds: 0,
        });
        Some(())
    }

    /// A request of one peer, its answer, which acknowledges it, and the ACK of that: without it,
    /// the stack would retransmit to peers that are not used again soon.
    pub fn round(&mut self, index: u32) -> Result<(), Refused> {
        let peer = &self.peers[index as usize];
        let (conn, seq, ack, rounds) = (peer.conn, peer.seq, peer.ack, peer.rounds);
        if rounds == 0 {
            // Neighbours have to be known when they are used again after a while.
            let address = IpAddr::V4(address_of(index));
            self.stack
                .on_neighbour(self.now, address, PEER_MAC, &mut self.fx);
        }
        self.peer_says(
            index,
            TcpFlags::ACK | TcpFlags::PSH,
            (seq, ack),
            None,
            &REQUEST,
        );
        let now = self.now;
        let asked = u64::from(rounds + 1) * REQUEST.len() as u64;
        let written = u64::from(rounds + 1) * ANSWER_LEN;
        self.stack.tcp_consumed(now, conn, asked);
        self.stack.tcp_written(conn, written, false);
        self.stack.flush(now, &mut self.fx);
        self.stack.on_timers(now, &mut self.fx);
        let answer = self.fx.sent.take().ok_or(Refused::Request(index))?;
        let peer = &mut self.peers[index as usize];
        peer.seq = seq.wrapping_add(REQUEST.len() as u32);
        peer.ack = ack.wrapping_add(ANSWER_LEN as u32);
        peer.rounds += 1;
        let settled = (peer.seq, peer.ack);
        if (answer.seq, answer.ack) != (ack, settled.0) {
            return Err(Refused::Request(index));
        }
        self.peer_says(index, TcpFlags::ACK, settled, None, &[]);
        match self.fx.sent.take() {
            None => Ok(()),
            Some(_) => Err(Refused::Request(index)),
        }
    }
}

/// Peers share the addresses from 10.1.0.0 up.
fn address_of(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 1).to_bits() + index / PORTS_PER_PEER)
}
