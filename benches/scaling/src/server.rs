//! One engine of the server, made and run on a thread of its own.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use slipstack_apps::demo::{Demo, DemoOptions};
use slipstack_apps::http::{Http, HttpOptions, Root};
use slipstack_apps::proxy::{Balance, Figures, Protocol, Proxy, ProxyOptions};
use slipstack_channel::{EngineEnd, INBOX_BYTES, Inside, REGION_BYTES_MIN, SocketError, Transport};
use slipstack_device::{Device, Steering};
use slipstack_engine::{
    Engine, Instant, Interconnect, NeighbourTable, NetworkState, PortAuthority, PortClaim, Role,
    Setup, StackConfig,
};
use slipstack_keeper::{Inboxes, Neighbours};
use slipstack_mem::Region;
use slipstack_service::{Host, Hosting, Pool, Service};

use crate::marks;
use crate::nic::Queue;

pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PORT: u16 = 80;
/// Ports of the engines for connections of their own, in equal parts, and the first of all: within
/// the stack's own range.
const LEASED: u16 = 28_000;
const LEASES_FROM: u16 = 32_768;
pub const FILE: [u8; 64] = [b'f'; 64];
/// Size of the web server's cache in each engine.
const CACHE_BYTES: usize = 1 << 20;

pub type Failure = Box<dyn Error + Send + Sync>;

/// The kind of server.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A web server: its directory.
    Http(Arc<Root>),
    Proxy(Vec<SocketAddr>),
}

/// State that all engines of a device share.
#[derive(Debug)]
pub struct Shared {
    pub inboxes: Inboxes,
    pub steering: Steering,
    pub neighbours: Neighbours,
    pub kind: Kind,
    pub engines: usize,
    /// Pages that an engine shares and that are not its own refuse stores while it turns.
    pub is_trapped: bool,
}

/// The keeper's table.
#[derive(Debug)]
pub struct View(pub Neighbours);

impl NeighbourTable for View {
    fn find(&self, address: IpAddr) -> Option<[u8; 6]> {
        self.0.find(address)
    }

    fn answers(&self, address: IpAddr) -> Option<u64> {
        self.0.answers(address)
    }
}

/// Every engine has its ports from the start.
struct Ports;

impl PortAuthority for Ports {
    fn lease_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn listen_on(&self, _: &PortClaim, _: Transport) -> Result<(), SocketError> {
        Ok(())
    }

    fn listen_off(&self, _: (SocketAddr, u16), _: Transport, _: bool) {}
}

/// An engine's stack.
pub fn stack_config(address: Ipv4Addr, mac: [u8; 6], ephemeral: (u16, u16)) -> StackConfig {
    StackConfig {
        network: NetworkState::of(1500, vec![(address.into(), 16)], &[]).into(),
        mac,
        tso_max: 0,
        role: Role::Engine,
        ephemeral,
        seed: [mac[5]; 32],
        ..StackConfig::default()
    }
}

/// The ports of an engine's own connections.
pub fn lease(number: usize, engines: usize) -> (u16, u16) {
    let len = LEASED / engines as u16;
    let first = LEASES_FROM + len * number as u16;
    (first, first + len - 1)
}

fn inside(shared: &Shared) -> std::io::Result<Inside> {
    let hosting = Hosting {
        pool: Some(Arc::new(Pool::inline())),
        shares_ports: shared.engines > 1,
        region_bytes: Some(REGION_BYTES_MIN),
        ..Hosting::default()
    };
    match &shared.kind {
        Kind::Http(root) => host(http(Arc::clone(root)), hosting),
        Kind::Proxy(backends) => host(proxy(backends.clone()), hosting),
    }
}

fn host(service: impl Service, hosting: Hosting) -> std::io::Result<Inside> {
    Ok(Host::inside(service, hosting)?.0)
}

pub fn http(root: Arc<Root>) -> Http {
    Http::new(HttpOptions {
        listen: vec![SocketAddr::from((SERVER, PORT))],
        backlog: 128,
        root,
        cache: CACHE_BYTES,
        idle: Duration::from_secs(60),
        head: Duration::from_secs(10),
        per_address: None,
        log: None,
        keys: None,
    })
}

fn proxy(backends: Vec<SocketAddr>) -> Proxy {
    Proxy::new(ProxyOptions {
        listen: vec![SocketAddr::from((SERVER, PORT))],
        backlog: 128,
        backends,
        balance: Balance::RoundRobin,
        protocol: Protocol::Http,
        idle: Duration::from_secs(60),
        answer: Duration::from_secs(10),
        idle_backends: 64,
        check_every: None,
        check_path: None,
        figures: Arc::new(Figures::default()),
        keys: None,
    })
}

/// The server behind the proxy.
pub fn backend(at: Ipv4Addr) -> std::io::Result<Inside> {
    let demo = Demo::new(DemoOptions {
        listen: vec![SocketAddr::from((at, PORT))],
        backlog: 1024,
        idle: Duration::from_secs(60),
        keeps_alive: true,
        figures: Arc::new(Figures::default()),
    });
    host(demo, Hosting::default())
}

/// A directory with one file, removed afterwards.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> std::io::Result<Folder> {
        let name = format!("slipstack-scaling-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0)?;
        std::fs::write(folder.0.join("file"), FILE)?;
        Ok(folder)
    }

    pub fn root(&self) -> std::io::Result<Arc<Root>> {
        Ok(Arc::new(Root::open(&self.0, false, 1 << 20)?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The turn whose instructions are counted.
#[inline(never)]
pub fn server_turn(engine: &mut Engine, now: Instant) {
    engine.turn(now);
}

/// An engine that the world's thread commands.
pub struct Server {
    turns: Option<Sender<(Instant, bool)>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts engine `number` on a queue of the card.
    pub fn start(number: usize, queue: Queue, shared: &Arc<Shared>) -> Result<Server, Failure> {
        let (turns, commands) = channel();
        let (tell, done) = channel();
        let (made, result) = channel();
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().spawn(move || {
            let engine = engine(number, queue, &shared);
            let (engine, error) = match engine {
                Ok(engine) => (Some(engine), None),
                Err(error) => (None, Some(error)),
            };
            let _ = made.send(error);
            if let Some(engine) = engine {
                run(engine, (number, &shared), &commands, &tell);
            }
        })?;
        let server = Server {
            turns: Some(turns),
            done,
            thread: Some(thread),
        };
        match result.recv()? {
            None => Ok(server),
            Some(error) => Err(error),
        }
    }

    /// One turn. `is_measured`: it is marked, and trapped if it is to be.
    pub fn turn(&self, now: Instant, is_measured: bool) -> Result<(), Failure> {
        let turns = self.turns.as_ref().ok_or("it has ended")?;
        turns.send((now, is_measured))?;
        Ok(self.done.recv()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn engine(number: usize, queue: Queue, shared: &Shared) -> Result<Engine, Failure> {
    let inboxes = &shared.inboxes;
    let bells = inboxes.bells().to_vec();
    let slot = number as u16 + 1;
    let interconnect = Interconnect::new(slot, inboxes.region(), bells, shared.steering.reader()?)
        .ok_or("the inboxes are too few")?;
    // As an engine of another process has it.
    let neighbours = Neighbours::open(shared.neighbours.fd().try_clone_to_owned()?)?;
    let end = EngineEnd::create_of(REGION_BYTES_MIN)?;
    let setup = Setup {
        stack: stack_config(SERVER, queue.info().mac, lease(number, shared.engines)),
        device: Box::new(queue),
        directory: Some(end.region().clone()),
        interconnect: Some(interconnect),
        ports: Some(Box::new(Ports)),
        neighbours: Some(Box::new(View(neighbours))),
    };
    let mut engine = Engine::new(setup, Instant(1));
    engine.attach_owner(inside(shared)?);
    Ok(engine)
}

fn run(
    mut engine: Engine,
    (number, shared): (usize, &Shared),
    commands: &Receiver<(Instant, bool)>,
    tell: &Sender<()>,
) {
    while let Ok((now, is_measured)) = commands.recv() {
        if is_measured {
            if shared.is_trapped {
                trap(shared.inboxes.region(), number, shared.engines, false);
            }
            marks::begin(number);
            server_turn(&mut engine, now);
            marks::end();
            if shared.is_trapped {
                trap(shared.inboxes.region(), number, shared.engines, true);
            }
        } else {
            engine.turn(now);
        }
        if tell.send(()).is_err() {
            return;
        }
    }
}

/// Forbids or allows stores to the inboxes of all but this engine, the keeper among them. The other
/// shared tables are mapped read-only in any case.
fn trap(inboxes: &Region, number: usize, engines: usize, is_writable: bool) {
    let own = (number + 1) * INBOX_BYTES;
    let end = (engines + 1) * INBOX_BYTES;
    for (from, to) in [(0, own), (own + INBOX_BYTES, end)] {
        if from < to {
            let set = inboxes.set_writable(from, to - from, is_writable);
            assert!(set.is_ok(), "the pages cannot be protected: {set:?}");
        }
    }
}
