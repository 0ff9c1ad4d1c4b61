//! Ports that an engine claims at the keeper are given back, however their connections end.

mod pair;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use pair::{World, host_of, host_with};
use slipstack_channel::{CELLS_AT, CloseMode, Command, SockId, SocketError, State, Transport};
use slipstack_device::loopback;
use slipstack_engine::{Instant, PortAuthority, PortClaim};

const PORT: u16 = 8080;
const OWN_PORT: u16 = 5000;
/// Less than TIME-WAIT.
const SHORT_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
struct Claims(Arc<Mutex<Vec<SocketAddr>>>);

impl PortAuthority for Claims {
    fn lease_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn listen_on(&self, claim: &PortClaim, _: Transport) -> Result<(), SocketError> {
        self.0.lock().unwrap().push(claim.addr);
        Ok(())
    }

    fn listen_off(&self, (addr, _): (SocketAddr, u16), _: Transport, _: bool) {
        let mut claims = self.0.lock().unwrap();
        let at = claims.iter().position(|it| *it == addr);
        claims.remove(at.expect("what is given back was claimed"));
    }
}

impl Claims {
    fn world(&self) -> World {
        let (left, right) = loopback::pair(1500).unwrap();
        let ports: Box<dyn PortAuthority> = Box::new(self.clone());
        World {
            hosts: [
                host_of(1, left, None, Some(ports)),
                host_with(2, right, None),
            ],
            now: 1_000_000,
        }
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A socket of host 0 with a port that its program chose, which begins to connect.
fn connecting(world: &mut World) -> SockId {
    let sock = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
    let bind = Command::Bind {
        sock,
        addr: SocketAddr::new(world.hosts[0].addr.into(), OWN_PORT),
        reuse_addr: false,
        reuse_port: false,
        v6_only: false,
    };
    world.request(0, bind).unwrap();
    let remote = SocketAddr::new(world.hosts[1].addr.into(), PORT);
    let connect = Command::Connect { sock, remote };
    world.request(0, connect).unwrap();
    sock
}

fn close(world: &mut World, host: usize, sock: SockId, mode: CloseMode) {
    world.hosts[host].program.close(sock, mode);
    world.settle(SHORT_NS);
}

#[test]
fn a_socket_that_is_closed_before_its_connection_has_ended_gives_its_port_back_in_the_end() {
    for mode in [CloseMode::Orderly, CloseMode::Abort] {
        let claims = Claims::default();
        let mut world = claims.world();
        let listener = world.listen(1, PORT);
        let sock = connecting(&mut world);
        world.settle(0);
        assert_eq!(claims.count(), 1);
        let server = world.hosts[1].program.accept(listener).unwrap();
        close(&mut world, 0, sock, mode);
        close(&mut world, 1, server, CloseMode::Orderly);
        assert_eq!(claims.count(), 0, "{mode:?}");
    }
}

#[test]
fn a_socket_that_is_closed_before_its_peer_has_answered_gives_its_port_back() {
    let claims = Claims::default();
    let mut world = claims.world();
    let sock = connecting(&mut world);
    assert_eq!(claims.count(), 1);
    close(&mut world, 0, sock, CloseMode::Orderly);
    assert_eq!(claims.count(), 0);
}

#[test]
fn a_program_that_ends_gives_the_ports_of_its_connections_back() {
    let claims = Claims::default();
    let mut world = claims.world();
    let listener = world.listen(1, PORT);
    connecting(&mut world);
    world.settle(0);
    assert_eq!(claims.count(), 1);
    let server = world.hosts[1].program.accept(listener).unwrap();
    let now = Instant(world.now);
    let host = &mut world.hosts[0];
    host.engine.detach_client(now, host.client);
    close(&mut world, 1, server, CloseMode::Orderly);
    assert_eq!(claims.count(), 0);
}

#[test]
fn connections_that_a_lying_program_has_closed_are_reset_and_their_ports_given_back() {
    let claims = Claims::default();
    let mut world = claims.world();
    let listener = world.listen(1, PORT);
    let closed = connecting(&mut world);
    world.settle(0);
    let program = world.hosts[0].program.clone();
    // Its peer reads nothing: it does not end.
    while program.send(closed, &[IoSlice::new(&[0; 1 << 16])], false) > 0 {
        world.settle(0);
    }
    close(&mut world, 0, closed, CloseMode::Orderly);
    let server = world.hosts[1].program.accept(listener).unwrap();
    let (sock, _) = world.connect(listener, PORT);
    assert_eq!(claims.count(), 1);
    // Line 2 of the cell is the program's: its first word names the send ring.
    let cell = CELLS_AT + sock.index as usize * 256 + 128;
    let word = program.region().u64(cell).unwrap();
    word.store(u64::MAX, Ordering::Relaxed);
    program.push(Command::Send { sock });
    world.settle(SHORT_NS);
    assert_eq!(world.hosts[0].engine.counters().clients_lied, 1);
    assert!(world.hosts[1].program.state(server).contains(State::ERR));
    assert_eq!(claims.count(), 0);
}
