//! Two engines joined by an in-memory device, each with one program, in one thread and virtual
//! time.
#![allow(dead_code, reason = "each test uses its part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slipstack_channel::{
    ChannelEvent, Command, EngineEnd, Envelope, EventKind, ProgramEnd, Reply, SockId, SocketError,
    State, Transport,
};
use slipstack_device::loopback::{self, Loopback};
use slipstack_device::{Device, DeviceInfo, Sink, TxFull, TxOffload};
use slipstack_engine::{
    ClientId, Engine, FastOpenConfig, Instant, NeighbourTable, NetworkState, PortAuthority, Role,
    Setup, StackConfig, TcpConfig,
};
use slipstack_mem::RawSlice;

pub struct Host {
    pub engine: Engine,
    pub client: ClientId,
    pub program: ProgramEnd,
    pub addr: Ipv4Addr,
    pub events: Vec<ChannelEvent>,
}

pub struct World {
    pub hosts: [Host; 2],
    pub now: u64,
}

fn host(number: u8, device: impl Device + 'static) -> Host {
    host_with(number, device, None)
}

/// With `neighbours`, another process receives the neighbours' answers.
pub fn host_with(
    number: u8,
    device: impl Device + 'static,
    neighbours: Option<Box<dyn NeighbourTable>>,
) -> Host {
    host_of(number, device, neighbours, None)
}

/// With `ports`, it needs another process's consent to listen.
pub fn host_of(
    number: u8,
    device: impl Device + 'static,
    neighbours: Option<Box<dyn NeighbourTable>>,
    ports: Option<Box<dyn PortAuthority>>,
) -> Host {
    let addr = Ipv4Addr::new(10, 9, 0, number);
    let info = device.info();
    let stack = StackConfig {
        network: NetworkState::of(info.mtu, vec![(addr.into(), 24)], &[]).into(),
        mac: info.mac,
        tso_max: info.tso_max,
        has_udp_segmentation: info.udp_segmentation,
        role: match neighbours {
            Some(_) => Role::Engine,
            None => Role::Standalone,
        },
        tcp: TcpConfig {
            fast_open: FastOpenConfig::from_bits(3),
            ..TcpConfig::default()
        },
        seed: [number; 32],
        ..StackConfig::default()
    };
    let end = EngineEnd::create().unwrap();
    let program = ProgramEnd::open(end.region().clone()).unwrap();
    let setup = Setup {
        stack,
        device: Box::new(device),
        directory: Some(end.region().clone()),
        interconnect: None,
        ports,
        neighbours,
    };
    let mut engine = Engine::new(setup, Instant(1));
    let client = engine.attach_client(end, None);
    Host {
        engine,
        client,
        program,
        addr,
        events: Vec::new(),
    }
}

impl World {
    pub fn new() -> World {
        let (left, right) = loopback::pair(1500).unwrap();
        World {
            hosts: [host(1, left), host(2, right)],
            now: 1_000_000,
        }
    }

    /// One turn of each host; time goes on by 10 µs.
    pub fn step(&mut self) -> bool {
        self.now += 10_000;
        let mut progress = false;
        for host in &mut self.hosts {
            progress |= host.engine.turn(Instant(self.now)).progress;
            while let Some(event) = host.program.poll_event() {
                host.events.push(event);
            }
        }
        progress
    }

    /// Turns until nothing happens any more; jumps over at most `jump_ns` of silence.
    pub fn settle(&mut self, jump_ns: u64) {
        let mut quiet_until = self.now + jump_ns;
        for _ in 0..100_000 {
            if self.step() {
                continue;
            }
            let deadlines = self.hosts.iter().map(|host| host.engine.next_deadline());
            match deadlines.flatten().min() {
                Some(at) if at.0 <= quiet_until => self.now = self.now.max(at.0),
                _ => return,
            }
            quiet_until = quiet_until.max(self.now);
        }
        panic!("the world does not come to rest");
    }

    pub fn request(&mut self, host: usize, command: Command) -> Result<Reply, SocketError> {
        let ticket = self.hosts[host].program.request(command);
        self.hosts[host].engine.commands(Instant(self.now));
        self.hosts[host]
            .program
            .reply(ticket)
            .expect("a request is answered by the next commands")
    }

    pub fn listen(&mut self, host: usize, port: u16) -> SockId {
        self.listen_shared(host, port, false)
    }

    pub fn listen_shared(&mut self, host: usize, port: u16, reuse_port: bool) -> SockId {
        let addr = SocketAddr::new(self.hosts[host].addr.into(), port);
        self.listen_at(host, addr, reuse_port, false)
    }

    pub fn listen_at(
        &mut self,
        host: usize,
        addr: SocketAddr,
        reuse_port: bool,
        v6_only: bool,
    ) -> SockId {
        let sock = self.hosts[host]
            .program
            .open_socket(Transport::Tcp)
            .unwrap();
        self.listen_by(host, sock, (addr, reuse_port, v6_only));
        sock
    }

    /// Listens on a socket that shares its port.
    pub fn listen_with(&mut self, host: usize, sock: SockId, addr: SocketAddr) {
        self.listen_by(host, sock, (addr, true, false));
    }

    fn listen_by(
        &mut self,
        host: usize,
        sock: SockId,
        (addr, reuse_port, v6_only): (SocketAddr, bool, bool),
    ) {
        let bind = Command::Bind {
            sock,
            addr,
            reuse_addr: true,
            reuse_port,
            v6_only,
        };
        assert_eq!(self.request(host, bind), Ok(Reply::Bound { local: addr }));
        let listen = Command::Listen { sock, backlog: 16 };
        assert_eq!(self.request(host, listen), Ok(Reply::Bound { local: addr }));
    }

    /// A connection from host 0 to a listener of host 1.
    pub fn connect(&mut self, listener: SockId, port: u16) -> (SockId, SockId) {
        let client = self.hosts[0].program.open_socket(Transport::Tcp).unwrap();
        let remote = SocketAddr::new(self.hosts[1].addr.into(), port);
        let connect = Command::Connect {
            sock: client,
            remote,
        };
        assert!(self.request(0, connect).is_ok());
        for _ in 0..100 {
            self.step();
            if self.hosts[0]
                .program
                .state(client)
                .contains(State::CONNECTED)
                && let Some(server) = self.hosts[1].program.accept(listener)
            {
                return (client, server);
            }
        }
        panic!("no connection: {:?}", self.hosts[0].program.state(client));
    }

    pub fn has_event(&self, host: usize, sock: SockId, kind: EventKind) -> bool {
        let event = ChannelEvent { sock, kind };
        self.hosts[host].events.contains(&event)
    }
}

pub fn sent_to(peer: SocketAddr) -> Envelope {
    Envelope {
        peer: Some(peer),
        ..Envelope::default()
    }
}

pub fn bind(world: &mut World, host: usize, port: u16) -> SockId {
    let sock = world.hosts[host]
        .program
        .open_socket(Transport::Udp)
        .unwrap();
    let addr = SocketAddr::new(world.hosts[host].addr.into(), port);
    let bind = Command::Bind {
        sock,
        addr,
        reuse_addr: false,
        reuse_port: false,
        v6_only: false,
    };
    assert_eq!(world.request(host, bind), Ok(Reply::Bound { local: addr }));
    sock
}

/// Holds all frames until it is flushed and reports since when one waits, like a packet socket.
pub struct Gathering {
    device: Loopback,
    frames: Vec<(Vec<u8>, TxOffload)>,
    /// 0 = none does.
    since_ns: Arc<AtomicU64>,
}

impl Gathering {
    pub fn new(device: Loopback, since_ns: Arc<AtomicU64>) -> Self {
        Gathering {
            device,
            frames: Vec::new(),
            since_ns,
        }
    }
}

impl Device for Gathering {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.device.rx(budget, sink)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let mut frame = header.to_vec();
        for piece in payload {
            let start = frame.len();
            frame.resize(start + piece.len(), 0);
            piece.copy_to(&mut frame[start..]);
        }
        self.frames.push((frame, offload));
        Ok(())
    }

    fn flush(&mut self) {
        for (frame, offload) in self.frames.drain(..) {
            self.device
                .tx(&frame, [RawSlice::EMPTY; 2], offload)
                .unwrap();
        }
    }

    fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx()
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        Some(self.since_ns.load(Ordering::Relaxed)).filter(|ns| *ns != 0)
    }
}
