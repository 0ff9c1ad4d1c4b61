//! RFC 3168: negotiation, marking, and the reaction to a mark.
//!
//! RFC 3168 6.1.1, 6.1.2, 6.1.3, 6.1.5 and 6.1.6.

use super::harness::*;
use crate::config::EcnMode;
use crate::{Congestion, ConnId, SocketOptions};
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;
const ECT0: u8 = 2;
const CE: u8 = 3;

fn offer() -> TcpOptions {
    TcpOptions {
        mss: Some(1000),
        sack_permitted: true,
        ..TcpOptions::default()
    }
}

fn world_of(mode: EcnMode, congestion: Congestion) -> World {
    let mut config = config();
    config.tcp.ecn = mode;
    config.tcp.congestion = congestion;
    World::new(config)
}

/// A passive open by a peer whose SYN has `flags`; returns the SYN-ACK's flags.
fn syn_ack(world: &mut World, flags: TcpFlags) -> TcpFlags {
    syn_ack_to(world, flags, &offer())
}

fn syn_ack_to(world: &mut World, flags: TcpFlags, offer: &TcpOptions) -> TcpFlags {
    world.listen();
    let seq = world.seq;
    world.inject((PEER_PORT, PORT), seq, 0, SYN | flags, offer, &[]);
    let answer = world.only();
    world.seq = seq.wrapping_add(1);
    world.ack = answer.header.seq.wrapping_add(1);
    world.stamps = answer.options.timestamps.map(|t| Timestamps {
        value: t.echo + 10,
        echo: t.value,
    });
    answer.header.flags
}

fn established_with_ecn(congestion: Congestion) -> World {
    established_with(congestion, &offer())
}

fn established_with(congestion: Congestion, offer: &TcpOptions) -> World {
    let mut world = world_of(EcnMode::Passive, congestion);
    let flags = syn_ack_to(&mut world, ECE | CWR, offer);
    assert!(flags.contains(ECE));
    world.now.0 += 10 * MS;
    world.peer(ACK, &[]);
    let accepted = world.fx.events.iter().find_map(|event| match event {
        crate::Event::Accepted { conn, .. } => Some(*conn),
        _ => None,
    });
    world.conn = accepted;
    world.flush();
    world.clear();
    world
}

fn connect(world: &mut World) -> ConnId {
    let options = SocketOptions::default();
    let Ok(conn) = world
        .stack
        .tcp_connect(world.now, None, peer(), &options, &mut world.fx)
    else {
        panic!("no connection");
    };
    conn
}

fn info(world: &World) -> crate::TcpInfo {
    world
        .stack
        .tcp_info(world.now, world.conn.unwrap())
        .unwrap()
}

#[test]
fn a_listener_accepts_the_requested_ecn_mode() {
    use Congestion::{Cubic, Dctcp};
    use EcnMode::{Off, On, Passive};
    // (mode, algorithm, flags of the SYN, TOS of the SYN) → ECE in the SYN-ACK.
    let table = [
        (Passive, Cubic, ECE | CWR, 0, true),
        (On, Cubic, ECE | CWR, 0, true),
        (Off, Cubic, ECE | CWR, 0, false),
        (Off, Dctcp, ECE | CWR, 0, true),
        (Passive, Cubic, ECE, 0, false),
        (Passive, Cubic, CWR, 0, false),
        (Passive, Cubic, TcpFlags::NONE, 0, false),
        (Passive, Cubic, ECE | CWR, CE, false),
    ];
    for (mode, congestion, flags, tos, agrees) in table {
        let mut world = world_of(mode, congestion);
        world.tos = tos;
        let answer = syn_ack(&mut world, flags);
        assert_eq!(
            answer.contains(ECE),
            agrees,
            "{mode:?} {congestion:?} {flags:?}"
        );
        assert!(!answer.contains(CWR));
    }
}

#[test]
fn a_syn_that_is_repeated_without_ecn_is_answered_without() {
    // RFC 3168 6.1.1.1.
    let mut world = world_of(EcnMode::Passive, Congestion::Cubic);
    syn_ack(&mut world, ECE | CWR);
    let seq = world.seq.wrapping_sub(1);
    world.inject((PEER_PORT, PORT), seq, 0, SYN, &offer(), &[]);
    assert!(!world.only().is(ECE));
}

#[test]
fn an_active_open_offers_ecn_only_if_configured() {
    use Congestion::{Cubic, Dctcp};
    let table = [
        (EcnMode::Off, Cubic, false),
        (EcnMode::Passive, Cubic, false),
        (EcnMode::On, Cubic, true),
        (EcnMode::Off, Dctcp, true),
    ];
    for (mode, congestion, asks) in table {
        let mut world = world_of(mode, congestion);
        connect(&mut world);
        let syn = world.only();
        assert_eq!(syn.is(ECE | CWR), asks, "{mode:?} {congestion:?}");
        assert_eq!(syn.tos & 3, 0);
    }
}

#[test]
fn a_lost_syn_is_repeated_without_ecn() {
    // RFC 3168 6.1.1.1.
    let mut world = world_of(EcnMode::On, Congestion::Cubic);
    connect(&mut world);
    assert!(world.only().is(ECE | CWR));
    world.sleep(1_100 * MS);
    let again = world.only();
    assert!(again.is(SYN) && !again.header.flags.intersects(ECE | CWR));
}

#[test]
fn only_new_data_is_ecn_capable() {
    // RFC 3168 6.1.4 and 6.1.5.
    let mut world = established_with_ecn(Congestion::Cubic);
    world.write(3_000);
    assert!(world.take_sent().iter().all(|s| s.tos & 3 == ECT0));
    world.peer(ACK, &[7; 2000]);
    world.flush();
    // The ACK alone, then the probe and the retransmission.
    world.sleep(2 * SECOND);
    let rest = world.take_sent();
    assert!(rest.len() >= 2 && rest.iter().any(|s| s.len() > 0));
    assert!(rest.iter().all(|s| s.tos & 3 == 0), "{rest:?}");
}

#[test]
fn a_mark_is_echoed_until_the_window_is_reduced() {
    let mut world = established_with_ecn(Congestion::Cubic);
    world.tos = CE;
    world.peer(ACK, &[1; 1000]);
    world.flush();
    assert!(world.only().is(ECE));
    world.tos = ECT0;
    for _ in 0..3 {
        world.peer(ACK, &[1; 1000]);
        world.flush();
        world.sleep(50 * MS);
        assert!(world.take_sent().iter().all(|s| s.is(ECE)));
    }
    world.peer(ACK | CWR, &[1; 1000]);
    world.sleep(50 * MS);
    let sent = world.take_sent();
    assert!(!sent.is_empty() && sent.iter().all(|s| !s.is(ECE)));
}

#[test]
fn an_echo_halves_the_window_once_a_round_trip_and_cwr_says_so() {
    let mut world = established_with_ecn(Congestion::NewReno);
    world.write(100_000);
    let first = world.take_sent();
    assert!(first.iter().all(|s| !s.is(CWR)));
    world.now.0 += 10 * MS;
    for _ in 0..4 {
        world.ack = world.ack.wrapping_add(1_000);
        world.peer(ACK | ECE, &[]);
        world.flush();
    }
    assert_eq!((info(&world).ca_state, info(&world).snd_ssthresh), (2, 5));
    world.ack = world.ack.wrapping_add(4_000);
    world.peer(ACK | ECE, &[]);
    world.flush();
    let next = world.take_sent();
    assert!(next[0].is(CWR), "{next:?}");
    assert!(next[1..].iter().all(|s| !s.is(CWR)));
    assert_eq!(info(&world).snd_ssthresh, 5);
    assert_eq!(info(&world).total_retrans, 0);
}

#[test]
fn an_ece_halves_the_acknowledged_bytes() {
    let mut world = established_with_ecn(Congestion::NewReno);
    world.write(10_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    world.ack = world.ack.wrapping_add(10_000);
    world.peer(ACK | ECE, &[]);
    world.flush();
    assert_eq!((info(&world).ca_state, info(&world).snd_ssthresh), (2, 5));
}

#[test]
fn a_mark_of_a_segment_with_an_unknown_acknowledgment_is_not_echoed() {
    let mut world = established_with_ecn(Congestion::Cubic);
    let ack = world.ack;
    world.ack = ack.wrapping_add(1 << 30);
    world.tos = CE;
    world.peer_at(0, ACK, &[1; 1000]);
    world.flush();
    (world.ack, world.tos) = (ack, ECT0);
    world.peer(ACK, &[1; 1000]);
    world.sleep(100 * MS);
    assert!(world.take_sent().iter().all(|s| !s.is(ECE)));
}

#[test]
fn ece_without_ecn_is_ignored() {
    let mut world = established();
    world.write(100_000);
    world.take_sent();
    world.now.0 += 10 * MS;
    world.ack = world.ack.wrapping_add(1_000);
    world.peer(ACK | ECE, &[]);
    world.flush();
    assert_eq!(info(&world).ca_state, 0);
    assert!(world.take_sent().iter().all(|s| s.tos & 3 == 0));
}

#[test]
fn a_dctcp_receiver_reports_each_change_of_marks_at_once() {
    let mut world = established_with_ecn(Congestion::Dctcp);
    // Quick ACKs are over: two segments an ACK.
    for _ in 0..20 {
        world.peer(ACK, &[1; 1000]);
        world.flush();
    }
    world.sleep(100 * MS);
    world.take_sent();
    world.tos = ECT0;
    world.peer(ACK, &[1; 1000]);
    world.flush();
    world.tos = CE;
    world.peer(ACK, &[1; 1000]);
    let at_change = world.take_sent();
    world.flush();
    let later = world.take_sent();
    // RFC 8257 3.2: data before the mark is acknowledged without ECE, marked data with it, both at
    // once.
    assert_eq!(
        at_change
            .iter()
            .map(|s| s.is(ECE))
            .collect::<alloc::vec::Vec<_>>(),
        [false]
    );
    assert!(!later.is_empty() && later.iter().all(|s| s.is(ECE)));
    world.tos = ECT0;
    world.peer(ACK, &[1; 1000]);
    world.flush();
    assert!(!world.take_sent().last().unwrap().is(ECE));
}

#[test]
fn a_spurious_timeout_after_a_mark_is_taken_back() {
    let mut world = established_with_ecn(Congestion::NewReno);
    world.write(10_000);
    world.ack = world.ack.wrapping_add(1_000);
    world.peer(ACK | ECE, &[]);
    world.flush();
    assert_eq!(info(&world).ca_state, 2);
    while info(&world).ca_state != 4 {
        world.sleep(20 * MS);
    }
    let mut options = TcpOptions::default();
    let start = world.ack.wrapping_add(3_000);
    options.sack.push(start, start.wrapping_add(1_000));
    world.peer_with(0, ACK, &[], options);
    let after = info(&world);
    assert_eq!((after.ca_state, after.lost), (0, 0));
    // The reduction for the mark is not undone.
    assert_eq!(after.snd_ssthresh, 5);
}

#[test]
fn new_data_after_a_timeout_carries_cwr() {
    let mut world = established_with_ecn(Congestion::NewReno);
    world.write(5_000);
    world.sleep(SECOND);
    assert_eq!(info(&world).ca_state, 4);
    assert!(world.take_sent().iter().all(|s| !s.is(CWR)));
    world.ack = world.ack.wrapping_add(5_000);
    world.peer(ACK, &[]);
    world.write(10_000);
    let next = world.take_sent();
    assert!(next[0].is(CWR), "{next:?}");
    assert!(next[1..].iter().all(|s| !s.is(CWR)));
}

#[test]
fn an_old_timestamp_echo_does_not_undo_the_reduction_of_a_mark() {
    // RFC 3168 6.1.2: a router's mark stands, whatever was retransmitted needlessly before it.
    let offer = TcpOptions {
        mss: Some(1_012),
        timestamps: Some(Timestamps { value: 77, echo: 0 }),
        ..offer()
    };
    let mut world = established_with(Congestion::NewReno, &offer);
    world.write(10_000);
    let first = world.take_sent()[0].options.timestamps.unwrap().value;
    world.now.0 += 10 * MS;
    // The last three were quicker than all the others.
    let mut options = TcpOptions {
        timestamps: world.stamps,
        ..TcpOptions::default()
    };
    let place = |at: u32| world.ack.wrapping_add(at);
    options.sack.push(place(7_000), place(10_000));
    world.peer_with(0, ACK, &[], options);
    world.flush();
    assert_eq!(info(&world).ca_state, 3);
    assert!(world.take_sent().len() > 1);
    world.stamps = world.stamps.map(|t| Timestamps { echo: first, ..t });
    world.acknowledge(1_000);
    assert_eq!((info(&world).ca_state, info(&world).snd_cwnd), (0, 10));
    for n in 0..2 {
        world.ack = world.ack.wrapping_add(500);
        world.peer(ACK | ECE, &[]);
        assert_eq!(info(&world).ca_state, 2, "{n}");
    }
    assert!(info(&world).snd_cwnd < 10);
}

#[test]
fn the_first_loss_after_a_mark_is_repaired_at_once_without_sack() {
    // RFC 6582 3.2 step 1 requires an earlier recovery; a mark retransmits nothing.
    let offer = TcpOptions {
        sack_permitted: false,
        ..offer()
    };
    let mut world = established_with(Congestion::NewReno, &offer);
    world.write(10_000);
    world.now.0 += 10 * MS;
    world.ack = world.ack.wrapping_add(1_000);
    world.peer(ACK | ECE, &[]);
    assert_eq!(info(&world).ca_state, 2);
    world.acknowledge(9_000);
    world.flush();
    assert_eq!(info(&world).ca_state, 0);
    world.take_sent();
    world.write(15_000);
    assert_eq!(world.take_sent().len(), 5);
    world.now.0 += 10 * MS;
    for _ in 0..3 {
        world.peer(ACK, &[]);
    }
    world.flush();
    assert_eq!(world.take_sent()[0].data, Some((10_000, 1_000)));
}

#[test]
fn window_probes_are_not_ecn_capable() {
    // RFC 3168 6.1.6.
    let mut world = established_with_ecn(Congestion::Cubic);
    world.window = 0;
    world.peer(ACK, &[]);
    world.write(100);
    world.none();
    world.sleep(5 * SECOND);
    let probes = world.take_sent();
    assert!(probes.len() > 1, "{}", probes.len());
    assert!(probes.iter().all(|probe| probe.tos & CE == 0));
}
