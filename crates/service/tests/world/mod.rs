//! A service on one engine, clients on another, joined by a simulated link in virtual time.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipstack_channel::{
    CloseMode, Command, EngineEnd, Envelope, ProgramEnd, SockId, State, Transport,
};
use slipstack_device::{Device, DeviceInfo, Sink, TxFull};
use slipstack_engine::{Engine, Instant, NetworkState, Role, Setup, StackConfig};
use slipstack_mem::RawSlice;
use slipstack_service::{Control, Host, Hosting, Service};
use slipstack_sim::link::{Link, LinkParams, Loss, Share};
use slipstack_stack::rng::Rng;
use slipstack_wire::{RxMeta, TxOffload};

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const MTU: u16 = 1500;
const TURN_NS: u64 = 20_000;
const TURNS_MAX: usize = 2_000_000;
const DELAY_NS: u64 = 1_000_000;

type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A device whose frames the world carries.
struct Port {
    last_mac_byte: u8,
    incoming: Frames,
    outgoing: Frames,
}

impl Device for Port {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            mac: [2, 0, 0, 0, 0, self.last_mac_byte],
            mtu: MTU,
            tx_checksum: false,
            tso_max: 0,
            udp_segmentation: false,
        }
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        for done in 0..budget {
            let Some(frame) = self.incoming.lock().unwrap().pop_front() else {
                return done;
            };
            sink.frame(&frame, RxMeta::UNKNOWN);
        }
        budget
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        _: TxOffload,
    ) -> Result<(), TxFull> {
        let mut frame = header.to_vec();
        for piece in payload {
            let start = frame.len();
            frame.resize(start + piece.len(), 0);
            piece.copy_to(&mut frame[start..]);
        }
        self.outgoing.lock().unwrap().push_back(frame);
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        -1
    }

    fn has_rx(&self) -> bool {
        !self.incoming.lock().unwrap().is_empty()
    }
}

/// One direction: from a device through the link into the other.
struct Way {
    from: Frames,
    link: Link<()>,
    to: Frames,
}

pub struct World {
    server: Engine,
    client: Engine,
    program: ProgramEnd,
    ways: [Way; 2],
    pub control: Control,
    pub now: u64,
    /// Frames that arrived.
    pub frames: u64,
}

fn engine(number: u8, addr: Ipv4Addr, frames: (&Frames, &Frames)) -> Engine {
    let device = Port {
        last_mac_byte: number,
        incoming: Arc::clone(frames.0),
        outgoing: Arc::clone(frames.1),
    };
    let stack = StackConfig {
        mac: device.info().mac,
        network: NetworkState::of(MTU, vec![(addr.into(), 24)], &[]).into(),
        tso_max: 0,
        role: Role::Standalone,
        seed: [number; 32],
        ..StackConfig::default()
    };
    let setup = Setup {
        stack,
        device: Box::new(device),
        directory: None,
        interconnect: None,
        ports: None,
        neighbours: None,
    };
    Engine::new(setup, Instant(1))
}

impl World {
    pub fn new(seed: u64, loss: f64, service: impl Service, hosting: Hosting) -> World {
        let lane = || -> Frames { Arc::default() };
        let (left_in, left_out, right_in, right_out) = (lane(), lane(), lane(), lane());
        let mut client = engine(1, CLIENT, (&left_in, &left_out));
        let mut server = engine(2, SERVER, (&right_in, &right_out));
        let end = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(end.region().clone()).unwrap();
        client.attach_client(end, None);
        let (inside, control) = Host::inside(service, hosting).unwrap();
        server.attach_owner(inside);
        let way = |from: &Frames, to: &Frames, number: u8| {
            let params = LinkParams {
                delay_ns: DELAY_NS,
                loss: Loss::Random(Share::ppm((loss * 1e6) as u32)),
                ..LinkParams::default()
            };
            let mut key = [number; 32];
            key[..8].copy_from_slice(&seed.to_le_bytes());
            Way {
                from: Arc::clone(from),
                link: Link::new(params, Rng::new(&key)),
                to: Arc::clone(to),
            }
        };
        let ways = [way(&left_out, &right_in, 1), way(&right_out, &left_in, 2)];
        let mut world = World {
            server,
            client,
            program,
            ways,
            control,
            now: 1_000_000,
            frames: 0,
        };
        world.step();
        world.step();
        world
    }

    /// One turn of each engine. When nothing happens time goes on to the next deadline.
    pub fn step(&mut self) {
        self.now += TURN_NS;
        let now = Instant(self.now);
        let mut progress = self.client.turn(now).progress;
        progress |= self.server.turn(now).progress;
        while self.program.poll_event().is_some() {}
        for way in &mut self.ways {
            for frame in way.from.lock().unwrap().drain(..) {
                let _ = way.link.offer(now, frame, ());
                progress = true;
            }
            while let Some(delivery) = way.link.poll(now) {
                way.to.lock().unwrap().push_back(delivery.bytes);
                self.frames += 1;
                progress = true;
            }
        }
        if !progress && !self.server.has_work() {
            let engines = [self.client.next_deadline(), self.server.next_deadline()];
            let links = self.ways.iter().map(|way| way.link.next_deadline());
            let next = engines.into_iter().chain(links).flatten().min();
            // Never further than a tenth of a second, so that `pass` ends in time.
            let jump = next.map_or(self.now, |at| at.0).min(self.now + 100_000_000);
            self.now = self.now.max(jump);
        }
    }

    /// Steps until the condition holds; `false` if it never does.
    pub fn until(&mut self, mut condition: impl FnMut(&mut World) -> bool) -> bool {
        let patience = self.now + 600_000_000_000;
        for _ in 0..TURNS_MAX {
            if condition(self) {
                return true;
            }
            if self.now > patience {
                return false;
            }
            self.step();
        }
        false
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time.as_nanos() as u64;
        while self.now < end {
            self.step();
        }
    }

    fn attempt(&mut self, port: u16) -> SockId {
        let sock = self.program.open_socket(Transport::Tcp).unwrap();
        let remote = SocketAddr::new(SERVER.into(), port);
        let ticket = self.program.request(Command::Connect { sock, remote });
        assert!(self.until(|world| world.program.reply(ticket).is_some()));
        sock
    }

    pub fn connect(&mut self, port: u16) -> SockId {
        let sock = self.attempt(port);
        let is_there = |world: &mut World| world.program.state(sock).contains(State::CONNECTED);
        assert!(self.until(is_there));
        sock
    }

    pub fn can_connect(&mut self, port: u16) -> bool {
        let sock = self.attempt(port);
        let ended = |world: &mut World| {
            let state = world.program.state(sock);
            state.intersects(State::CONNECTED | State::ERR)
        };
        assert!(self.until(ended));
        self.program.state(sock).contains(State::CONNECTED)
    }

    pub fn send(&mut self, sock: SockId, bytes: &[u8]) {
        let sent = self.program.send(sock, &[IoSlice::new(bytes)], false);
        assert_eq!(sent, bytes.len());
    }

    fn take(&mut self, sock: SockId, into: &mut Vec<u8>) {
        let mut buf = [0; 16_384];
        loop {
            let len = self.program.recv(sock, &mut [IoSliceMut::new(&mut buf)]);
            if len == 0 {
                return;
            }
            into.extend_from_slice(&buf[..len]);
        }
    }

    pub fn receive(&mut self, sock: SockId, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.until(|world| {
            world.take(sock, &mut bytes);
            bytes.len() >= len || world.has_ended(sock)
        });
        bytes
    }

    /// Returns the bytes up to the next line's end.
    pub fn receive_line(&mut self, sock: SockId) -> Vec<u8> {
        let mut line = Vec::new();
        self.until(|world| {
            let mut byte = [0];
            while !line.ends_with(b"\n") {
                let taken = world.program.recv(sock, &mut [IoSliceMut::new(&mut byte)]);
                if taken == 0 {
                    return world.has_ended(sock);
                }
                line.push(byte[0]);
            }
            true
        });
        line
    }

    /// Returns everything that comes until the connection ends.
    pub fn receive_all(&mut self, sock: SockId) -> Vec<u8> {
        self.receive(sock, usize::MAX)
    }

    /// Sends bytes while it reads as many back.
    pub fn exchange(&mut self, sock: SockId, bytes: &[u8]) -> Vec<u8> {
        let (mut back, mut sent) = (Vec::new(), 0);
        self.until(|world| {
            let rest = &bytes[sent..];
            sent += world.program.send(sock, &[IoSlice::new(rest)], false);
            world.take(sock, &mut back);
            back.len() >= bytes.len()
        });
        back
    }

    /// Writes until neither side takes more; returns how many bytes were taken.
    pub fn fill(&mut self, sock: SockId) -> usize {
        let chunk = [5; 10_000];
        let (mut sent, mut idle) = (0, 0);
        while idle < 30 {
            let taken = self.program.send(sock, &[IoSlice::new(&chunk)], false);
            sent += taken;
            idle = if taken == 0 { idle + 1 } else { 0 };
            self.step();
        }
        sent
    }

    pub fn shutdown(&mut self, sock: SockId) {
        self.program.push(Command::Shutdown {
            sock,
            is_full: false,
        });
    }

    pub fn close(&mut self, sock: SockId) {
        self.program.close(sock, CloseMode::Orderly);
    }

    pub fn has_ended(&mut self, sock: SockId) -> bool {
        self.program.state(sock).contains(State::RDHUP)
    }

    pub fn is_reset(&mut self, sock: SockId) -> bool {
        self.program.state(sock).contains(State::ERR)
    }

    pub fn ask_by_datagram(&mut self, port: u16, bytes: &[u8]) -> Vec<u8> {
        let sock = self.program.open_socket(Transport::Udp).unwrap();
        let envelope = Envelope {
            peer: Some(SocketAddr::new(SERVER.into(), port)),
            ..Envelope::default()
        };
        self.program
            .udp_send(sock, &envelope, &[IoSlice::new(bytes)])
            .unwrap();
        let mut answer = Vec::new();
        assert!(self.until(|world| {
            let mut buf = [0; 65_536];
            let got = world
                .program
                .udp_recv(sock, &mut [IoSliceMut::new(&mut buf)], false);
            got.is_some_and(|got| {
                assert_eq!(got.from, envelope.peer.unwrap());
                answer.extend_from_slice(&buf[..got.len]);
                true
            })
        }));
        answer
    }

    /// Sends datagrams from one socket and waits for no answer.
    pub fn tell_by_datagram(&mut self, port: u16, all: &[Vec<u8>]) -> SockId {
        let sock = self.program.open_socket(Transport::Udp).unwrap();
        let envelope = Envelope {
            peer: Some(SocketAddr::new(SERVER.into(), port)),
            ..Envelope::default()
        };
        for bytes in all {
            let piece = [IoSlice::new(bytes)];
            assert!(self.until(|world| world.program.udp_send(sock, &envelope, &piece).is_ok()));
        }
        sock
    }

    /// Sends datagrams from one socket and returns as many answers, in the order of arrival.
    pub fn ask_all_by_datagram(&mut self, port: u16, all: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let sock = self.tell_by_datagram(port, all);
        let mut answers = Vec::new();
        assert!(self.until(|world| {
            let mut buf = [0; 65_536];
            while let Some(got) =
                world
                    .program
                    .udp_recv(sock, &mut [IoSliceMut::new(&mut buf)], false)
            {
                answers.push(buf[..got.len].to_vec());
            }
            answers.len() == all.len()
        }));
        answers
    }
}
