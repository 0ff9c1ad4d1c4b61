//! Small requests and answers between two stacks joined directly, for counting instructions:
//!
//! `valgrind --tool=callgrind --toggle-collect='*server_turn*' exchange keep-alive 1000`
//!
//! counts the server's stack alone, for 1000 exchanges (and one handshake).

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use slipstack_stack::{
    CloseMode, ConnId, DatagramIn, Effects, Event, FrameOut, Instant, ListenOptions, NetworkState,
    Payload, RxMeta, SocketOptions, Stack, StackConfig, UdpId,
};

const REQUEST: &[u8] = &[b'q'; 40];
const ANSWER: &[u8] = &[b'a'; 238];
const TURN_NS: u64 = 10_000;
const USAGE: &str = "usage: exchange keep-alive|close COUNT";

/// One side: fixed buffers, so that the count is the stack's.
struct Side {
    stack: Stack,
    fx: SideEffects,
}

#[derive(Default)]
struct SideEffects {
    frames: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    events: Vec<Event>,
    answer: &'static [u8],
    stored: Vec<u8>,
}

impl Effects for SideEffects {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame.header);
        match frame.payload {
            Payload::None => {}
            Payload::Inline(inline) => bytes.extend_from_slice(inline),
            Payload::Stream { len, .. } => bytes.extend_from_slice(&self.answer[..len as usize]),
        }
        self.frames.push(bytes);
    }

    fn store(&mut self, _: ConnId, _: u64, bytes: &[u8]) -> bool {
        self.stored[..bytes.len()].copy_from_slice(bytes);
        true
    }

    fn datagram(&mut self, _: UdpId, _: &DatagramIn<'_>) {}

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl Side {
    fn new(index: u8, says: &'static [u8], now: Instant) -> Self {
        let config = StackConfig {
            network: NetworkState::of(1500, vec![(Ipv4Addr::new(10, 0, 0, index).into(), 24)], &[])
                .into(),
            mac: [2, 0, 0, 0, 0, index],
            seed: [index; 32],
            ..StackConfig::default()
        };
        let fx = SideEffects {
            answer: says,
            stored: vec![0; 256],
            ..SideEffects::default()
        };
        Self {
            stack: Stack::new(config, now),
            fx,
        }
    }
}

/// The server's part: frames in, events to the program, its calls, flush. Never inlined, because
/// the count is by this name.
#[inline(never)]
fn server_turn(side: &mut Side, now: Instant, frames: &[Vec<u8>], closes: bool) {
    let Side { stack, fx } = side;
    for frame in frames {
        stack.on_frame(now, frame, PARTIAL, fx);
    }
    for i in 0..fx.events.len() {
        match fx.events[i] {
            Event::Received { conn, upto } => {
                let answers = upto / REQUEST.len() as u64;
                stack.tcp_consumed(now, conn, upto);
                stack.tcp_written(conn, answers * ANSWER.len() as u64, false);
                if closes {
                    stack.tcp_close(now, conn, CloseMode::Orderly, false, fx);
                }
            }
            Event::Fin { conn } if !closes => {
                stack.tcp_close(now, conn, CloseMode::Orderly, false, fx);
            }
            _ => {}
        }
    }
    fx.events.clear();
    stack.on_timers(now, fx);
    stack.flush(now, fx);
}

const PARTIAL: RxMeta = RxMeta {
    checksum: slipstack_stack::RxChecksum::Partial,
    gso: false,
    segment: 0,
    local: false,
    link: 0,
};

struct Pair {
    client: Side,
    server: Side,
    now: Instant,
    closes: bool,
    answered: u64,
    wanted: u64,
    flying: Vec<Vec<u8>>,
}

impl Pair {
    /// The client's turn, then the server's; `false` when nothing moves any more.
    fn turn(&mut self) -> bool {
        self.now = self.now.plus_nanos(TURN_NS);
        let now = self.now;
        // Vectors are swapped and keep their room: the counted part does not allocate.
        std::mem::swap(&mut self.flying, &mut self.server.fx.frames);
        for frame in &self.flying {
            self.client
                .stack
                .on_frame(now, frame, PARTIAL, &mut self.client.fx);
        }
        self.server.fx.spare.append(&mut self.flying);
        for event in std::mem::take(&mut self.client.fx.events) {
            self.on_client_event(event);
        }
        let Side { stack, fx } = &mut self.client;
        stack.on_timers(now, fx);
        stack.flush(now, fx);
        std::mem::swap(&mut self.flying, &mut self.client.fx.frames);
        let moves = !self.flying.is_empty();
        server_turn(&mut self.server, now, &self.flying, self.closes);
        self.client.fx.spare.append(&mut self.flying);
        moves || !self.server.fx.frames.is_empty()
    }

    fn on_client_event(&mut self, event: Event) {
        let stack = &mut self.client.stack;
        match event {
            Event::Connected { conn } => {
                stack.tcp_written(conn, REQUEST.len() as u64, false);
            }
            Event::Received { conn, upto } => {
                stack.tcp_consumed(self.now, conn, upto);
                self.answered += u64::from(upto.is_multiple_of(ANSWER.len() as u64));
                if !self.closes && self.answered < self.wanted {
                    let requests = (self.answered + 1) * REQUEST.len() as u64;
                    stack.tcp_written(conn, requests, false);
                }
            }
            Event::Fin { conn } => {
                stack.tcp_close(
                    self.now,
                    conn,
                    CloseMode::Orderly,
                    false,
                    &mut self.client.fx,
                );
            }
            _ => {}
        }
    }

    fn connect(&mut self) -> Result<(), slipstack_stack::SocketError> {
        let remote = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80);
        let Side { stack, fx } = &mut self.client;
        stack
            .tcp_connect(self.now, None, remote, &SocketOptions::default(), fx)
            .map(|_| ())
    }
}

fn run(closes: bool, count: u64) -> Result<u64, slipstack_stack::SocketError> {
    let now = Instant::from_millis(1000);
    let (client, server) = (Side::new(1, REQUEST, now), Side::new(2, ANSWER, now));
    let mut pair = Pair {
        client,
        server,
        now,
        closes,
        answered: 0,
        wanted: count,
        flying: Vec::new(),
    };
    let local = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 80);
    pair.server
        .stack
        .tcp_listen(local, ListenOptions::default())?;
    let connections = if closes { count } else { 1 };
    for _ in 0..connections {
        pair.connect()?;
        while pair.turn() {}
    }
    Ok(black_box(pair.answered))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &arguments[..] {
        [kind, count] if kind == "keep-alive" => count.parse().ok().map(|count| (false, count)),
        [kind, count] if kind == "close" => count.parse().ok().map(|count| (true, count)),
        _ => None,
    };
    let Some((closes, count)) = parsed else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(closes, count) {
        Ok(answered) if answered == count => ExitCode::SUCCESS,
        Ok(answered) => {
            eprintln!("{answered} of {count} answered");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
