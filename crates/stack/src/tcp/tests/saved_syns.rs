//! Headers of SYNs that are kept for the program (TCP_SAVE_SYN).

use alloc::vec::Vec;

use slipstack_wire::tcp_options::TcpOptions;

use super::harness::*;
use crate::{Event, ListenOptions, SocketOption, SocketOptions, StackConfig, SynCookies};

fn offer() -> TcpOptions {
    TcpOptions {
        mss: Some(1400),
        sack_permitted: true,
        ..TcpOptions::default()
    }
}

/// Returns a listener whose option is set before or after it listens, or not at all.
fn listening(config: StackConfig, saves: Option<bool>) -> World {
    let mut world = World::new(config);
    let mut socket = SocketOptions::default();
    if saves == Some(false) {
        socket.set(SocketOption::SaveSyn(true));
    }
    let listener = world.listen_with(ListenOptions {
        socket: socket.clone(),
        ..ListenOptions::default()
    });
    if saves == Some(true) {
        socket.set(SocketOption::SaveSyn(true));
        world.stack.tcp_set_preset(listener, socket).unwrap();
    }
    world
}

/// Opens a connection by a SYN that is repeated with another hop limit, and takes what was saved.
fn saved(world: &mut World) -> Option<Vec<u8>> {
    for ttl in [33, 44] {
        world.ttl = ttl;
        world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer(), &[]);
    }
    let ack = world.take_sent()[0].header.seq.wrapping_add(1);
    let none = TcpOptions::default();
    world.inject((PEER_PORT, PORT), ISS + 1, ack, ACK, &none, b"text");
    let conn = world.fx.events.iter().find_map(|event| match event {
        Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    let conn = conn.expect("a connection");
    let taken = world.stack.tcp_take_saved_syn(conn);
    assert_eq!(world.stack.tcp_take_saved_syn(conn), None);
    taken.map(|syn| syn.bytes().to_vec())
}

#[test]
fn the_headers_of_a_connection_s_first_syn_are_taken_once() {
    for is_late in [false, true] {
        let mut world = listening(config(), Some(is_late));
        let bytes = saved(&mut world).expect("headers");
        let mut options = [0; 40];
        let options_len = offer().emit(&mut options);
        assert_eq!(bytes.len(), 40 + options_len);
        assert_eq!((bytes[0], bytes[8], bytes[9]), (0x45, 33, 6));
        assert_eq!(bytes[12..20], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(bytes[20..22], PEER_PORT.to_be_bytes());
        assert_eq!(bytes[24..28], ISS.to_be_bytes());
        assert_eq!(bytes[40..], options[..options_len]);
    }
}

#[test]
fn nothing_is_saved_unasked_or_of_a_syn_that_was_answered_with_a_cookie() {
    assert_eq!(saved(&mut listening(config(), None)), None);
    let mut config = config();
    config.tcp.syn_cookies = SynCookies::Always;
    assert_eq!(saved(&mut listening(config, Some(true))), None);
}

#[test]
fn headers_of_handshakes_that_have_ended_are_dropped_in_time() {
    let mut world = listening(config(), Some(true));
    let mut longest = 0;
    for port in 1_000..3_000 {
        world.inject((port, PORT), ISS, 0, SYN, &offer(), &[]);
        longest = longest.max(world.stack.tcp.saved_syns_len());
        world.inject((port, PORT), ISS + 1, 0, RST, &TcpOptions::default(), &[]);
    }
    assert!((1..=256).contains(&longest), "{longest}");
}
