//! RFC 5482: announcement of the user timeout, and the effect of the one that a peer announces.

use core::time::Duration;

use slipstack_wire::tcp_options::TcpOptions;
use slipstack_wire::user_timeout::UserTimeout;

use super::harness::*;
use crate::{
    Event, KeepAlive, ListenOptions, Reason, SocketOption, SocketOptions, StackConfig, SynCookies,
};

fn enabled() -> StackConfig {
    let mut config = config();
    config.tcp.user_timeout_option = true;
    config
}

fn with_timeout(seconds: u64) -> SocketOptions {
    SocketOptions {
        user_timeout: Some(Duration::from_secs(seconds)),
        ..SocketOptions::default()
    }
}

/// An accepted connection; the program has set nothing.
fn open(config: StackConfig) -> World {
    let mut world = World::new(config);
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        sack_permitted: true,
        ..TcpOptions::default()
    });
    world.clear();
    world
}

fn set_timeout(world: &mut World, seconds: Option<u64>) {
    let option = SocketOption::UserTimeout(seconds.map(Duration::from_secs));
    let conn = world.conn.unwrap();
    let fx = &mut world.fx;
    world
        .stack
        .tcp_set_option(world.now, conn, option, fx)
        .unwrap();
    world.flush();
}

/// Sends the peer's option, with an ACK and nothing else.
fn say(world: &mut World, option: &[u8]) {
    let numbers = (world.seq, world.ack);
    world.inject_raw((PEER_PORT, PORT), numbers, ACK, option, &[]);
    world.flush();
}

fn timeout_of(sent: &Sent) -> Option<u32> {
    sent.user_timeout.map(UserTimeout::seconds)
}

/// Seconds for which data stays unacknowledged before the connection ends, to ten seconds.
fn lasts(world: &mut World) -> u64 {
    world.write(100);
    for passed in (0..200_000).step_by(10) {
        if world.failed().is_some() {
            assert_eq!(world.failed(), Some(Reason::TimedOut));
            return passed;
        }
        world.sleep(10 * SECOND);
    }
    panic!("it never ends");
}

#[test]
fn only_the_syn_and_the_first_segment_announce_the_user_timeout() {
    // RFC 5482 3.
    let mut world = World::new(enabled());
    let (now, fx) = (world.now, &mut world.fx);
    let conn = world
        .stack
        .tcp_connect(now, None, peer(), &with_timeout(45), fx);
    world.conn = Some(conn.unwrap());
    let syn = world.only();
    assert_eq!((syn.is(SYN), timeout_of(&syn)), (true, Some(45)));
    // RFC 5482 3.2: a retransmission carries it again.
    world.sleep(SECOND + 100 * MS);
    assert_eq!(timeout_of(&world.only()), Some(45));
    let ports = (PEER_PORT, syn.header.src_port);
    world.ack = syn.header.seq.wrapping_add(1);
    let mss = TcpOptions {
        mss: Some(1000),
        ..TcpOptions::default()
    };
    world.inject(ports, ISS, world.ack, SYN | ACK, &mss, &[]);
    let first = world.only();
    assert_eq!((first.is(SYN), timeout_of(&first)), (false, Some(45)));
    world.write(100);
    assert_eq!(timeout_of(&world.only()), None);
}

#[test]
fn a_listeners_user_timeout_is_in_the_syn_ack_and_the_first_segment() {
    // RFC 5482 3.
    let mut world = World::new(enabled());
    world.listen_with(ListenOptions {
        socket: with_timeout(45),
        ..ListenOptions::default()
    });
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    let answer = world.only();
    assert_eq!(
        (answer.is(SYN | ACK), timeout_of(&answer)),
        (true, Some(45))
    );
    world.seq = ISS + 1;
    world.ack = answer.header.seq.wrapping_add(1);
    world.peer(ACK, &[1; 10]);
    world.sleep(SECOND);
    assert_eq!(timeout_of(&world.only()), Some(45));
    world.peer(ACK, &[1; 10]);
    world.sleep(SECOND);
    assert_eq!(timeout_of(&world.only()), None);
}

#[test]
fn the_next_segment_with_room_carries_a_new_value() {
    // RFC 5482 3.
    let mut world = open(enabled());
    set_timeout(&mut world, Some(40_000));
    world.none();
    world.write(100);
    assert_eq!(timeout_of(&world.only()), Some(40_020));
    world.acknowledge(100);
    // An unchanged value is not sent again, and no value sends nothing.
    set_timeout(&mut world, Some(40_000));
    set_timeout(&mut world, None);
    world.write(200);
    assert_eq!(timeout_of(&world.only()), None);
    world.acknowledge(100);
    // Full segments have no room: an ACK goes ahead of them.
    set_timeout(&mut world, Some(30));
    world.write(5_200);
    let sent = world.take_sent();
    assert_eq!((timeout_of(&sent[0]), sent[0].len()), (Some(30), 0));
    assert!(sent.len() > 1 && sent[1..].iter().all(|it| timeout_of(it).is_none()));
    let lengths: u32 = sent.iter().map(Sent::len).sum();
    assert_eq!(lengths, 5_000);
}

#[test]
fn without_the_configuration_the_option_is_neither_sent_nor_heeded() {
    let mut world = open(config());
    set_timeout(&mut world, Some(30));
    world.write(100);
    assert_eq!(timeout_of(&world.only()), None);
    let mut world = open(config());
    say(&mut world, &[28, 4, 0x80, 60]);
    let passed = lasts(&mut world);
    assert!((900..=950).contains(&passed), "{passed}");
}

#[test]
fn the_peers_value_lengthens_the_timeout_within_limits() {
    // RFC 5482 3.1.
    let table: [(&[u8], core::ops::RangeInclusive<u64>); 7] = [
        // An hour.
        (&[28, 4, 0x80, 60], 3_600..=3_730),
        // Less than the retries allow, which replace a value of our own.
        (&[28, 4, 0, 10], 900..=950),
        // The longest there is: a day.
        (&[28, 4, 0xff, 0xff], 86_400..=86_530),
        // Reserved, and of wrong lengths (RFC 5482 3.3 and 3.4).
        (&[28, 4, 0x80, 0], 900..=950),
        (&[28, 3, 0x80, 1], 900..=950),
        (&[28, 5, 0x80, 60, 0, 1, 1, 1], 900..=950),
        (&[28, 8, 0x80, 60], 900..=950),
    ];
    for (option, want) in table {
        let mut world = open(enabled());
        say(&mut world, option);
        let passed = lasts(&mut world);
        assert!(want.contains(&passed), "{option:?}: {passed}");
    }
}

#[test]
fn no_user_timeout_is_shorter_than_100_seconds() {
    // RFC 5482 3.1: L_LIMIT.
    let mut config = enabled();
    config.tcp.retries = 3;
    let mut world = open(config.clone());
    assert!(lasts(&mut world) < 20);
    let mut world = open(config);
    say(&mut world, &[28, 4, 0, 10]);
    let passed = lasts(&mut world);
    assert!((100..=220).contains(&passed), "{passed}");
}

#[test]
fn a_peer_cannot_change_a_user_timeout_that_the_program_set() {
    // RFC 5482 3.1: CHANGEABLE is false then.
    let mut world = open(enabled());
    set_timeout(&mut world, Some(30));
    say(&mut world, &[28, 4, 0x80, 60]);
    let passed = lasts(&mut world);
    assert!((30..=40).contains(&passed), "{passed}");
}

#[test]
fn the_last_user_timeout_of_the_handshake_counts() {
    // RFC 5482 3.1.
    let mut world = World::new(enabled());
    let (now, fx) = (world.now, &mut world.fx);
    let conn = world
        .stack
        .tcp_connect(now, None, peer(), &SocketOptions::default(), fx);
    world.conn = Some(conn.unwrap());
    let syn = world.only();
    let ports = (PEER_PORT, syn.header.src_port);
    world.ack = syn.header.seq.wrapping_add(1);
    let numbers = (ISS, world.ack);
    world.inject_raw(ports, numbers, SYN | ACK, &[28, 4, 0x80, 120], &[]);
    let passed = lasts(&mut world);
    assert!((7_200..=7_330).contains(&passed), "{passed}");
    let mut world = open(enabled());
    say(&mut world, &[28, 4, 0x80, 120]);
    say(&mut world, &[28, 4, 0x80, 60]);
    let passed = lasts(&mut world);
    assert!((3_600..=3_730).contains(&passed), "{passed}");
}

#[test]
fn a_closed_connection_ignores_the_user_timeout() {
    let mut world = open(enabled());
    say(&mut world, &[28, 4, 0x80, 60]);
    world.write(100);
    let conn = world.conn.unwrap();
    let mode = crate::CloseMode::Orderly;
    world
        .stack
        .tcp_close(world.now, conn, mode, false, &mut world.fx);
    world.sleep(200 * SECOND);
    assert!(world.is_released());
}

#[test]
fn keep_alive_waits_for_longer_than_the_user_timeout() {
    // RFC 5482 4.2.
    let keep = KeepAlive {
        enabled: true,
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(2),
        probes: 3,
    };
    let silence = |is_enabled: bool, own: Option<u64>, option: &[u8]| {
        let mut world = open(if is_enabled { enabled() } else { config() });
        set_timeout(&mut world, own);
        say(&mut world, option);
        let conn = world.conn.unwrap();
        let fx = &mut world.fx;
        let option = SocketOption::KeepAlive(keep);
        world
            .stack
            .tcp_set_option(world.now, conn, option, fx)
            .unwrap();
        world.take_sent();
        let begin = world.now;
        while world.take_sent().is_empty() {
            world.sleep(100 * MS);
        }
        world.now.nanos_since(begin) / SECOND
    };
    assert_eq!(silence(true, None, &[]), 10);
    assert_eq!(silence(false, Some(30), &[]), 10);
    assert_eq!(silence(true, Some(30), &[]), 31);
    let adopted = silence(true, None, &[28, 4, 0x80, 60]);
    assert_eq!(adopted, 3_601);
}

#[test]
fn the_sent_value_and_the_unsent_one_move_with_the_connection() {
    let mut world = open(enabled());
    say(&mut world, &[28, 4, 0x80, 60]);
    set_timeout(&mut world, Some(45));
    let image = world.stack.tcp_detach(world.conn.unwrap()).unwrap();
    let mut other = World::new(enabled());
    (other.now, other.seq, other.ack) = (world.now, world.seq, world.ack);
    other.conn = Some(
        other
            .stack
            .tcp_adopt(other.now, &image, &mut other.fx)
            .unwrap(),
    );
    other.flush();
    assert_eq!(timeout_of(&other.only()), Some(45));
    set_timeout(&mut other, None);
    let passed = lasts(&mut other);
    assert!((3_600..=3_730).contains(&passed), "{passed}");
}

/// Sends the option in the peer's SYN; later segments do not have it.
fn say_in_syn(world: &mut World, option: &[u8]) {
    world.listen();
    let numbers = (world.seq, 0);
    world.inject_raw((PEER_PORT, PORT), numbers, SYN, option, &[]);
    world.seq = world.seq.wrapping_add(1);
    world.ack = world.only().header.seq.wrapping_add(1);
}

/// The handshake's last ACK.
fn finish(world: &mut World) {
    world.peer(ACK, &[]);
    let accepted = world.fx.events.iter().find_map(|event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    world.conn = Some(accepted.unwrap());
    world.flush();
}

#[test]
fn the_user_timeout_of_a_syn_is_kept_unless_a_cookie_answers_it() {
    // RFC 5482 3: a SYN may say it. RFC 4987 3.6: a cookie has no room for it.
    let passed = |config: StackConfig| {
        let mut world = World::new(config);
        say_in_syn(&mut world, &[28, 4, 0x80, 60]);
        finish(&mut world);
        lasts(&mut world)
    };
    let kept = passed(enabled());
    assert!((3_600..=3_730).contains(&kept), "{kept}");
    let mut with_cookies = enabled();
    with_cookies.tcp.syn_cookies = SynCookies::Always;
    let lost = passed(with_cookies);
    assert!(lost < 1_200, "{lost}");
    let unheeded = passed(config());
    assert!(unheeded < 1_200, "{unheeded}");
}

#[test]
fn the_user_timeout_of_a_syn_moves_with_the_half_open_connection() {
    let moved_to = |config: StackConfig| {
        let mut world = World::new(enabled());
        say_in_syn(&mut world, &[28, 4, 0x80, 60]);
        let listener = world.listener.unwrap();
        let images = world.stack.tcp_detach_half_open(listener);
        let mut other = World::new(config);
        other.listen();
        (other.now, other.seq, other.ack) = (world.now, world.seq, world.ack);
        other
            .stack
            .tcp_adopt_half_open(other.now, &images[0])
            .unwrap();
        finish(&mut other);
        lasts(&mut other)
    };
    let kept = moved_to(enabled());
    assert!((3_600..=3_730).contains(&kept), "{kept}");
    let unheeded = moved_to(config());
    assert!(unheeded < 1_200, "{unheeded}");
}
