//! Connections of a killed program that another program of its instance may go on with.

mod pair;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use pair::World;
use slipstack_channel::{
    CloseMode, Command, EngineEnd, Loan, PassedOn, ProgramEnd, Reply, SockId, SocketError,
    SocketOption, State, Transport, Urgent,
};
use slipstack_engine::{ClientId, Instant, UserState};

const KEY: u128 = 1 << 90 | 3;
const USER: u32 = 77;
/// The program that is killed is the first one.
const KILLED: ClientId = ClientId(0);

struct Killed {
    world: World,
    /// The other end.
    server: SockId,
    ends: (SocketAddr, SocketAddr),
    /// The program that may go on, with a socket for that.
    to: (ProgramEnd, SockId),
}

/// A program is killed that has just written `last` to its connection.
fn killed(last: &[u8]) -> Killed {
    killed_after(last, |_, _, _| {})
}

/// As [`killed`], after `use_it` with the sockets of the program and of its peer.
fn killed_after(last: &[u8], use_it: impl FnOnce(&mut World, SockId, SockId)) -> Killed {
    killed_with(Loan::to(USER, 0, 0), last, use_it)
}

/// A program is killed that has chosen a reset for the end of its connection.
fn killed_that_resets(loan: Loan) -> Killed {
    killed_with(loan, b"", |world, sock, _| {
        let option = SocketOption::ResetsAtEnd(true);
        let set = world.request(0, Command::SetOption { sock, option });
        assert_eq!(set, Ok(Reply::Done));
    })
}

fn killed_with(loan: Loan, last: &[u8], use_it: impl FnOnce(&mut World, SockId, SockId)) -> Killed {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (sock, server) = world.connect(listener, 80);
    let program = world.hosts[0].program.clone();
    let ends = (program.local(sock).unwrap(), program.remote(sock).unwrap());
    let end = EngineEnd::create().unwrap();
    let second = ProgramEnd::open(end.region().clone()).unwrap();
    world.hosts[0].engine.attach_client(end, None);
    world.settle(100_000_000);
    use_it(&mut world, sock, server);
    program.set_loan(sock, loan);
    if !last.is_empty() {
        let sent = program.send(sock, &[IoSlice::new(last)], false);
        assert_eq!(sent, last.len());
    }
    let now = Instant(world.now);
    assert!(world.hosts[0].engine.detach_client(now, KILLED));
    let sock = second.open_socket(Transport::Tcp).unwrap();
    world.hosts[0].engine.commands(now);
    Killed {
        world,
        server,
        ends,
        to: (second, sock),
    }
}

impl Killed {
    fn is_left(&self) -> bool {
        let host = &self.world.hosts[0];
        host.engine.is_left(KILLED, host.program.region())
    }

    fn end_over_due(&mut self, are_all: bool) -> bool {
        self.end_as(match are_all {
            true => UserState::Late,
            false => UserState::MayCome,
        })
    }

    fn end_as(&mut self, state: UserState) -> bool {
        let now = Instant(self.world.now);
        let engine = &mut self.world.hosts[0].engine;
        engine.end_lent(now, KILLED, |_| state)
    }

    fn offer(&mut self, unread: &[u8]) -> Option<Vec<u8>> {
        self.offer_by(KEY, unread)
    }

    fn offer_by(&mut self, key: u128, unread: &[u8]) -> Option<Vec<u8>> {
        let engine = &mut self.world.hosts[0].engine;
        let has = PassedOn {
            unread: unread.len() as u32,
            given: None,
        };
        engine.offer_lent((KILLED, key), self.ends, has, unread.to_vec())
    }

    fn claim(&mut self) -> Result<Reply, SocketError> {
        let (program, sock) = self.to.clone();
        let ticket = program.request(Command::Claim { sock, key: KEY });
        self.world.hosts[0].engine.commands(Instant(self.world.now));
        program.reply(ticket).expect("it is answered at once")
    }

    /// Reads what can be read at once by the program that goes on.
    fn read(&self) -> Vec<u8> {
        let (program, sock) = &self.to;
        let mut out = [0; 100];
        let len = program.recv(*sock, &mut [IoSliceMut::new(&mut out)]);
        out[..len].to_vec()
    }

    fn received(&mut self, (program, sock): (ProgramEnd, SockId)) -> Vec<u8> {
        self.world.settle(1_000_000_000);
        let mut out = [0; 4096];
        let len = program.recv(sock, &mut [IoSliceMut::new(&mut out)]);
        out[..len].to_vec()
    }
}

#[test]
fn a_connection_goes_on_with_bytes_that_its_peer_has_not_acknowledged() {
    let mut killed = killed(b"written just before the end");
    let told = killed.world.hosts[0]
        .engine
        .look_at_lent(KILLED, killed.ends, USER);
    assert!(told.is_some());
    let unacked = killed.offer(b"").unwrap();
    assert_eq!(unacked, b"written just before the end");
    let (program, sock) = killed.to.clone();
    assert!(program.refill(sock, &unacked, 0));
    assert_eq!(killed.claim(), Ok(Reply::Done));
    assert_eq!(
        program.send(sock, &[IoSlice::new(b", and after")], false),
        11
    );
    let server = (killed.world.hosts[1].program.clone(), killed.server);
    assert_eq!(
        killed.received(server.clone()),
        b"written just before the end, and after"
    );
    server.0.send(server.1, &[IoSlice::new(b"answer")], false);
    assert_eq!(killed.received((program, sock)), b"answer");
    assert!(!killed.is_left(), "nothing is left of the killed program");
}

#[test]
fn a_claim_without_these_bytes_fails_and_may_be_repeated() {
    let mut killed = killed(b"lost?");
    let unacked = killed.offer(b"").unwrap();
    assert_eq!(killed.claim(), Err(SocketError::InvalidState));
    assert!(killed.is_left());
    let (program, sock) = killed.to.clone();
    assert!(program.refill(sock, &unacked, 0));
    assert_eq!(killed.claim(), Err(SocketError::NotPermitted), "once a key");
    assert_eq!(killed.offer(b"").unwrap(), unacked);
    assert_eq!(killed.claim(), Ok(Reply::Done));
    let server = (killed.world.hosts[1].program.clone(), killed.server);
    assert_eq!(killed.received(server), b"lost?");
}

#[test]
fn only_the_process_that_it_is_lent_to_may_go_on_with_a_connection() {
    let mut killed = killed(b"");
    let (world, ends) = (&mut killed.world, killed.ends);
    let engine = &mut world.hosts[0].engine;
    assert_eq!(engine.find_user(ends), Some((KILLED, false)));
    assert!(engine.look_at_lent(KILLED, ends, USER + 1).is_none());
    assert!(engine.look_at_lent(ClientId(1), ends, USER).is_none());
    assert!(
        engine
            .look_at_lent(KILLED, (ends.1, ends.0), USER)
            .is_none()
    );
    assert!(engine.look_at_lent(KILLED, ends, USER).is_some());
}

#[test]
fn nothing_is_left_of_a_killed_program_whose_peer_resets_the_connection() {
    let mut killed = killed(b"");
    assert!(killed.end_over_due(false), "it waits");
    let peer = killed.world.hosts[1].program.clone();
    peer.close(killed.server, CloseMode::Abort);
    killed.world.settle(1_000_000_000);
    assert!(!killed.end_over_due(false), "nothing waits any more");
    killed.world.settle(1_000_000_000);
    assert!(!killed.is_left());
}

#[test]
fn a_claim_of_a_connection_that_was_reset_meanwhile_leaves_nothing() {
    let mut killed = killed(b"");
    assert!(killed.offer(b"").is_some());
    let peer = killed.world.hosts[1].program.clone();
    peer.close(killed.server, CloseMode::Abort);
    killed.world.settle(1_000_000_000);
    assert_eq!(killed.claim(), Err(SocketError::InvalidState));
    killed.world.settle(1_000_000_000);
    assert!(!killed.is_left());
}

#[test]
fn a_key_is_worth_nothing_once_the_program_is_forgotten() {
    let mut killed = killed(b"");
    assert!(killed.offer(b"").is_some());
    assert!(!killed.end_over_due(true), "its time is over");
    let server = (killed.world.hosts[1].program.clone(), killed.server);
    assert_eq!(
        killed.received(server.clone()),
        b"",
        "the end of the stream"
    );
    server.0.close(server.1, CloseMode::Orderly);
    for _ in 0..100 {
        killed.world.settle(10_000_000_000);
    }
    assert!(!killed.is_left());
    assert_eq!(killed.claim(), Err(SocketError::NotPermitted));
}

#[test]
fn an_attempt_with_bytes_that_never_came_fails_and_the_connection_waits_for_another() {
    let mut killed = killed(b"");
    assert!(killed.offer(b"never came").is_some());
    assert_eq!(killed.claim(), Err(SocketError::InvalidState));
    assert!(killed.end_over_due(false), "it waits");
    let server = (killed.world.hosts[1].program.clone(), killed.server);
    server
        .0
        .send(server.1, &[IoSlice::new(b"still here")], false);
    killed.world.settle(1_000_000_000);
    assert!(killed.offer(b"").is_some());
    assert_eq!(killed.claim(), Ok(Reply::Done));
    assert_eq!(killed.read(), b"still here");
}

#[test]
fn an_attempt_takes_the_place_of_a_former_one_for_the_connection() {
    let mut killed = killed(b"");
    assert!(killed.offer(b"").is_some());
    assert!(killed.offer_by(KEY + 1, b"").is_some());
    assert_eq!(killed.claim(), Err(SocketError::NotPermitted));
    assert!(killed.offer(b"").is_some());
    assert_eq!(killed.claim(), Ok(Reply::Done));
}

#[test]
fn an_urgent_byte_keeps_its_place_behind_bytes_that_were_not_read() {
    let mut killed = killed_after(b"", |world, sock, server| {
        let [program, peer] = [0, 1].map(|host| world.hosts[host].program.clone());
        peer.send(server, &[IoSlice::new(b"xy")], false);
        world.settle(1_000_000_000);
        assert_eq!(program.discard(sock, 9), 2, "the process has these");
        peer.send_urgent(server, &[IoSlice::new(b"ab!")]);
        peer.send(server, &[IoSlice::new(b"cd")], false);
        world.settle(1_000_000_000);
    });
    assert!(killed.offer(b"xy").is_some());
    assert_eq!(killed.claim(), Ok(Reply::Done));
    assert_eq!(killed.read(), b"xyab", "up to the mark");
    let (program, sock) = &killed.to;
    assert_eq!(program.take_urgent(*sock), Urgent::Here(b'!'));
    assert_eq!(killed.read(), b"cd");
}

#[test]
fn a_former_urgent_byte_behind_bytes_that_were_not_read_is_one_of_the_stream() {
    let mut killed = killed_after(b"", |world, sock, server| {
        let [program, peer] = [0, 1].map(|host| world.hosts[host].program.clone());
        peer.send_urgent(server, &[IoSlice::new(b"a!")]);
        world.settle(1_000_000_000);
        assert_eq!(program.discard(sock, 9), 1, "up to the mark");
        peer.send_urgent(server, &[IoSlice::new(b"bc?")]);
        world.settle(1_000_000_000);
    });
    assert!(killed.offer(b"a").is_some());
    assert_eq!(killed.claim(), Ok(Reply::Done));
    assert_eq!(killed.read(), b"a!bc");
    let (program, sock) = &killed.to;
    assert_eq!(program.take_urgent(*sock), Urgent::Here(b'?'));
}

#[test]
fn a_connection_is_reset_once_its_sole_user_has_ended_and_not_while_another_may_have_it() {
    let named = Loan::to(USER, 0, 0);
    let sole = named.sole();
    for (loan, state, is_reset) in [
        (sole, UserState::Ended, true),
        (sole, UserState::Late, false),
        (sole.unsure(), UserState::Ended, true),
        (sole.unsure(), UserState::MayCome, false),
        (named, UserState::Ended, false),
        (named, UserState::Late, false),
        (named.unsure(), UserState::Ended, false),
        (named.unsure(), UserState::MayCome, false),
        (Loan::to(0, 0, 0).unsure(), UserState::MayCome, false),
    ] {
        let mut killed = killed_that_resets(loan);
        assert!(!killed.end_as(state), "nothing waits any more");
        killed.world.settle(1_000_000_000);
        let peer = &killed.world.hosts[1].program;
        let bits = peer.state(killed.server);
        assert_eq!(bits.contains(State::ERR), is_reset, "{loan:?} {state:?}");
    }
}
