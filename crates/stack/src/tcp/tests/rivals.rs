//! Connections and handshakes that move to a stack which has already received a SYN of their peer.

use super::harness::*;
use super::moving::other_with_listener;
use crate::tcp::ConnectionImage;
use crate::{Event, HalfOpenImage, SocketError, StackConfig, TimeWaitImage};
use slipstack_wire::tcp_options::TcpOptions;

/// Numbers of the peer's port and ours.
const PORTS: (u16, u16) = (PEER_PORT, PORT);

/// Another engine of the address of an established connection, on which a SYN of its peer has
/// opened half.
fn with_handshake(world: &World, irs: u32) -> (World, u32) {
    let mut other = other_with_listener(world);
    other.inject(PORTS, irs, 0, SYN, &TcpOptions::default(), &[]);
    let answer = other.only();
    assert!(answer.is(SYN | ACK));
    assert_eq!(other.stack.tcp_sizes(), sizes(0, 1, 0));
    (other.seq, other.ack) = (world.seq, world.ack);
    (other, answer.header.seq)
}

fn detached(world: &mut World) -> ConnectionImage {
    world.stack.tcp_detach(world.conn.unwrap()).unwrap()
}

/// Returns the result of adopting an image.
fn adopt(other: &mut World, image: &ConnectionImage) -> Result<(), SocketError> {
    let adopted = other.stack.tcp_adopt(other.now, image, &mut other.fx);
    other.conn = adopted.as_ref().ok().copied();
    adopted.map(|_| ())
}

#[test]
fn a_moved_in_connection_replaces_a_handshake_begun_by_a_copy_of_its_syn() {
    let mut world = established();
    let image = detached(&mut world);
    let (mut other, _) = with_handshake(&world, ISS);
    assert_eq!(adopt(&mut other, &image), Ok(()));
    other.flush();
    // The peer has one connection: only its ACK is sent.
    assert!(other.only().is(ACK));
    assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0));
    other.peer(ACK, b"hello");
    let conn = other.conn.unwrap();
    assert!(other.has(Event::Received { conn, upto: 5 }));
    other.sleep(5 * SECOND);
    assert!(!other.take_sent().iter().any(|sent| sent.is(SYN | ACK)));
}

#[test]
fn a_peers_segments_are_not_reset_after_a_duplicate_of_its_syn() {
    let mut world = established();
    let _ = detached(&mut world);
    for is_predicted in [false, true] {
        let (mut other, iss) = with_handshake(&world, ISS);
        other.is_burst = is_predicted;
        // Its challenge ACK to the second SYN-ACK, its data, its later segments.
        let mut say = |others, ahead, payload: &[u8]| {
            other.fx.others = others;
            other.peer_at(ahead, ACK, payload);
            if is_predicted {
                other.end_burst();
            }
            (other.fx.others, other.take_sent())
        };
        for (ahead, payload) in [(0, &b""[..]), (0, b"data"), (200_000, b"later")] {
            let (left, answers) = say(Some(0), ahead, payload);
            assert!(left == Some(1) && answers.is_empty(), "{answers:?}");
        }
        // Without another engine it is answered as usual (RFC 9293 3.10.7.4, fifth).
        let (_, answers) = say(None, 0, b"data");
        assert!(answers.iter().all(|sent| sent.is(RST)) && answers.len() == 1);
        // The handshake itself is open still.
        assert_eq!(other.stack.tcp_sizes(), sizes(0, 1, 0));
        other.ack = iss.wrapping_add(1);
        other.is_burst = false;
        other.fx.others = Some(0);
        other.peer(ACK, b"hello");
        assert_eq!(
            (other.fx.others, other.stack.tcp_sizes()),
            (Some(0), sizes(1, 0, 0))
        );
    }
}

#[test]
fn a_handshake_that_gives_way_to_an_open_connection_is_reset() {
    for later in [ISS.wrapping_add(500_000), ISS.wrapping_sub(500_000)] {
        let mut world = established();
        let image = detached(&mut world);
        let (mut other, iss) = with_handshake(&world, later);
        assert_eq!(adopt(&mut other, &image), Ok(()));
        let reset = other.only();
        assert!(reset.is(RST | ACK));
        let numbers = (reset.header.seq, reset.header.ack);
        assert_eq!(numbers, (iss.wrapping_add(1), later.wrapping_add(1)));
        other.flush();
        // RFC 5961 4.2: the challenge, which a peer that knows nothing of the connection answers
        // with a reset.
        assert!(other.only().is(ACK));
        assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0));
        other.peer(RST, &[]);
        assert_eq!(other.failed(), Some(crate::Reason::Reset));
    }
}

#[test]
fn an_image_replaces_the_time_wait_of_an_earlier_connection_and_not_its_own() {
    let mut world = established();
    let (now, conn) = (world.now, world.conn.unwrap());
    let image = world.stack.tcp_image(conn).unwrap();
    let mode = crate::CloseMode::Orderly;
    world.stack.tcp_close(now, conn, mode, false, &mut world.fx);
    world.flush();
    world.take_sent();
    world.ack = world.ack.wrapping_add(1);
    world.peer(FIN | ACK, &[]);
    assert_eq!(world.stack.tcp_sizes(), sizes(0, 0, 1));
    assert_eq!(adopt(&mut world, &image), Err(SocketError::FlowExists));
    let ended = world.stack.tcp_time_waits(world.now, 1).remove(0);
    // Images that are earlier in one direction alone, and one with numbers of another connection.
    let before = |number: u32| number.wrapping_sub(1000);
    for (received, sent) in [
        (before(ended.rcv_nxt), ended.snd_nxt),
        (ended.rcv_nxt, before(ended.snd_nxt)),
        (ended.rcv_nxt.wrapping_add(1 << 27), ended.snd_nxt),
    ] {
        let mut other = other_with_listener(&world);
        let earlier = TimeWaitImage {
            rcv_nxt: received,
            snd_nxt: sent,
            ..ended.clone()
        };
        assert_eq!(other.stack.tcp_adopt_time_wait(other.now, &earlier), Ok(()));
        assert_eq!(adopt(&mut other, &image), Ok(()));
        assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0));
    }
}

/// The peer has ended first, and we have; `unacked` of our bytes and our FIN are on their way.
fn in_last_ack(unacked: u64) -> (World, ConnectionImage) {
    let mut world = established();
    if unacked > 0 {
        world.write(unacked);
    }
    world.peer(FIN | ACK, &[]);
    let (now, conn) = (world.now, world.conn.unwrap());
    let mode = crate::CloseMode::Orderly;
    world.stack.tcp_close(now, conn, mode, false, &mut world.fx);
    world.flush();
    let image = detached(&mut world);
    (world, image)
}

#[test]
fn a_connection_in_last_ack_gives_way_to_a_later_handshake() {
    let (world, image) = in_last_ack(0);
    let later = world.seq.wrapping_add(1000);
    let (mut other, iss) = with_handshake(&world, later);
    assert_eq!(adopt(&mut other, &image), Err(SocketError::FlowExists));
    other.stack.tcp_refuse(other.now, &image, &mut other.fx);
    other.none();
    (other.seq, other.ack) = (later.wrapping_add(1), iss.wrapping_add(1));
    other.peer(ACK, b"next");
    assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0));
    // Bytes that have not arrived are not given up for a SYN, nor is anything for one of long ago.
    let (_, with_bytes) = in_last_ack(100);
    let older = world.seq.wrapping_sub(1000);
    for (image, irs) in [(&with_bytes, later), (&image, older)] {
        let (mut other, _) = with_handshake(&world, irs);
        assert_eq!(adopt(&mut other, image), Ok(()));
        assert!(other.only().is(RST | ACK));
    }
}

#[test]
fn the_peer_of_a_connection_that_cannot_be_adopted_is_reset() {
    let mut world = established();
    let image = detached(&mut world);
    let mut small = config();
    small.tcp.conns_max = 1;
    let mut other = World::new(small);
    other.now = world.now;
    other.listen();
    other.inject((1000, PORT), ISS, 0, SYN, &TcpOptions::default(), &[]);
    let ack = other.only().header.seq.wrapping_add(1);
    other.inject((1000, PORT), ISS + 1, ack, ACK, &TcpOptions::default(), &[]);
    assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0));
    other.take_sent();
    assert_eq!(adopt(&mut other, &image), Err(SocketError::LimitReached));
    other.stack.tcp_refuse(other.now, &image, &mut other.fx);
    let reset = other.only();
    assert!(reset.is(RST | ACK) && reset.header.dst_port == PEER_PORT);
    assert_eq!((reset.header.seq, reset.header.ack), (world.ack, world.seq));
    // The ends of one that lives here are not touched.
    let image = other.stack.tcp_image(accepted(&other)).unwrap();
    other.stack.tcp_refuse(other.now, &image, &mut other.fx);
    other.none();
}

fn accepted(world: &World) -> crate::ConnId {
    let mut events = world.fx.events.iter();
    let conn = events.find_map(|event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    conn.expect("accepted")
}

/// An engine that has answered a SYN, the handshake, which leaves it, and the number of the answer.
fn answered(config: StackConfig) -> (World, HalfOpenImage, u32) {
    let mut world = World::new(config);
    let listener = world.listen();
    world.inject(PORTS, ISS, 0, SYN, &TcpOptions::default(), &[]);
    let number = world.only().header.seq;
    let image = world.stack.tcp_detach_half_open(listener).remove(0);
    (world, image, number)
}

#[test]
fn either_of_two_syn_acks_to_one_syn_opens_the_connection() {
    for late in [10 * MS, 990 * MS, 1_500 * MS] {
        for (takes_first, moves_on) in [(true, false), (false, false), (true, true), (false, true)]
        {
            let (mut world, image, first) = answered(config());
            world.now.0 += late;
            let (mut other, second) = with_handshake(&world, ISS);
            let adopted = other.stack.tcp_adopt_half_open(other.now, &image);
            assert_eq!(adopted, Ok(()));
            if moves_on {
                let images = other.stack.tcp_detach_half_open(other.listener.unwrap());
                other = other_with_listener(&world);
                let adopted = other.stack.tcp_adopt_half_open(other.now, &images[0]);
                assert_eq!(adopted, Ok(()));
            }
            assert_eq!(other.stack.tcp_sizes(), sizes(0, 1, 0));
            let taken = if takes_first { first } else { second };
            (other.seq, other.ack) = (ISS + 1, taken.wrapping_add(1));
            other.peer(ACK, b"hello");
            assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0), "{late}");
            other.sleep(SECOND);
            assert_eq!(other.only().header.seq, taken.wrapping_add(1));
        }
    }
}

#[test]
fn a_third_syn_ack_to_one_syn_is_not_kept() {
    let (mut world, first, _) = answered(config());
    world.now.0 += SECOND;
    let (mut other, _) = with_handshake(&world, ISS);
    other.stack.tcp_adopt_half_open(other.now, &first).unwrap();
    world.inject(PORTS, ISS, 0, SYN, &TcpOptions::default(), &[]);
    let listener = world.listener.unwrap();
    let third = world.stack.tcp_detach_half_open(listener);
    let adopted = other.stack.tcp_adopt_half_open(other.now, &third[0]);
    assert_eq!(adopted, Err(SocketError::FlowExists));
}

#[test]
fn the_earlier_of_two_different_syn_acks_wins() {
    // (how late the second one was given, whether the first one still counts)
    for (late, is_first) in [(10 * MS, true), (990 * MS, false), (1_500 * MS, false)] {
        let mtu = 1_400;
        let (mut world, image, first) = answered({
            let mut config = config();
            config.network_mut().own_mut().mtu = mtu;
            config
        });
        world.now.0 += late;
        let (mut other, second) = with_handshake(&world, ISS);
        let adopted = other.stack.tcp_adopt_half_open(other.now, &image);
        assert_eq!(adopted.is_ok(), is_first);
        assert_eq!(other.stack.tcp_sizes(), sizes(0, 1, 0));
        let taken = if is_first { first } else { second };
        (other.seq, other.ack) = (ISS + 1, taken.wrapping_add(1));
        other.peer(ACK, b"hello");
        assert_eq!(other.stack.tcp_sizes(), sizes(1, 0, 0), "{late}");
    }
}
