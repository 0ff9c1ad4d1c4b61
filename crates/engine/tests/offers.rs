//! A connection goes from one program of an engine to another that knows its key.

mod pair;

use std::io::{IoSlice, IoSliceMut};

use pair::World;
use slipstack_channel::{
    CloseMode, Command, EngineEnd, ProgramEnd, Reason, Reply, SockId, SocketError, State,
    Transport, Urgent,
};

const KEY: u128 = 1 << 100 | 7;

struct Two {
    world: World,
    /// The other end.
    server: SockId,
    from: (ProgramEnd, SockId),
    to: (ProgramEnd, SockId),
}

fn two() -> Two {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let first = world.hosts[0].program.clone();
    let end = EngineEnd::create().unwrap();
    let second = ProgramEnd::open(end.region().clone()).unwrap();
    world.hosts[0].engine.attach_client(end, None);
    let sock = second.open_socket(Transport::Tcp).unwrap();
    Two {
        world,
        server,
        from: (first, client),
        to: (second, sock),
    }
}

impl Two {
    fn ask(&mut self, program: &ProgramEnd, command: Command) -> Result<Reply, SocketError> {
        let ticket = program.request(command);
        for _ in 0..20 {
            self.world.step();
            if let Some(reply) = program.reply(ticket) {
                return reply;
            }
        }
        panic!("no answer");
    }

    fn offer(&mut self) -> Result<Reply, SocketError> {
        self.offer_upto(None)
    }

    fn offer_upto(&mut self, upto: Option<u64>) -> Result<Reply, SocketError> {
        let (program, sock) = (self.from.0.clone(), self.from.1);
        let key = KEY;
        self.ask(&program, Command::Offer { sock, key, upto })
    }

    fn claim(&mut self, key: u128) -> Result<Reply, SocketError> {
        let (program, sock) = (self.to.0.clone(), self.to.1);
        self.ask(&program, Command::Claim { sock, key })
    }

    fn receive(&mut self, program: &ProgramEnd, sock: SockId, expected: &[u8]) {
        let mut got: Vec<u8> = Vec::new();
        for _ in 0..100 {
            self.world.step();
            let mut out = [0; 64];
            let len = program.recv(sock, &mut [IoSliceMut::new(&mut out)]);
            got.extend(&out[..len]);
            if got.len() >= expected.len() {
                break;
            }
        }
        assert_eq!(got, expected);
    }

    fn exchange(&mut self, (program, sock): &(ProgramEnd, SockId)) {
        let (peer, server) = (self.world.hosts[1].program.clone(), self.server);
        assert_eq!(program.send(*sock, &[IoSlice::new(b"question")], false), 8);
        self.receive(&peer, server, b"question");
        assert_eq!(peer.send(server, &[IoSlice::new(b"the answer")], false), 10);
        self.receive(program, *sock, b"the answer");
    }
}

#[test]
fn a_connection_in_use_continues_in_another_program_with_its_unread_bytes() {
    let mut two = two();
    let (from, to) = (two.from.clone(), two.to.clone());
    two.exchange(&from);
    let (peer, server) = (two.world.hosts[1].program.clone(), two.server);
    peer.send(server, &[IoSlice::new(b"unread, ")], false);
    two.world.settle(100_000_000);
    assert_eq!(two.offer(), Ok(Reply::Done));
    peer.send(server, &[IoSlice::new(b"and more")], false);
    two.world.settle(100_000_000);
    assert_eq!(two.claim(KEY), Ok(Reply::Done));
    two.receive(&to.0, to.1, b"unread, and more");
    for _ in 0..3 {
        two.exchange(&to);
    }
}

#[test]
fn a_claim_needs_the_key_and_succeeds_once() {
    let mut two = two();
    let from = two.from.clone();
    assert_eq!(two.offer(), Ok(Reply::Done));
    assert_eq!(two.offer(), Err(SocketError::LimitReached));
    assert_eq!(two.claim(KEY + 1), Err(SocketError::NotPermitted));
    two.exchange(&from);
    assert_eq!(two.claim(KEY), Ok(Reply::Done));
    assert_eq!(two.claim(KEY), Err(SocketError::NotPermitted));
}

#[test]
fn a_connection_with_unacknowledged_bytes_stays() {
    let mut two = two();
    let from = two.from.clone();
    assert_eq!(two.offer(), Ok(Reply::Done));
    // In the same turn: it cannot have been acknowledged.
    from.0.send(from.1, &[IoSlice::new(b"on its way")], false);
    let (program, sock) = two.to.clone();
    let ticket = program.request(Command::Claim { sock, key: KEY });
    let now = slipstack_engine::Instant(two.world.now);
    two.world.hosts[0].engine.commands(now);
    assert_eq!(program.reply(ticket), Some(Err(SocketError::InvalidState)));
    let (peer, server) = (two.world.hosts[1].program.clone(), two.server);
    two.receive(&peer, server, b"on its way");
}

#[test]
fn a_connection_stays_whose_program_has_written_more_than_the_other_one_has() {
    let mut two = two();
    let from = two.from.clone();
    two.exchange(&from);
    let (_, upto) = from.0.copy_unacked(from.1).unwrap();
    assert_eq!(two.offer_upto(Some(upto)), Ok(Reply::Done));
    two.exchange(&from);
    assert_eq!(two.claim(KEY), Err(SocketError::InvalidState));
    two.exchange(&from);
    let (_, upto) = from.0.copy_unacked(from.1).unwrap();
    assert_eq!(two.offer_upto(Some(upto)), Ok(Reply::Done));
    assert_eq!(two.claim(KEY), Ok(Reply::Done));
    let to = two.to.clone();
    two.exchange(&to);
}

fn shutdown(sock: SockId) -> Command {
    let is_full = false;
    Command::Shutdown { sock, is_full }
}

#[test]
fn a_connection_that_has_ended_continues_as_its_unread_bytes_and_its_error() {
    for is_reset in [false, true] {
        let mut two = two();
        let (from, to) = (two.from.clone(), two.to.clone());
        two.exchange(&from);
        let (peer, server) = (two.world.hosts[1].program.clone(), two.server);
        peer.send(server, &[IoSlice::new(b"unread")], false);
        two.world.settle(100_000_000);
        match is_reset {
            true => peer.close(server, CloseMode::Abort),
            false => {
                from.0.push(shutdown(from.1));
                two.world.settle(100_000_000);
                peer.push(shutdown(server));
            }
        }
        two.world.settle(100_000_000);
        assert!(from.0.state(from.1).contains(State::CLOSED), "{is_reset}");
        assert_eq!(two.offer(), Ok(Reply::Done));
        assert_eq!(two.claim(KEY), Err(SocketError::InvalidState), "a thread");
        assert_eq!(two.offer_upto(Some(8)), Ok(Reply::Done));
        assert_eq!(two.claim(KEY), Ok(Reply::Done));
        assert_eq!(to.0.remote(to.1), from.0.remote(from.1));
        assert!(to.0.state(to.1).contains(State::CLOSED | State::RDHUP));
        two.receive(&to.0, to.1, b"unread");
        let error = is_reset.then_some(Reason::Reset);
        assert_eq!(to.0.take_error(to.1), error);
    }
}

#[test]
fn an_urgent_mark_that_was_not_read_goes_along() {
    let mut two = two();
    let (from, to) = (two.from.clone(), two.to.clone());
    two.exchange(&from);
    let (peer, server) = (two.world.hosts[1].program.clone(), two.server);
    peer.send_urgent(server, &[IoSlice::new(b"before!")]);
    peer.send(server, &[IoSlice::new(b"after")], false);
    two.world.settle(100_000_000);
    assert_eq!(two.offer(), Ok(Reply::Done));
    assert_eq!(two.claim(KEY), Err(SocketError::InvalidState), "a thread");
    let mut out = [0; 3];
    let bufs = &mut [IoSliceMut::new(&mut out)];
    assert_eq!((from.0.recv(from.1, bufs), &out), (3, b"bef"));
    assert_eq!(from.0.take_urgent(from.1), Urgent::Here(b'!'));
    assert_eq!(from.0.urgent_taken(from.1), 4);
    let (_, upto) = from.0.copy_unacked(from.1).unwrap();
    assert_eq!(two.offer_upto(Some(upto)), Ok(Reply::Done));
    assert_eq!(two.claim(KEY), Ok(Reply::Done));
    assert_eq!(to.0.urgent(to.1), Urgent::Here(b'!'));
    to.0.set_urgent_taken(to.1, 4);
    assert_eq!(to.0.urgent(to.1), Urgent::Nothing);
    assert!(!to.0.is_at_mark(to.1));
    two.receive(&to.0, to.1, b"ore");
    assert!(to.0.is_at_mark(to.1));
    two.receive(&to.0, to.1, b"after");
}
