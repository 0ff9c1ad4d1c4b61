//! SYN cookies (RFC 4987): nothing is stored, everything comes back.
//!
//! RFC 4987 3.6.

use super::harness::*;
use crate::{Counter, Event, ListenOptions, StackConfig, SynCookies};
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

const STAMP: u32 = 7_000;

fn offer() -> TcpOptions {
    TcpOptions {
        mss: Some(1400),
        window_scale: Some(9),
        sack_permitted: true,
        timestamps: Some(Timestamps {
            value: STAMP,
            echo: 0,
        }),
        ..TcpOptions::default()
    }
}

fn with(policy: SynCookies) -> StackConfig {
    let mut config = config();
    config.tcp.syn_cookies = policy;
    config
}

fn always() -> World {
    let mut world = World::new(with(SynCookies::Always));
    world.listen();
    world
}

/// Sends a SYN and takes the SYN-ACK.
fn ask(world: &mut World, port: u16, options: &TcpOptions) -> Sent {
    world.inject((port, PORT), ISS, 0, SYN, options, &[]);
    let answer = world.only();
    assert!(answer.is(SYN | ACK));
    answer
}

/// Sends the ACK of `answer`, its number increased by `ahead`.
fn reply(world: &mut World, port: u16, answer: &Sent, payload: &[u8]) {
    let options = TcpOptions {
        timestamps: answer.options.timestamps.map(|t| Timestamps {
            value: STAMP + 1,
            echo: t.value,
        }),
        ..TcpOptions::default()
    };
    let ack = answer.header.seq.wrapping_add(1);
    world.inject((port, PORT), ISS + 1, ack, ACK, &options, payload);
}

fn accepted(world: &mut World) -> Option<crate::ConnId> {
    world.conn = world.fx.events.iter().find_map(|event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    world.conn
}

#[test]
fn a_cookie_stores_no_state_and_restores_every_option() {
    let mut world = always();
    let answer = ask(&mut world, PEER_PORT, &offer());
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
    assert_eq!(answer.options.timestamps.unwrap().echo, STAMP);
    reply(&mut world, PEER_PORT, &answer, b"hello");
    let conn = accepted(&mut world).expect("a connection");
    assert_eq!(world.fx.stored[&0], b"hello");
    let info = world.stack.tcp_info(world.now, conn).unwrap();
    assert_eq!((info.snd_mss, info.snd_wscale), (1400 - 12, 9));
    assert!(info.has_sack && info.has_timestamps);
    assert_eq!(world.stack.counters().value(Counter::RxTcpCookies), 1);
}

#[test]
fn later_timestamps_are_not_older_than_the_cookies() {
    for ms in 0..130 {
        let mut world = always();
        world.now.0 += ms * MS;
        let answer = ask(&mut world, PEER_PORT, &offer());
        reply(&mut world, PEER_PORT, &answer, b"x");
        world.sleep(50 * MS);
        let first = answer.options.timestamps.unwrap().value;
        let next = world.only().options.timestamps.unwrap().value;
        assert!(next.wrapping_sub(first) < 50 + 128, "{first} {next}");
    }
}

#[test]
fn without_timestamps_only_the_mss_is_kept() {
    let mut world = always();
    let options = TcpOptions {
        timestamps: None,
        ..offer()
    };
    let answer = ask(&mut world, PEER_PORT, &options);
    assert!(answer.options.window_scale.is_none() && !answer.options.sack_permitted);
    reply(&mut world, PEER_PORT, &answer, b"");
    let conn = accepted(&mut world).expect("a connection");
    let info = world.stack.tcp_info(world.now, conn).unwrap();
    assert_eq!(info.snd_mss, 1400);
    assert!(!info.has_sack && !info.has_timestamps);
}

#[test]
fn a_full_table_degrades_to_cookies_and_recovers() {
    let mut world = World::new(with(SynCookies::WhenFull));
    world.listen();
    for port in 1000..1256 {
        ask(&mut world, port, &offer());
    }
    let sent = world.stack.counters().value(Counter::TxTcpCookies);
    assert_eq!((world.stack.tcp_sizes().half_open, sent), (256, 0));
    let answer = ask(&mut world, PEER_PORT, &offer());
    assert_eq!(world.stack.tcp_sizes().half_open, 256);
    assert_eq!(world.stack.counters().value(Counter::TxTcpCookies), 1);
    reply(&mut world, PEER_PORT, &answer, b"");
    assert!(accepted(&mut world).is_some());
    // The entries expire; then there is room again.
    world.sleep(70 * SECOND);
    world.take_sent();
    ask(&mut world, 2000, &offer());
    assert_eq!(world.stack.counters().value(Counter::TxTcpCookies), 1);
}

#[test]
fn without_cookies_a_full_table_drops() {
    let mut world = World::new(with(SynCookies::Never));
    world.listen();
    for port in 1000..1256 {
        ask(&mut world, port, &offer());
    }
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer(), &[]);
    world.none();
    assert_eq!(world.stack.counters().value(Counter::DropTcpSynTable), 1);
}

#[test]
fn no_ack_is_a_cookie_before_one_was_sent_or_long_after() {
    let mut world = always();
    let answer = ask(&mut world, PEER_PORT, &offer());
    world.now.0 += 128 * SECOND;
    reply(&mut world, PEER_PORT, &answer, b"");
    assert!(world.only().is(RST));
    assert_eq!(accepted(&mut world), None);
    // It is not checked: no cookie has been sent for too long.
    assert_eq!(world.stack.counters().value(Counter::RxTcpBadCookies), 0);
}

#[test]
fn a_flood_of_acks_makes_no_state_and_few_answers() {
    let mut world = always();
    let answer = ask(&mut world, PEER_PORT, &offer());
    for i in 0..100_000u32 {
        let mut forged = answer.clone();
        forged.header.seq = i.wrapping_mul(0x9e37_79b9);
        reply(&mut world, 1024 + (i % 60_000) as u16, &forged, b"");
    }
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
    assert!(world.stack.counters().value(Counter::RxTcpBadCookies) >= 99_999);
    // One burst of the limit on resets.
    assert!(world.take_sent().len() <= 100);
}

#[test]
fn a_full_accept_queue_drops_the_ack_and_a_later_one_is_taken() {
    let mut world = World::new(with(SynCookies::Always));
    let listener = world.listen_with(ListenOptions {
        backlog: 0,
        ..Default::default()
    });
    let (first, second) = (
        ask(&mut world, 1000, &offer()),
        ask(&mut world, 1001, &offer()),
    );
    reply(&mut world, 1000, &first, b"");
    assert!(accepted(&mut world).is_some());
    world.clear();
    reply(&mut world, 1001, &second, b"hello");
    world.none();
    assert_eq!(accepted(&mut world), None);
    assert_eq!(world.stack.counters().value(Counter::DropTcpBacklog), 1);
    // The peer thinks that it is connected and sends its data again.
    world.stack.tcp_accepted(listener, 1);
    reply(&mut world, 1001, &second, b"hello");
    assert!(accepted(&mut world).is_some());
}

#[test]
fn data_beyond_the_window_of_the_syn_ack_is_cut() {
    let mut world = World::new(with(SynCookies::Always));
    let mut options = ListenOptions::default();
    options.socket.rcvbuf = Some(4608);
    world.listen_with(options);
    let answer = ask(&mut world, PEER_PORT, &offer());
    reply(&mut world, PEER_PORT, &answer, &[7; 3000]);
    assert!(accepted(&mut world).is_some());
    assert_eq!(world.fx.stored[&0].len(), 2304);
}

#[test]
fn data_that_overtakes_the_ack_of_a_cookie_does_not_open_the_connection() {
    let mut world = always();
    let answer = ask(&mut world, PEER_PORT, &offer());
    let ack = answer.header.seq.wrapping_add(1);
    let options = TcpOptions {
        timestamps: answer.options.timestamps.map(|t| Timestamps {
            value: STAMP + 1,
            echo: t.value,
        }),
        ..TcpOptions::default()
    };
    world.inject((PEER_PORT, PORT), ISS + 1389, ack, ACK, &options, b"late");
    assert_eq!(accepted(&mut world), None);
    assert_eq!(world.stack.counters().value(Counter::RxTcpBadCookies), 1);
    world.take_sent();
    reply(&mut world, PEER_PORT, &answer, b"first");
    assert!(accepted(&mut world).is_some());
}

#[test]
fn a_flow_in_time_wait_reopens_with_an_entry_and_not_a_cookie() {
    let mut world = always();
    let answer = ask(&mut world, PEER_PORT, &offer());
    reply(&mut world, PEER_PORT, &answer, b"");
    let conn = accepted(&mut world).unwrap();
    world.stack.tcp_close(
        world.now,
        conn,
        crate::CloseMode::Orderly,
        false,
        &mut world.fx,
    );
    world.flush();
    let fin = world.take_sent().pop().unwrap();
    let stamps = Some(Timestamps {
        value: STAMP + 2,
        echo: fin.options.timestamps.unwrap().value,
    });
    let options = TcpOptions {
        timestamps: stamps,
        ..TcpOptions::default()
    };
    let ack = fin.header.seq.wrapping_add(1);
    world.inject((PEER_PORT, PORT), ISS + 1, ack, FIN | ACK, &options, &[]);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    world.take_sent();
    let mut again = offer();
    again.timestamps.as_mut().unwrap().value = STAMP + 1000;
    let answer = ask(&mut world, PEER_PORT, &again);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 1, 0));
    // Beyond everything that the old connection sent.
    assert!((answer.header.seq.wrapping_sub(ack) as i32) > 0);
}
