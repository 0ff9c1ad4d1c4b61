//! Repeated exchanges between two engines joined in memory: one request and its answer; one
//! connect, request, answer, close; a burst of full segments; datagrams that a service answers; or
//! a query of a name server. `scripts/instructions` runs it under callgrind and counts the cost of
//! [`server_turn`]: wire, stack and engine on the server's side, without the program.

mod datagrams;
mod dns;
mod http;
mod rules;
mod wire;

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use slipstack_channel::{
    CloseMode, Command, EngineEnd, EventKind, ProgramEnd, SockId, State, Transport,
};
use slipstack_engine::{Engine, Instant, NetworkState, Role, Setup, StackConfig};
use slipstack_mem::Region;

use wire::Wire;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 80;
const REQUEST: [u8; 100] = [b'q'; 100];
const ANSWER: [u8; 200] = [b'a'; 200];
/// Full segments of one burst.
const BURST: usize = 12;
const MSS: usize = 1448;
const TURN_NS: u64 = 10_000;
/// Rounds after which a step that should have happened counts as failed.
const PATIENCE: usize = 100;

struct Side {
    engine: Engine,
    program: ProgramEnd,
}

impl Side {
    fn new(
        device: Wire,
        address: Ipv4Addr,
        mac: [u8; 6],
        rules: Option<usize>,
    ) -> std::io::Result<Side> {
        let end = EngineEnd::create()?;
        let program = ProgramEnd::open(end.region().clone())?;
        let mut engine = Side::engine(device, (address, mac), Some(end.region().clone()), rules);
        engine.attach_client(end, None);
        Ok(Side { engine, program })
    }

    fn engine(
        device: Wire,
        (address, mac): (Ipv4Addr, [u8; 6]),
        directory: Option<Region>,
        rules: Option<usize>,
    ) -> Engine {
        let network = match rules {
            Some(_) => rules::network(),
            None => NetworkState::of(1500, vec![(address.into(), 24)], &[]),
        };
        let stack = StackConfig {
            network: network.into(),
            mac,
            tso_max: 0,
            role: Role::Standalone,
            seed: [mac[5]; 32],
            ..StackConfig::default()
        };
        let setup = Setup {
            stack,
            device: Box::new(device),
            directory,
            interconnect: None,
            ports: rules.map(|count| Box::new(rules::Authority(count)) as _),
            neighbours: None,
        };
        let mut engine = Engine::new(setup, Instant(1));
        if rules.is_some() {
            engine.begin();
        }
        engine
    }

    fn drain_events(&self) -> Option<SockId> {
        let mut accepted = None;
        while let Some(event) = self.program.poll_event() {
            if let EventKind::Accepted { listener } = event.kind {
                accepted = self.program.accept(listener);
            }
        }
        accepted
    }

    fn read(&self, sock: SockId, wanted: usize) -> usize {
        let mut buf = [0; 4096];
        let mut total = 0;
        while total < wanted {
            let got = self.program.recv(sock, &mut [IoSliceMut::new(&mut buf)]);
            if got == 0 {
                break;
            }
            total += got;
        }
        total
    }
}

/// The turn whose instructions are counted.
#[inline(never)]
fn server_turn(engine: &mut Engine, now: Instant) {
    engine.turn(now);
}

struct World {
    server: Side,
    client: Side,
    now: Instant,
}

impl World {
    /// `rules`: how many the server's packet filter has, if it has one.
    fn new(rules: Option<usize>) -> Result<World, Box<dyn std::error::Error>> {
        let (a, b) = wire::pair();
        let server = Side::new(a, SERVER, [2, 0, 0, 0, 0, 1], rules)?;
        let client = Side::new(b, CLIENT, [2, 0, 0, 0, 0, 2], None)?;
        let mut world = World {
            server,
            client,
            now: Instant(1_000_000),
        };
        world.listen()?;
        Ok(world)
    }

    fn server_turn(&mut self) {
        self.now.0 += TURN_NS;
        server_turn(&mut self.server.engine, self.now);
    }

    fn client_turn(&mut self) {
        self.now.0 += TURN_NS;
        self.client.engine.turn(self.now);
    }

    fn listen(&mut self) -> Result<(), String> {
        let program = self.server.program.clone();
        let sock = program
            .open_socket(Transport::Tcp)
            .map_err(|_| "no socket")?;
        let addr = SocketAddr::from((SERVER, PORT));
        let bind = program.request(Command::Bind {
            sock,
            addr,
            reuse_addr: true,
            reuse_port: false,
            v6_only: false,
        });
        let listen = program.request(Command::Listen { sock, backlog: 128 });
        self.server_turn();
        for ticket in [bind, listen] {
            program
                .reply(ticket)
                .ok_or("no reply")?
                .map_err(|refusal| format!("refused: {refusal:?}"))?;
        }
        Ok(())
    }

    /// → (server's socket, client's socket)
    fn connect(&mut self) -> Result<(SockId, SockId), String> {
        let program = self.client.program.clone();
        let sock = program
            .open_socket(Transport::Tcp)
            .map_err(|_| "no socket")?;
        let ticket = program.request(Command::Connect {
            sock,
            remote: SocketAddr::from((SERVER, PORT)),
        });
        for _ in 0..PATIENCE {
            self.client_turn();
            self.server_turn();
            self.client.drain_events();
            if let Some(accepted) = self.server.drain_events()
                && program.state(sock).contains(State::CONNECTED)
            {
                let _ = program.reply(ticket);
                return Ok((accepted, sock));
            }
        }
        Err("the handshake does not end".to_string())
    }

    /// The request goes out and is read on the server's side.
    fn ask(&mut self, server: SockId, client: SockId) -> Result<(), String> {
        self.client
            .program
            .send(client, &[IoSlice::new(&REQUEST)], false);
        self.client_turn();
        self.server_turn();
        self.server.drain_events();
        match self.server.read(server, REQUEST.len()) {
            len if len == REQUEST.len() => Ok(()),
            _ => Err("the request did not arrive".to_string()),
        }
    }

    /// The answer is written; with `last`, the connection closed in the same breath, as a server
    /// of `Connection: close` does.
    fn answer(&mut self, server: SockId, client: SockId, last: bool) -> Result<(), String> {
        let program = &self.server.program;
        program.send(server, &[IoSlice::new(&ANSWER)], false);
        if last {
            program.close(server, CloseMode::Orderly);
        }
        self.server_turn();
        self.client_turn();
        self.client.drain_events();
        match self.client.read(client, ANSWER.len()) {
            len if len == ANSWER.len() => Ok(()),
            _ => Err("the answer did not arrive".to_string()),
        }
    }

    /// Full segments come in one burst; the program reads them all.
    fn upload(&mut self, server: SockId, client: SockId) -> Result<(), String> {
        let bytes = [b'u'; BURST * MSS];
        self.client
            .program
            .send(client, &[IoSlice::new(&bytes)], false);
        let mut read = 0;
        for _ in 0..PATIENCE {
            self.client_turn();
            self.server_turn();
            self.server.drain_events();
            self.client.drain_events();
            read += self.server.read(server, bytes.len() - read);
            if read == bytes.len() {
                return Ok(());
            }
        }
        Err("the burst did not arrive".to_string())
    }

    /// The client closes too; both sides settle.
    fn finish(&mut self, client: SockId) {
        self.client.program.close(client, CloseMode::Orderly);
        self.client_turn();
        self.server_turn();
        self.client_turn();
        self.server.drain_events();
        self.client.drain_events();
    }
}

/// Connections before the counted ones: tables grow while TIME-WAIT entries accumulate, and the
/// cost of a copy depends on the heap. After these (more than seven eighths of 4096) there is room
/// until seven eighths of 8192.
const GROWN: usize = 3700;

fn run(what: &str, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    if what == "datagrams" {
        return datagrams::run(count);
    }
    let rules = what.strip_prefix("filtered-").map(str::parse).transpose()?;
    let mut world = World::new(rules)?;
    match what {
        _ if what == "request" || rules.is_some() => {
            let (server, client) = world.connect()?;
            for _ in 0..count {
                world.ask(server, client)?;
                world.answer(server, client, false)?;
            }
        }
        "burst" => {
            let (server, client) = world.connect()?;
            for _ in 0..count {
                world.upload(server, client)?;
            }
        }
        "connection" => {
            for _ in 0..GROWN + count {
                let (server, client) = world.connect()?;
                world.ask(server, client)?;
                world.answer(server, client, true)?;
                world.finish(client);
            }
        }
        "dns" => dns::run(count)?,
        "http" => http::run(count, 1)?,
        "http16" => http::run(count, 16)?,
        _ => {
            return Err(
                "say request, filtered-RULES, connection, burst, datagrams, dns, http or http16"
                    .into(),
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let count = args
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000);
    match run(&what, count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slipstack-instructions {what}: {error}");
            ExitCode::FAILURE
        }
    }
}
