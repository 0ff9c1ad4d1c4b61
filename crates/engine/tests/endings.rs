//! Unaccepted connections of programs that end go to listeners of the programs that remain, or are
//! reset.

mod pair;

use std::io::IoSlice;
use std::net::SocketAddr;

use pair::World;
use slipstack_channel::{
    CloseMode, Command, EngineEnd, ProgramEnd, Reason, Reply, SockId, Transport,
};
use slipstack_engine::{ClientId, Instant};

/// Time after which a listener yields from which nothing is accepted.
const AWAY_NS: u64 = 20_000_000;

/// A program of host 1.
struct Server {
    id: ClientId,
    end: ProgramEnd,
}

impl Server {
    fn new(world: &mut World) -> Server {
        let end = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(end.region().clone()).unwrap();
        let id = world.hosts[1].engine.attach_client(end, None);
        Server { id, end: program }
    }

    fn ask(&self, world: &mut World, command: Command) {
        let ticket = self.end.request(command);
        world.hosts[1].engine.commands(Instant(world.now));
        assert!(matches!(self.end.reply(ticket), Some(Ok(_))), "{command:?}");
    }

    fn listen(&self, world: &mut World, port: u16) -> SockId {
        let sock = self.end.open_socket(Transport::Tcp).unwrap();
        let bind = Command::Bind {
            sock,
            addr: SocketAddr::new(world.hosts[1].addr.into(), port),
            reuse_addr: true,
            reuse_port: true,
            v6_only: false,
        };
        self.ask(world, bind);
        self.ask(world, Command::Listen { sock, backlog: 16 });
        sock
    }

    fn kill(&self, world: &mut World) {
        world.hosts[1]
            .engine
            .detach_client(Instant(world.now), self.id);
        world.settle(AWAY_NS);
    }

    fn accepts(&self, listener: SockId) -> bool {
        while self.end.poll_event().is_some() {}
        self.end.accept(listener).is_some()
    }
}

/// Begins a connection of host 0.
fn connect(world: &mut World, port: u16) -> SockId {
    let sock = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
    let remote = SocketAddr::new(world.hosts[1].addr.into(), port);
    assert!(matches!(
        world.request(0, Command::Connect { sock, remote }),
        Ok(Reply::Bound { .. } | Reply::Done)
    ));
    sock
}

/// Two programs from which nothing is accepted: the listener of one yields to that of the other.
fn two_that_are_away(world: &mut World) -> [(Server, SockId); 2] {
    let servers = [(); 2].map(|()| {
        let server = Server::new(world);
        let listener = server.listen(world, 80);
        (server, listener)
    });
    connect(world, 80);
    world.settle(AWAY_NS);
    servers
}

#[test]
fn an_unaccepted_connection_is_reset_when_the_last_program_ends_whose_listener_yields() {
    for order in [[0, 1], [1, 0]] {
        for is_killed in [true, false] {
            let mut world = World::new();
            let servers = two_that_are_away(&mut world);
            let client = connect(&mut world, 80);
            world.settle(AWAY_NS);
            for at in order {
                let (server, listener) = &servers[at];
                match is_killed {
                    true => server.kill(&mut world),
                    false => {
                        server.end.close(*listener, CloseMode::Orderly);
                        world.settle(AWAY_NS);
                    }
                }
            }
            let error = world.hosts[0].program.peek_error(client);
            assert_eq!(error, Some(Reason::Reset), "{order:?} {is_killed}");
        }
    }
}

#[test]
fn unaccepted_connections_of_each_listener_of_a_killed_program_go_to_its_successor() {
    const PORTS: [u16; 3] = [80, 81, 82];
    let mut world = World::new();
    let killed = Server::new(&mut world);
    for port in PORTS {
        killed.listen(&mut world, port);
    }
    for port in PORTS {
        connect(&mut world, port);
    }
    world.settle(1_000_000);
    let successor = Server::new(&mut world);
    let listeners = PORTS.map(|port| successor.listen(&mut world, port));
    killed.kill(&mut world);
    let accepted = listeners.map(|listener| successor.accepts(listener));
    assert_eq!(accepted, [true; 3]);
}

#[test]
fn a_connection_that_was_reset_goes_to_another_listener_with_its_bytes_and_its_error() {
    for closes in [true, false] {
        let mut world = World::new();
        let away = Server::new(&mut world);
        let listener = away.listen(&mut world, 80);
        let client = connect(&mut world, 80);
        world.settle(1_000_000);
        let program = world.hosts[0].program.clone();
        program.send(client, &[IoSlice::new(b"bytes")], false);
        world.settle(1_000_000);
        program.close(client, CloseMode::Abort);
        world.settle(1_000_000);
        let other = Server::new(&mut world);
        let successor = other.listen(&mut world, 80);
        if closes {
            while away.end.poll_event().is_some() {}
            away.end.close(listener, CloseMode::Orderly);
        }
        world.settle(AWAY_NS);
        while other.end.poll_event().is_some() {}
        let accepted = other.end.accept(successor).unwrap();
        assert_eq!(other.end.peek_error(accepted), Some(Reason::Reset));
        assert_eq!(other.end.rx_available(accepted), 5);
        assert!(other.end.remote(accepted).is_some());
        assert_eq!(away.end.accept(listener), None);
    }
}
