//! IP_MTU_DISCOVER of connections: DF, and errors of routers about the size (RFC 1191 3).

use alloc::vec::Vec;

use super::harness::*;
use super::moving::moved;
use crate::{CloseMode, MtuDiscovery, SocketOption, SocketOptions};
use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage};
use slipstack_wire::ipv4::Ipv4Header;
use slipstack_wire::protocol;
use slipstack_wire::tcp_options::TcpOptions;

const ROUTER_MTU: u16 = 800;

fn set(world: &mut World, way: MtuDiscovery) {
    let (now, conn) = (world.now, world.conn.unwrap());
    let option = SocketOption::MtuDiscovery(way);
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert_eq!(set, Ok(()));
}

fn has_df(way: MtuDiscovery) -> bool {
    matches!(way, MtuDiscovery::Want | MtuDiscovery::Do)
}

/// Writes a packet's header at the beginning of `room`.
fn put_ip(room: &mut [u8], len: usize, protocol: u8, is_own: bool) {
    Ipv4Header {
        tos: 0,
        total_len: len as u16,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        protocol,
        src: if is_own { OURS } else { PEER },
        dst: if is_own { PEER } else { OURS },
    }
    .emit(room);
}

/// A router reports that the segment with this sequence number was too large.
fn too_big(world: &mut World, seq: u32) {
    let mut quoted = [0; 28];
    put_ip(&mut quoted, 1040, protocol::TCP, true);
    quoted[20..22].copy_from_slice(&PORT.to_be_bytes());
    quoted[22..24].copy_from_slice(&PEER_PORT.to_be_bytes());
    quoted[24..28].copy_from_slice(&seq.to_be_bytes());
    let kind = IcmpKind::DestinationUnreachable {
        code: 4,
        mtu: ROUTER_MTU,
    };
    let message = IcmpMessage {
        kind,
        body: &quoted,
    };
    let mut frame = alloc::vec![0; 34];
    EthernetHeader {
        dst: world.stack.config().mac,
        src: [2, 0, 0, 0, 0, 2],
        ethertype: EtherType::IPV4,
    }
    .emit(&mut frame);
    let header = message.header();
    put_ip(
        &mut frame[14..],
        20 + header.len() + 28,
        protocol::ICMP,
        false,
    );
    frame.extend_from_slice(&header);
    frame.extend_from_slice(&quoted);
    let (now, meta) = (world.now, world.meta);
    world.stack.on_frame(now, &frame, meta, &mut world.fx);
    world.flush();
}

#[test]
fn segments_have_df_and_their_identifications_as_the_program_has_asked() {
    for (way, moves) in MtuDiscovery::ALL
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)])
    {
        let mut world = established();
        set(&mut world, way);
        if moves {
            world = moved(world);
        }
        // Data, an ACK alone, a repetition and a reset.
        world.write(100);
        world.peer(ACK, b"some");
        world.sleep(SECOND);
        let (now, conn) = (world.now, world.conn.unwrap());
        let abort = CloseMode::Abort;
        world
            .stack
            .tcp_close(now, conn, abort, false, &mut world.fx);
        let sent = world.take_sent();
        assert!(sent.len() >= 4, "{sent:?}");
        assert!(sent.iter().all(|it| it.dont_fragment == has_df(way)));
        let numbers: Vec<u16> = sent.iter().map(|it| it.identification).collect();
        let are_apart = numbers.windows(2).all(|it| it[0] != it[1]);
        assert_eq!(are_apart, !has_df(way), "{way:?} {numbers:?}");
    }
}

#[test]
fn the_segments_of_one_frame_have_identifications_of_their_own() {
    // The device counts on from that of the frame.
    let mut world = World::new(crate::StackConfig {
        tso_max: 60_000,
        ..config()
    });
    world.listen();
    world.accept(TcpOptions {
        mss: Some(1000),
        ..TcpOptions::default()
    });
    world.clear();
    set(&mut world, MtuDiscovery::Dont);
    world.write(5_000);
    let first = world.take_sent()[0].clone();
    let count = first.len().div_ceil(1000) as u16;
    assert!(count > 1 && first.offload.gso.is_some(), "{first:?}");
    world.acknowledge(5_000);
    world.take_sent();
    world.write(5_001);
    let next = world.only().identification;
    assert!(next.wrapping_sub(first.identification) >= count);
}

#[test]
fn a_syn_has_the_mark_of_its_socket_and_a_syn_ack_always() {
    for way in MtuDiscovery::ALL {
        let socket = SocketOptions {
            mtu_discovery: way,
            ..SocketOptions::default()
        };
        let mut world = World::new(config());
        let now = world.now;
        let asked = world
            .stack
            .tcp_connect(now, None, peer(), &socket, &mut world.fx);
        assert!(asked.is_ok());
        world.flush();
        assert_eq!(world.only().dont_fragment, has_df(way));
        let mut world = World::new(config());
        world.listen_with(crate::ListenOptions {
            socket,
            ..crate::ListenOptions::default()
        });
        let syn = (PEER_PORT + 1, PORT);
        world.inject(syn, ISS, 0, SYN, &TcpOptions::default(), &[]);
        world.flush();
        assert!(world.only().dont_fragment);
        // The connection has the listener's.
        world.accept(TcpOptions::default());
        world.clear();
        world.write(10);
        assert_eq!(world.only().dont_fragment, has_df(way));
    }
}

#[test]
fn a_smaller_path_mtu_counts_at_once_or_for_segments_to_come() {
    for way in MtuDiscovery::ALL {
        let mut world = established();
        set(&mut world, way);
        world.write(3_000);
        let sent = world.take_sent();
        too_big(&mut world, sent[0].header.seq);
        let is_at_once = matches!(
            way,
            MtuDiscovery::Want | MtuDiscovery::Do | MtuDiscovery::Probe
        );
        let repeated = world.take_sent();
        assert_eq!(!repeated.is_empty(), is_at_once, "{way:?}");
        world.acknowledge(3_000);
        world.take_sent();
        world.write(6_000);
        let mss = u32::from(ROUTER_MTU) - 40;
        let after = world.take_sent();
        assert!(!after.is_empty());
        assert!(after.iter().all(|it| it.len() <= mss), "{way:?} {after:?}");
    }
}

#[test]
fn a_mode_counts_from_the_next_segment_on() {
    let mut world = established();
    let ways = [MtuDiscovery::Dont, MtuDiscovery::Do, MtuDiscovery::Omit];
    for (at, way) in (1..).zip(ways) {
        set(&mut world, way);
        world.write(at * 10);
        assert_eq!(world.only().dont_fragment, has_df(way));
        world.acknowledge(10);
        world.sleep(MS);
        world.clear();
    }
}
