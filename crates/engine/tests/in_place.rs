//! Bytes read and written where they lie in the rings.

mod pair;

use std::net::SocketAddr;

use pair::{World, bind, sent_to};
use slipstack_channel::SockId;

fn copy_of(world: &World, host: usize, sock: SockId) -> Vec<u8> {
    let pieces = world.hosts[host].program.peek_in_place(sock);
    let mut bytes = vec![0; pieces[0].len() + pieces[1].len()];
    let (first, second) = bytes.split_at_mut(pieces[0].len());
    pieces[0].copy_to(first);
    pieces[1].copy_to(second);
    bytes
}

/// Puts bytes into the send ring by reserve and commit; returns how many.
fn put(world: &World, host: usize, sock: SockId, bytes: &[u8]) -> usize {
    let program = &world.hosts[host].program;
    let [first, second] = program.reserve(sock, bytes.len());
    let room = first.len() + second.len();
    let (head, tail) = bytes[..room].split_at(first.len());
    first.copy_from(head);
    second.copy_from(tail);
    program.commit(sock, room, false);
    room
}

#[test]
fn bytes_pass_through_both_rings_in_place_also_where_they_wrap() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let text: Vec<u8> = (0..100_000u32).map(|at| (at % 249) as u8).collect();
    let (mut sent, mut got, mut has_wrapped) = (0, Vec::new(), false);
    for _ in 0..10_000 {
        // Odd sizes, so that pieces wrap at the end of the ring.
        let upto = text.len().min(sent + 1_237);
        sent += put(&world, 0, client, &text[sent..upto]);
        world.step();
        let pieces = world.hosts[1].program.peek_in_place(server);
        has_wrapped |= !pieces[1].is_empty();
        let bytes = copy_of(&world, 1, server);
        let taken = bytes.len().min(1_001);
        assert_eq!(world.hosts[1].program.consume(server, taken), taken);
        got.extend_from_slice(&bytes[..taken]);
        if got.len() == text.len() {
            break;
        }
    }
    assert!(got == text);
    assert!(has_wrapped);
}

#[test]
fn a_full_buffer_reserves_nothing_and_a_commit_sends_no_more_than_fits() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, _server) = world.connect(listener, 80);
    let mut sent = 0;
    while let taken @ 1.. = put(&world, 0, client, &[1; 50_000]) {
        sent += taken;
        assert!(sent < 64 << 20);
    }
    world.hosts[0].program.commit(client, 1 << 30, false);
    let unacked = world.hosts[0].program.tx_unacked(client);
    assert!(unacked <= sent.next_power_of_two(), "{unacked} of {sent}");
}

#[test]
fn datagrams_are_looked_at_in_place_and_taken_one_by_one() {
    let mut world = World::new();
    let server = bind(&mut world, 1, 53);
    let client = bind(&mut world, 0, 4000);
    let peer = SocketAddr::new(world.hosts[1].addr.into(), 53);
    for text in [&b"one"[..], b"", b"three"] {
        let bufs = [std::io::IoSlice::new(text)];
        let sent = world.hosts[0]
            .program
            .udp_send(client, &sent_to(peer), &bufs);
        assert_eq!(sent, Ok(text.len()));
    }
    world.settle(0);
    let program = &world.hosts[1].program;
    for text in [&b"one"[..], b"", b"three"] {
        let datagram = program.datagram_in_place(server).unwrap();
        assert_eq!(datagram.envelope.local, Some(peer));
        let mut bytes = [0; 8];
        let len = datagram.payload[0].copy_to(&mut bytes);
        assert_eq!(&bytes[..len], text);
        let end = datagram.end();
        program.consume_datagram(server, end);
        // Consumed once, however often it is called.
        program.consume_datagram(server, end);
    }
    assert!(program.datagram_in_place(server).is_none());
}
