//! The other hosts: clients, and a server behind the proxy. They are not measured.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};

use slipstack_channel::{CloseMode, Command, EngineEnd, ProgramEnd, SockId, State, Transport};
use slipstack_device::Device;
use slipstack_engine::{Engine, Instant, Setup};
use slipstack_keeper::Neighbours;

use crate::nic::Queue;
use crate::server::{Failure, PORT, SERVER, View, stack_config};

/// wrk's request.
const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n";

/// Location of the server behind the proxy.
pub const BACKEND: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
pub const BACKEND_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];

/// The engine of a host that has the wire for itself.
pub fn engine(address: Ipv4Addr, queue: Queue, neighbours: Neighbours) -> Engine {
    let setup = Setup {
        stack: stack_config(address, queue.info().mac, (32_768, 60_999)),
        device: Box::new(queue),
        directory: None,
        interconnect: None,
        ports: None,
        neighbours: Some(Box::new(View(neighbours))),
    };
    Engine::new(setup, Instant(1))
}

/// A client and its connections.
pub struct Client {
    pub engine: Engine,
    program: ProgramEnd,
    answer: Vec<u8>,
}

/// State of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Opening,
    Open,
    Over,
}

impl Client {
    pub fn new(mut engine: Engine) -> Result<Client, Failure> {
        let end = EngineEnd::create()?;
        let program = ProgramEnd::open(end.region().clone())?;
        engine.attach_client(end, None);
        Ok(Client {
            engine,
            program,
            answer: vec![0; 4096],
        })
    }

    pub fn turn(&mut self, now: Instant) {
        self.engine.turn(now);
        while self.program.poll_event().is_some() {}
    }

    pub fn connect(&mut self) -> Result<SockId, Failure> {
        let sock = self.program.open_socket(Transport::Tcp);
        let sock = sock.map_err(|_| "the client has no socket left")?;
        let remote = SocketAddr::from((SERVER, PORT));
        let _ = self.program.request(Command::Connect { sock, remote });
        Ok(sock)
    }

    pub fn standing(&self, sock: SockId) -> Standing {
        let state = self.program.state(sock);
        if self.program.peek_error(sock).is_some() {
            return Standing::Over;
        }
        match state.contains(State::CONNECTED) {
            true => Standing::Open,
            false => Standing::Opening,
        }
    }

    pub fn abort(&mut self, sock: SockId) {
        self.program.close(sock, CloseMode::Abort);
    }

    pub fn ask(&mut self, sock: SockId) {
        self.program.send(sock, &[IoSlice::new(REQUEST)], false);
    }

    /// Returns whether a whole answer has come, which ends with `end`.
    pub fn is_answered(&mut self, sock: SockId, end: &[u8]) -> Result<bool, Failure> {
        if self.program.rx_available(sock) == 0 {
            return Ok(false);
        }
        let bufs = &mut [IoSliceMut::new(&mut self.answer)];
        let len = self.program.peek(sock, bufs, 0);
        let answer = &self.answer[..len];
        if !answer.starts_with(b"HTTP/1.1 200 OK\r\n") {
            return Err("another answer came".into());
        }
        let is_whole = answer.ends_with(end);
        if is_whole {
            self.program.discard(sock, len);
        }
        Ok(is_whole)
    }
}
