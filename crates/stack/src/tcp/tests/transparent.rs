//! Connections from addresses that are not ours (IP_TRANSPARENT).

use core::net::{Ipv4Addr, SocketAddr};

use slipstack_wire::tcp_options::TcpOptions;

use super::harness::*;
use crate::{Counter, SocketError, SocketOptions};

const STRANGE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

fn connect(world: &mut World, is_transparent: bool) -> Result<(), SocketError> {
    let options = SocketOptions {
        is_transparent,
        ..SocketOptions::default()
    };
    let local = SocketAddr::from((STRANGE, PORT));
    let World { stack, fx, now, .. } = world;
    let conn = stack.tcp_connect(*now, Some(local), peer(), &options, fx)?;
    world.conn = Some(conn);
    Ok(())
}

#[test]
fn a_foreign_source_address_needs_a_transparent_socket() {
    let mut world = World::new(config());
    let refused = connect(&mut world, false);
    assert_eq!(refused, Err(SocketError::AddrNotAvailable));
    assert_eq!(connect(&mut world, true), Ok(()));
    assert!(world.only().is(SYN));
}

#[test]
fn answers_to_a_foreign_address_reach_a_transparent_socket() {
    let mut world = World::new(config());
    connect(&mut world, true).unwrap();
    let syn = world.only();
    world.to = STRANGE;
    let ack = syn.header.seq.wrapping_add(1);
    let none = TcpOptions::default();
    // From another port of the peer, and to another one here.
    for ports in [(PEER_PORT + 1, PORT), (PEER_PORT, PORT + 1)] {
        world.inject(ports, ISS, ack, SYN | ACK, &none, &[]);
        world.none();
    }
    let strange = world.stack.counters().value(Counter::DropIpv4NotOurs);
    assert_eq!(strange, 2);
    world.inject((PEER_PORT, PORT), ISS, ack, SYN | ACK, &none, &[]);
    let answer = world.only();
    assert_eq!((answer.header.ack, answer.is(SYN)), (ISS + 1, false));
    // A SYN opens nothing, whoever listens.
    world.listen();
    world.inject((PEER_PORT + 1, PORT), ISS, 0, SYN, &none, &[]);
    world.none();
}
