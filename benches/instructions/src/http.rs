//! The web server inside the server's engine: the whole cost of a request for a cached file, from
//! the request's frame to the response's.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use slipstack_apps::http::{Http, HttpOptions, Root};
use slipstack_channel::{Command, SockId, State, Transport};
use slipstack_engine::{Engine, Instant};
use slipstack_service::{Host, Hosting, Pool};

use crate::{CLIENT, PATIENCE, PORT, SERVER, Side, TURN_NS, server_turn, wire};

const FILE: [u8; 64] = [b'f'; 64];
/// wrk's request.
const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n";

/// A directory with the file, removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let name = format!("slipstack-instructions-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0)?;
        std::fs::write(folder.0.join("file"), FILE)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct World {
    server: Engine,
    client: Side,
    now: Instant,
}

impl World {
    fn new(root: Root) -> Result<World, Box<dyn std::error::Error>> {
        let (a, b) = wire::pair();
        let mut server = Side::engine(a, (SERVER, [2, 0, 0, 0, 0, 1]), None, None);
        let service = Http::new(HttpOptions {
            listen: vec![SocketAddr::from((SERVER, PORT))],
            backlog: 128,
            root: Arc::new(root),
            cache: 1 << 20,
            idle: Duration::from_secs(60),
            head: Duration::from_secs(10),
            per_address: None,
            log: None,
            keys: None,
        });
        let hosting = Hosting {
            pool: Some(Arc::new(Pool::inline())),
            ..Hosting::default()
        };
        let (inside, _) = Host::inside(service, hosting)?;
        server.attach_owner(inside);
        let client = Side::new(b, CLIENT, [2, 0, 0, 0, 0, 2], None)?;
        Ok(World {
            server,
            client,
            now: Instant(1_000_000),
        })
    }

    /// A turn of each; the server's is counted.
    fn step(&mut self) {
        self.now.0 += TURN_NS;
        self.client.engine.turn(self.now);
        self.client.drain_events();
        server_turn(&mut self.server, self.now);
    }

    fn connect(&mut self) -> Result<SockId, String> {
        let program = self.client.program.clone();
        let sock = program
            .open_socket(Transport::Tcp)
            .map_err(|_| "no socket")?;
        let remote = SocketAddr::from((SERVER, PORT));
        let ticket = program.request(Command::Connect { sock, remote });
        for _ in 0..PATIENCE {
            self.step();
            if program.state(sock).contains(State::CONNECTED) {
                let _ = program.reply(ticket);
                return Ok(sock);
            }
        }
        Err("the handshake does not end".to_string())
    }

    /// Asks on all of the connections at once, and reads the answers, which end with the file.
    fn ask(&mut self, socks: &[SockId]) -> Result<(), String> {
        let program = self.client.program.clone();
        for sock in socks {
            program.send(*sock, &[IoSlice::new(REQUEST)], false);
        }
        self.step();
        self.now.0 += TURN_NS;
        self.client.engine.turn(self.now);
        self.client.drain_events();
        for sock in socks {
            let mut answer = [0; 2048];
            let len = program.recv(*sock, &mut [IoSliceMut::new(&mut answer)]);
            let answer = &answer[..len];
            if !answer.starts_with(b"HTTP/1.1 200 OK\r\n") || !answer.ends_with(&FILE) {
                return Err("no answer in the turn of its request, or another one".to_string());
            }
        }
        Ok(())
    }
}

/// Sends requests of which the file comes to be cached.
fn warm(world: &mut World, sock: SockId) -> Result<(), String> {
    for _ in 0..PATIENCE {
        if world.ask(&[sock]).is_ok() {
            return Ok(());
        }
    }
    Err("the file does not come to be cached".to_string())
}

/// Asks `count` times, in each turn on `at_once` connections.
pub fn run(count: usize, at_once: usize) -> Result<(), Box<dyn std::error::Error>> {
    let folder = Folder::new()?;
    let mut world = World::new(Root::open(&folder.0, false, 1 << 20)?)?;
    world.step();
    let connected = (0..at_once).map(|_| world.connect());
    let socks = connected.collect::<Result<Vec<_>, _>>()?;
    warm(&mut world, socks[0])?;
    for _ in 0..count.div_ceil(at_once) {
        world.ask(&socks)?;
    }
    Ok(())
}
