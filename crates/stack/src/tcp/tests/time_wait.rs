//! TIME-WAIT entries move to another stack, and invalid images are refused.

use super::harness::*;
use crate::{CloseMode, Role, SocketError, StackConfig, TimeWaitImage};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use proptest::prelude::*;
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

/// A connection that we have closed first.
fn waiting(mut world: World) -> World {
    let conn = world.conn.unwrap();
    let World { stack, fx, now, .. } = &mut world;
    stack.tcp_close(*now, conn, CloseMode::Orderly, false, fx);
    world.flush();
    world.acknowledge(1);
    world.peer(FIN | ACK, &[]);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    world.clear();
    world
}

fn images(world: &World) -> alloc::vec::Vec<TimeWaitImage> {
    world.stack.tcp_time_waits(world.now, usize::MAX)
}

/// Another stack of the same address, at the same time.
fn successor(world: &World) -> World {
    let seed = [9; 32];
    let mut other = World::new(StackConfig { seed, ..config() });
    other.now = world.now;
    (other.seq, other.ack, other.stamps) = (world.seq, world.ack, world.stamps);
    other
}

/// The successor's stack, which goes on with it.
fn moved(world: &World) -> World {
    let mut other = successor(world);
    for image in images(world) {
        assert_eq!(other.stack.tcp_adopt_time_wait(other.now, &image), Ok(()));
    }
    other.clear();
    other
}

/// Returns the answer to a FIN that arrives again.
fn answer_to_fin(world: &mut World) -> Sent {
    world.peer_at(0u32.wrapping_sub(1), FIN | ACK, &[]);
    world.only()
}

#[test]
fn an_adopted_time_wait_answers_as_its_own_stack_does() {
    for stays in [established(), established_with_stamps()].map(waiting) {
        let mut stays = stays;
        let mut moves = moved(&stays);
        let (told, again) = (&images(&stays)[0], &images(&moves)[0]);
        assert!((1..=2).contains(&(60_000 - again.left_ms)), "{again:?}");
        let left_ms = again.left_ms;
        let rest = TimeWaitImage {
            left_ms,
            ..told.clone()
        };
        assert_eq!(*again, rest);
        let (old, new) = (answer_to_fin(&mut stays), answer_to_fin(&mut moves));
        assert!(new.is(ACK) && !new.is(RST));
        assert_eq!((new.header, new.options), (old.header, old.options));
        // RFC 1337 3: a reset ends neither.
        moves.peer_at(0, RST, &[]);
        moves.none();
        assert_eq!(moves.stack.tcp_sizes(), sizes(0, 0, 1));
    }
}

#[test]
fn an_adopted_time_wait_lasts_for_its_remaining_time() {
    let mut world = waiting(established());
    world.sleep(45 * SECOND);
    let mut world = moved(&world);
    world.sleep(14 * SECOND);
    assert_eq!(world.stack.tcp_sizes().time_wait, 1);
    world.sleep(2 * SECOND);
    assert_eq!(world.stack.tcp_sizes().time_wait, 0);
    world.none();
}

#[test]
fn an_end_that_is_repeated_to_an_adopted_time_wait_begins_it_again() {
    let mut world = waiting(established());
    world.sleep(45 * SECOND);
    let mut world = moved(&world);
    world.sleep(10 * SECOND);
    world.clear();
    answer_to_fin(&mut world);
    world.sleep(50 * SECOND);
    assert_eq!(world.stack.tcp_sizes().time_wait, 1);
    world.sleep(60 * SECOND);
    assert_eq!(world.stack.tcp_sizes().time_wait, 0);
}

#[test]
fn an_adopted_time_wait_is_opened_again_with_a_number_beyond_its_own() {
    // RFC 6191 2, RFC 1122 4.2.2.13.
    let stays = waiting(established_with_stamps());
    let mut world = moved(&stays);
    world.listen();
    let timestamps = Some(Timestamps {
        value: 60_000,
        echo: 0,
    });
    let options = TcpOptions {
        timestamps,
        ..TcpOptions::default()
    };
    let (old, seq) = (world.ack, world.seq.wrapping_add(5_000));
    world.inject((PEER_PORT, PORT), seq, 0, SYN, &options, &[]);
    let answer = world.only();
    assert!(answer.is(SYN));
    assert!((answer.header.seq.wrapping_sub(old) as i32) > 0);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 1, 0));
}

#[test]
fn a_peer_of_a_later_connection_is_reset_once_all_engines_were_asked() {
    for (role, is_reset) in [(Role::Keeper, true), (Role::Standalone, false)] {
        let stays = waiting(established());
        let config = StackConfig { role, ..config() };
        let mut world = World::new(config);
        (world.now, world.seq, world.ack) = (stays.now, stays.seq, stays.ack);
        for image in images(&stays) {
            assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &image), Ok(()));
        }
        world.peer_at(50_000, ACK, b"GET /");
        let answer = world.only();
        assert_eq!(answer.is(RST), is_reset, "{role:?}");
        assert!(!is_reset || answer.header.seq == world.ack);
        assert!(answer_to_fin(&mut world).is(ACK));
        assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    }
}

#[test]
fn time_waits_are_listed_longest_first_without_expired_ones() {
    let mut world = World::new(config());
    let until = |s: u32| s * 1_000;
    for (port, seconds) in [(1, 20), (2, 50), (3, 35)] {
        let image = TimeWaitImage {
            remote: SocketAddr::from((PEER, port)),
            left_ms: until(seconds),
            ..image()
        };
        assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &image), Ok(()));
    }
    let ports = |world: &World, now, most| -> alloc::vec::Vec<u16> {
        let all = world.stack.tcp_time_waits(now, most);
        all.iter().map(|image| image.remote.port()).collect()
    };
    assert_eq!(ports(&world, world.now, 9), [2, 3, 1]);
    assert_eq!(ports(&world, world.now, 2), [2, 3]);
    // Without a turn meanwhile.
    let later = world.now.plus_nanos(40 * SECOND);
    assert_eq!(ports(&world, later, 9), [2]);
}

fn image() -> TimeWaitImage {
    TimeWaitImage {
        local: SocketAddr::from((OURS, PORT)),
        remote: SocketAddr::from((PEER, PEER_PORT)),
        snd_nxt: 1,
        rcv_nxt: 2,
        window: 3,
        stamps: None,
        left_ms: 30_000,
    }
}

#[test]
fn a_time_wait_image_that_cannot_be_ours_is_refused() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let local = |local: (IpAddr, u16)| TimeWaitImage {
        local: local.into(),
        ..image()
    };
    let remote = |remote: (IpAddr, u16)| TimeWaitImage {
        remote: remote.into(),
        ..image()
    };
    let bad = SocketError::BadImage;
    let left_ms = 0;
    for (image, why) in [
        (local((OURS.into(), 0)), bad),
        (remote((PEER.into(), 0)), bad),
        (remote((ip("fd00::2"), 7)), bad),
        (remote((ip("224.0.0.1"), 7)), bad),
        (remote((ip("0.0.0.0"), 7)), bad),
        (local((ip("10.0.0.77"), 7)), SocketError::AddrNotAvailable),
        (remote((ip("198.51.100.1"), 7)), SocketError::NetUnreachable),
        (TimeWaitImage { left_ms, ..image() }, bad),
    ] {
        let mut world = World::new(config());
        let adopted = world.stack.tcp_adopt_time_wait(world.now, &image);
        assert_eq!(adopted, Err(why), "{image:?}");
        assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
    }
}

#[test]
fn the_longest_time_in_an_image_is_the_configured_one() {
    let mut world = World::new(config());
    let left_ms = u32::MAX;
    let image = TimeWaitImage { left_ms, ..image() };
    assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &image), Ok(()));
    world.sleep(61 * SECOND);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
}

#[test]
fn a_time_wait_image_does_not_replace_a_connection_or_a_handshake() {
    let image = image();
    let taken = Err(SocketError::FlowExists);
    // A connection, and a handshake.
    let mut world = established();
    assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &image), taken);
    let mut world = World::new(config());
    world.listen();
    world.inject((PEER_PORT, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &image), taken);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 1, 0));
    // A later TIME-WAIT; an earlier one gives way.
    let mut world = World::new(config());
    let mut adopt = |left_ms, snd_nxt| {
        let image = TimeWaitImage {
            left_ms,
            snd_nxt,
            ..image.clone()
        };
        world.stack.tcp_adopt_time_wait(world.now, &image)
    };
    assert_eq!(adopt(30_000, 1), Ok(()));
    assert_eq!(adopt(20_000, 2), taken);
    assert_eq!(adopt(40_000, 3), Ok(()));
    assert_eq!(images(&world)[0].snd_nxt, 3);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
}

#[test]
fn a_full_table_refuses_entries_until_one_is_removed() {
    let mut full = config();
    full.tcp.time_waits_max = 1;
    let mut world = World::new(full);
    let other = TimeWaitImage {
        remote: SocketAddr::from((PEER, 9)),
        ..image()
    };
    assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &image()), Ok(()));
    let refused = world.stack.tcp_adopt_time_wait(world.now, &other);
    assert_eq!(refused, Err(SocketError::LimitReached));
    let (local, remote) = (image().local, image().remote);
    world.stack.tcp_forget_time_wait(local, other.remote);
    assert_eq!(world.stack.tcp_sizes().time_wait, 1);
    world.stack.tcp_forget_time_wait(local, remote);
    assert_eq!(world.stack.tcp_sizes().time_wait, 0);
    assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &other), Ok(()));
}

#[test]
fn adopted_and_own_time_waits_expire_independently() {
    let mut config = config();
    config.tcp.time_wait = Duration::from_secs(10);
    let mut world = World::new(config);
    // In no order, and beside one that is restarted at 5 s.
    for (port, left_ms) in [(1, 9_000), (2, 3_000), (3, 6_000), (4, 7_000)] {
        let remote = SocketAddr::from((PEER, port));
        let image = TimeWaitImage {
            remote,
            left_ms,
            ..image()
        };
        assert_eq!(world.stack.tcp_adopt_time_wait(world.now, &image), Ok(()));
    }
    let mut sizes = alloc::vec::Vec::new();
    for second in 1..=11 {
        world.sleep(SECOND);
        if second == 5 {
            let ends = (4, PORT);
            world.deliver(ends, (1, 1), FIN | ACK, &[], &[]);
            world.clear();
        }
        sizes.push(world.stack.tcp_sizes().time_wait);
    }
    assert_eq!(sizes, [4, 4, 3, 3, 3, 2, 2, 2, 1, 1, 1]);
    world.sleep(7 * SECOND);
    assert_eq!(world.stack.tcp_sizes().time_wait, 0);
}

proptest! {
    #[test]
    fn arbitrary_images_are_refused_or_end_in_time(
        ends in any::<((u32, u16), (u32, u16))>(),
        v6 in any::<Option<(u128, u128)>>(),
        numbers in any::<(u32, u32, u16, Option<(u32, u32)>, u32)>(),
        is_ours in any::<bool>(),
    ) {
        let ((local, local_port), (remote, remote_port)) = ends;
        let (snd_nxt, rcv_nxt, window, stamps, left_ms) = numbers;
        let v4 = |bits: u32| IpAddr::V4(bits.into());
        let (local, remote) = match v6 {
            Some((local, remote)) => {
                (IpAddr::V6(Ipv6Addr::from_bits(local)), IpAddr::V6(Ipv6Addr::from_bits(remote)))
            }
            None if is_ours => (OURS.into(), v4(0x0a00_0000 | remote & 0xff)),
            None => (v4(local), v4(remote)),
        };
        let image = TimeWaitImage {
            local: SocketAddr::new(local, local_port),
            remote: SocketAddr::new(remote, remote_port),
            snd_nxt,
            rcv_nxt,
            window,
            stamps,
            left_ms,
        };
        let mut world = World::new(config());
        let adopted = world.stack.tcp_adopt_time_wait(world.now, &image);
        prop_assert_eq!(world.stack.tcp_sizes().time_wait, usize::from(adopted.is_ok()));
        world.peer(FIN | ACK, b"x");
        world.sleep(121 * SECOND);
        prop_assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 0));
    }
}
