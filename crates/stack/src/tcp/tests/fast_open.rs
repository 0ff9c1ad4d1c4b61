//! RFC 7413: data in SYNs, both sides.
//!
//! RFC 7413 4.1.2, 4.1.3, 4.2.1, 4.2.2 and 5.1.

use super::harness::*;
use crate::options::SocketOptions;
use crate::{ConnId, Counter, Event, FastOpenConfig, ListenOptions, ListenerId, Reason};
use alloc::vec::Vec;
use core::net::SocketAddr;
use slipstack_terms::FastOpenKeys;
use slipstack_wire::fast_open::{Cookie, FastOpen};
use slipstack_wire::tcp::OPTIONS_MAX;
use slipstack_wire::tcp_options::TcpOptions;

fn offer() -> TcpOptions {
    TcpOptions {
        mss: Some(1000),
        sack_permitted: true,
        ..TcpOptions::default()
    }
}

fn world(bits: u32) -> World {
    let mut config = config();
    config.tcp.fast_open = FastOpenConfig::from_bits(bits);
    World::new(config)
}

fn taking(queue: u32) -> ListenOptions {
    let mut options = ListenOptions::default();
    options.socket.fast_open_queue = queue;
    options
}

fn server(queue: u32) -> (World, ListenerId) {
    let mut world = world(3);
    let listener = world.listen_with(taking(queue));
    (world, listener)
}

fn inject(
    world: &mut World,
    port: u16,
    ack: u32,
    flags: slipstack_wire::tcp::TcpFlags,
    option: Option<FastOpen>,
    payload: &[u8],
) {
    let mut room = [0; OPTIONS_MAX];
    let mut len = offer().emit(&mut room);
    if let Some(option) = option {
        len = option.append(&mut room, len);
    }
    world.inject_raw((port, PORT), (ISS, ack), flags, &room[..len], payload);
}

/// Sends the peer's SYN to a listener, and returns the answer.
fn syn(world: &mut World, port: u16, option: Option<FastOpen>, payload: &[u8]) -> Sent {
    inject(world, port, 0, SYN, option, payload);
    world.flush();
    world.only()
}

fn learn_cookie(world: &mut World) -> FastOpen {
    let answer = syn(world, 999, Some(FastOpen::Request), &[]);
    answer.fast_open.expect("a cookie")
}

fn accepted(world: &World) -> Vec<ConnId> {
    let conn = |event: &Event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    };
    world.fx.events.iter().filter_map(conn).collect()
}

#[test]
fn a_valid_cookie_brings_the_data_before_the_handshake_is_done() {
    let (mut world, _) = server(5);
    let cookie = learn_cookie(&mut world);
    let answer = syn(&mut world, PEER_PORT, Some(cookie), b"hello");
    assert!(answer.is(SYN | ACK));
    assert_eq!(answer.header.ack, ISS + 1 + 5);
    let conn = accepted(&world)[0];
    assert_eq!(world.fx.stored[&0], b"hello");
    assert!(world.has(Event::Received { conn, upto: 5 }));
    // The program answers before the ACK of the handshake.
    world.conn = Some(conn);
    world.write(7);
    let data = world.only();
    assert_eq!((data.data, data.header.ack), (Some((0, 7)), ISS + 6));
    world.seq = ISS + 6;
    world.ack = answer.header.seq.wrapping_add(8);
    world.peer(ACK, b"more");
    assert!(world.has(Event::Received { conn, upto: 9 }));
    assert!(world.has(Event::Acked { conn, upto: 7 }));
    // It was not opened actively.
    assert!(!world.has(Event::Connected { conn }));
}

#[test]
fn data_with_a_wrong_cookie_or_none_waits_for_the_handshake() {
    let (mut world, _) = server(5);
    let FastOpen::Cookie(good) = learn_cookie(&mut world) else {
        panic!("no cookie");
    };
    let mut bytes = good.as_slice().to_vec();
    bytes[0] ^= 1;
    let wrong = Cookie::new(&bytes).map(FastOpen::Cookie);
    for (port, option) in [(1000, wrong), (1001, None), (1002, Some(FastOpen::Request))] {
        let answer = syn(&mut world, port, option, b"hello");
        assert_eq!(answer.header.ack, ISS + 1);
        // A client that speaks Fast Open gets the right cookie.
        let wanted = option.map(|_| FastOpen::Cookie(good));
        assert_eq!(answer.fast_open, wanted);
    }
    assert!(accepted(&world).is_empty() && world.fx.stored.is_empty());
    assert_eq!(world.stack.counters().value(Counter::RxTcpBadFastOpen), 1);
}

#[test]
fn without_the_option_there_is_no_fast_open() {
    for (bits, queue) in [(1, 5), (3, 0)] {
        let mut world = world(bits);
        world.listen_with(taking(queue));
        let answer = syn(&mut world, PEER_PORT, Some(FastOpen::Request), b"hello");
        assert_eq!((answer.fast_open, answer.header.ack), (None, ISS + 1));
    }
}

#[test]
fn pending_connections_are_bounded_and_leave_the_list_when_done() {
    let (mut world, _) = server(2);
    let cookie = Some(learn_cookie(&mut world));
    let first = syn(&mut world, 1000, cookie, b"a");
    syn(&mut world, 1001, cookie, b"b");
    assert_eq!(accepted(&world).len(), 2);
    let third = syn(&mut world, 1002, cookie, b"c");
    assert_eq!((accepted(&world).len(), third.header.ack), (2, ISS + 1));
    assert_eq!(world.stack.counters().value(Counter::RxTcpFastOpenFull), 1);
    let ack = first.header.seq.wrapping_add(1);
    world.inject((1000, PORT), ISS + 2, ack, ACK, &TcpOptions::default(), &[]);
    syn(&mut world, 1003, cookie, b"d");
    assert_eq!(accepted(&world).len(), 3);
}

/// One place, whose connection is reset: returns whether the next SYN's data is accepted at once,
/// and after 60 s.
fn taken_after_a_reset(is_accepted: bool) -> (bool, bool) {
    let (mut world, listener) = server(1);
    let cookie = Some(learn_cookie(&mut world));
    syn(&mut world, 1000, cookie, b"a");
    if is_accepted {
        world.stack.tcp_accepted(listener, 1);
    }
    world.inject((1000, PORT), ISS + 2, 0, RST, &TcpOptions::default(), &[]);
    assert_eq!(world.failed(), Some(Reason::Reset));
    let at_once = syn(&mut world, 1001, cookie, b"b").header.ack == ISS + 2;
    // The handshake of that one is done.
    let ack = |world: &mut World, port, answer: Sent| {
        let ack = answer.header.seq.wrapping_add(1);
        world.inject((port, PORT), ISS + 2, ack, ACK, &TcpOptions::default(), &[]);
    };
    world.sleep(59 * SECOND);
    world.take_sent();
    if !at_once {
        let before = syn(&mut world, 1002, cookie, b"c");
        assert_eq!(before.header.ack, ISS + 1, "59 s");
        ack(&mut world, 1002, before);
    }
    world.sleep(2 * SECOND);
    world.take_sent();
    let later = syn(&mut world, 1003, cookie, b"d").header.ack == ISS + 2;
    (at_once, later)
}

#[test]
fn a_reset_keeps_its_place_among_the_pending_for_a_minute() {
    // RFC 7413 5.1: else SYNs with resets behind them would have no bound (Linux:
    // reqsk_fastopen_remove).
    assert_eq!(taken_after_a_reset(true), (false, true));
    // As on Linux: one that the program has not taken yet fills its queue instead.
    assert!(taken_after_a_reset(false).0);
}

#[test]
fn a_lost_syn_ack_comes_again_and_data_after_it() {
    let (mut world, _) = server(5);
    let cookie = learn_cookie(&mut world);
    let first = syn(&mut world, PEER_PORT, Some(cookie), b"hello");
    let conn = accepted(&world)[0];
    world.conn = Some(conn);
    world.write(7);
    world.take_sent();
    // The peer tries again, without data and option as it should.
    let again = syn(&mut world, PEER_PORT, None, &[]);
    assert!(again.is(SYN | ACK));
    assert_eq!(
        (again.header.seq, again.header.ack),
        (first.header.seq, ISS + 6)
    );
    world.sleep(1100 * MS);
    assert!(world.take_sent().iter().any(|s| s.is(SYN | ACK)));
    // It acknowledges the SYN-ACK only: the answer comes again.
    world.seq = ISS + 6;
    world.ack = first.header.seq.wrapping_add(1);
    world.peer(ACK, &[]);
    // RFC 6298 5.7: three seconds after a handshake that was repeated.
    world.sleep(4 * SECOND);
    assert!(world.take_sent().iter().any(|s| s.data == Some((0, 7))));
}

#[test]
fn an_unanswered_syn_ack_is_given_up_and_a_reset_ends_it() {
    let (mut world, _) = server(5);
    let cookie = Some(learn_cookie(&mut world));
    syn(&mut world, 1000, cookie, b"a");
    syn(&mut world, 1001, cookie, b"b");
    world.inject((1001, PORT), ISS + 2, 0, RST, &TcpOptions::default(), &[]);
    assert_eq!(world.failed(), Some(Reason::Reset));
    world.clear();
    world.sleep(70 * SECOND);
    assert_eq!(world.failed(), Some(Reason::TimedOut));
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
}

/// An active open to port 80 of the peer; port 81 is ours.
fn connect(world: &mut World, port: u16) -> ConnId {
    let options = SocketOptions {
        fast_open: true,
        ..SocketOptions::default()
    };
    let local = SocketAddr::from((OURS, PORT));
    let remote = SocketAddr::from((PEER, port));
    let conn = world
        .stack
        .tcp_connect(world.now, Some(local), remote, &options, &mut world.fx)
        .unwrap();
    world.conn = Some(conn);
    conn
}

fn some_cookie() -> FastOpen {
    Cookie::new(&[1, 2, 3, 4, 5, 6, 7, 8])
        .map(FastOpen::Cookie)
        .unwrap()
}

/// A client that has been given a cookie.
fn client() -> World {
    let mut world = world(1);
    connect(&mut world, 1000);
    let asks = world.only();
    assert_eq!(asks.fast_open, Some(FastOpen::Request));
    let ack = asks.header.seq.wrapping_add(1);
    inject(&mut world, 1000, ack, SYN | ACK, Some(some_cookie()), &[]);
    world.flush();
    world.clear();
    world
}

#[test]
fn the_first_open_asks_and_the_next_one_waits_for_data() {
    let mut world = client();
    let conn = connect(&mut world, PEER_PORT);
    // Nothing leaves, but the program may write.
    world.flush();
    world.none();
    assert!(world.has(Event::Opening { conn }) && !world.has(Event::Connected { conn }));
    world.write(100);
    let first = world.only();
    assert!(first.is(SYN) && !first.is(ACK));
    assert_eq!(
        (first.fast_open, first.data),
        (Some(some_cookie()), Some((0, 100)))
    );
    // All of it is taken.
    let ack = first.header.seq.wrapping_add(101);
    inject(&mut world, PEER_PORT, ack, SYN | ACK, None, &[]);
    assert!(world.has(Event::Acked { conn, upto: 100 }));
    world.flush();
    let last = world.only();
    assert_eq!(
        (last.header.seq, last.header.ack, last.data),
        (ack, ISS + 1, None)
    );
    let connected = |e: &&Event| matches!(e, Event::Connected { .. });
    assert_eq!(world.fx.events.iter().filter(connected).count(), 1);
}

#[test]
fn data_that_the_syn_ack_does_not_acknowledge_follows_at_once() {
    for (taken, rest) in [(0, (0, 300)), (120, (120, 180))] {
        let mut world = client();
        connect(&mut world, PEER_PORT);
        world.write(300);
        let first = world.only();
        let ack = first.header.seq.wrapping_add(1 + taken);
        inject(&mut world, PEER_PORT, ack, SYN | ACK, None, &[]);
        world.flush();
        assert_eq!(world.only().data, Some(rest));
    }
}

#[test]
fn a_syn_carries_no_more_than_the_server_takes() {
    let mut world = client();
    connect(&mut world, PEER_PORT);
    world.write(5000);
    assert_eq!(world.only().data, Some((0, 1000 - 40)));
}

#[test]
fn an_ack_beyond_the_data_of_the_syn_is_reset() {
    let mut world = client();
    connect(&mut world, PEER_PORT);
    world.write(10);
    let ack = world.only().header.seq.wrapping_add(12);
    inject(&mut world, PEER_PORT, ack, SYN | ACK, None, &[]);
    assert!(world.only().is(RST));
}

#[test]
fn a_path_that_swallows_data_in_syns_is_remembered() {
    let mut world = client();
    connect(&mut world, PEER_PORT);
    world.write(10);
    let first = world.only();
    world.sleep(1100 * MS);
    // RFC 7413 4.1.3.1: again without data and option.
    let second = world.only();
    assert!(second.is(SYN) && second.data.is_none() && second.fast_open.is_none());
    let ack = first.header.seq.wrapping_add(1);
    inject(&mut world, PEER_PORT, ack, SYN | ACK, None, &[]);
    world.flush();
    assert_eq!(world.only().data, Some((0, 10)));
    // The next open is an ordinary one.
    connect(&mut world, PEER_PORT + 1);
    let plain = world.only();
    assert!(plain.is(SYN) && plain.fast_open.is_none());
    world.now.0 += 3601 * SECOND;
    connect(&mut world, PEER_PORT + 2);
    world.none();
}

#[test]
fn a_deferred_open_that_is_closed_sends_nothing() {
    let mut world = client();
    let conn = connect(&mut world, PEER_PORT);
    world.stack.tcp_close(
        world.now,
        conn,
        crate::CloseMode::Orderly,
        false,
        &mut world.fx,
    );
    world.flush();
    world.none();
    assert!(world.is_released());
}

#[test]
fn no_time_stamps_are_taken_when_they_are_switched_off() {
    let mut world = world(0);
    connect(&mut world, PEER_PORT);
    assert_eq!(world.only().fast_open, None);
}

#[test]
fn the_last_ack_of_the_handshake_gives_a_round_trip_sample() {
    let (mut world, _) = server(5);
    let cookie = learn_cookie(&mut world);
    let answer = syn(&mut world, PEER_PORT, Some(cookie), b"hello");
    let conn = accepted(&world)[0];
    world.conn = Some(conn);
    let info = |world: &World| world.stack.tcp_info(world.now, conn).expect("it");
    assert_eq!(info(&world).rto_us, 1_000_000);
    world.now.0 += 300 * MS;
    world.seq = ISS + 6;
    world.ack = answer.header.seq.wrapping_add(1);
    world.peer(ACK, &[]);
    let rtt = info(&world).rtt_us;
    assert!((299_000..301_000).contains(&rtt), "{rtt}");
}

#[test]
fn a_listener_may_accept_data_without_a_cookie() {
    let mut world = world(3);
    let mut options = taking(5);
    options.socket.fast_open_no_cookie = true;
    world.listen_with(options);
    let answer = syn(&mut world, PEER_PORT, None, b"hello");
    assert_eq!(answer.header.ack, ISS + 6);
    assert_eq!(accepted(&world).len(), 1);
}

#[test]
fn cookies_of_a_program_s_key_are_accepted_by_every_stack_that_has_it() {
    let keys = |at: u8| {
        let bytes: [u8; 32] = core::array::from_fn(|byte| byte as u8 ^ at);
        FastOpenKeys::from_bytes(&bytes)
    };
    let world_with = |keys| {
        let mut world = world(3);
        let mut options = taking(5);
        options.socket.fast_open_keys = keys;
        world.listen_with(options);
        world
    };
    let cookie = learn_cookie(&mut world_with(keys(0)));
    // With 16 as the difference the two keys change places.
    for (at, is_taken) in [(0, true), (16, true), (1, false)] {
        let mut other = world_with(keys(at));
        let answer = syn(&mut other, PEER_PORT, Some(cookie), b"hello");
        assert_eq!(accepted(&other).len(), usize::from(is_taken), "{at}");
        assert_eq!(answer.header.ack == ISS + 6, is_taken);
    }
}
