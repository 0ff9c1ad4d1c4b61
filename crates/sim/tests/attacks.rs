//! Attacks on a stack whose engine needs time for every frame: frames beyond its capacity are lost
//! at the device. Each test prints its result (`--nocapture`); the book's page on attacks collects
//! them.

#[path = "attacks/flood.rs"]
mod flood;
#[path = "attacks/fragments.rs"]
mod fragments;

use std::net::SocketAddr;

use slipstack_sim::forge::{Forged, Open, Victim};
use slipstack_stack::rng::Rng;
use slipstack_stack::{Counter, Event};
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::TcpOptions;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const ACK: TcpFlags = TcpFlags::ACK;

fn plain(mss: u16) -> TcpOptions {
    TcpOptions {
        mss: Some(mss),
        sack_permitted: true,
        ..TcpOptions::default()
    }
}

fn peer(last: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, last], 5000))
}

fn one_connection(mss: u16) -> (Victim, Open) {
    let mut victim = Victim::new(|_| {});
    let open = victim.open(peer(1), 1, plain(mss)).expect("a connection");
    victim.fx.listens = true;
    (victim, open)
}

fn count(victim: &Victim, counter: Counter) -> u64 {
    victim.stack.counters().value(counter)
}

/// SegmentSmack (CVE-2018-5390): one byte each, none in order, as many as there are places.
#[test]
fn a_hundred_thousand_segments_out_of_order_fill_a_bounded_table() {
    let (mut victim, open) = one_connection(1460);
    victim.fx.listens = false;
    for i in 0..100_000u32 {
        let ahead = 2 + 2 * (i * 7919 % 30_000);
        let seq = open.seq.wrapping_add(ahead);
        victim.receive_frame(
            &Forged::new(open.from, ACK, seq, open.ack)
                .with_payload(1)
                .frame(),
        );
        victim.now.0 += 10 * US;
    }
    let held = count(&victim, Counter::RxTcpOutOfOrder);
    let dropped = count(&victim, Counter::DropTcpReassembly);
    println!("out of order: {dropped} of 100000 dropped at the limit of 256 ranges, {held} taken");
    assert!(dropped > 90_000 && held + dropped <= 100_000, "{held}");
    // The stream goes on when the gap is filled.
    victim.fx.events.clear();
    let fill = Forged::new(open.from, ACK, open.seq, open.ack).with_payload(1400);
    victim.receive_frame(&fill.frame());
    let received = |e: &Event| matches!(e, Event::Received { upto, .. } if *upto >= 1400);
    assert!(victim.fx.events.iter().any(received));
}

/// RFC 3465 2.2: an ACK counts for the bytes that it acknowledges, however many ACKs say so.
#[test]
fn split_acks_open_the_window_no_faster() {
    let sent_after = |pieces: u32| {
        let (mut victim, open) = one_connection(1000);
        victim.stack.tcp_written(open.conn, 1 << 19, false);
        victim.receive_frame(&Forged::new(open.from, ACK, open.seq, open.ack).frame());
        victim.now.0 += 10 * MS;
        for i in 1..=pieces {
            let ack = open.ack.wrapping_add(10_000 * i / pieces);
            victim.receive_frame(&Forged::new(open.from, ACK, open.seq, ack).frame());
        }
        victim.fx.said.iter().map(|said| said.len).sum::<u32>()
    };
    let (whole, split) = (sent_after(1), sent_after(1000));
    println!("split ACKs: {split} bytes after 1000 ACKs, {whole} after one");
    // The first window, the acknowledged part of it, and as much again in slow start. One ACK for
    // all of it earns less: RFC 9406 4.3 lets it count for 8 segments.
    assert!(split <= 30_000 && whole <= split, "{split} {whole}");
}

/// An ACK of unsent data is no ACK, and earns at most one challenge ACK.
#[test]
fn optimistic_acks_do_not_grow_the_window() {
    let (mut victim, open) = one_connection(1000);
    victim.stack.tcp_written(open.conn, 1 << 19, false);
    victim.receive_frame(&Forged::new(open.from, ACK, open.seq, open.ack).frame());
    victim.fx.said.clear();
    for i in 1..1000 {
        let ack = open.ack.wrapping_add(10_000 + i * 1000);
        victim.receive_frame(&Forged::new(open.from, ACK, open.seq, ack).frame());
    }
    let data: u32 = victim.fx.said.iter().map(|said| said.len).sum();
    println!(
        "optimistic ACKs: {data} bytes and {} segments for 999 ACKs",
        victim.fx.said.len()
    );
    assert!(data == 0 && victim.fx.said.len() <= 1);
    assert_eq!(count(&victim, Counter::DropTcpAck), 999);
}

/// CVE-2019-11477 to 11479: a tiny MSS and many SACK holes.
#[test]
fn a_tiny_mss_is_raised_and_its_sack_blocks_are_bounded() {
    let (mut victim, open) = one_connection(1);
    victim.fx.listens = true;
    victim.stack.tcp_written(open.conn, 1 << 19, false);
    victim.receive_frame(&Forged::new(open.from, ACK, open.seq, open.ack).frame());
    let largest = victim.fx.said.iter().map(|said| said.len).max();
    let info = victim
        .stack
        .tcp_info(victim.now, open.conn)
        .expect("a connection");
    println!(
        "tiny MSS: {} bytes a segment for an announced MSS of 1",
        info.snd_mss
    );
    assert!(info.snd_mss >= 88 && largest >= Some(88));
    for i in 0..10_000u32 {
        let mut options = TcpOptions::default();
        let left = open.ack.wrapping_add(1 + 2 * (i % 400));
        options.sack.push(left, left.wrapping_add(1));
        let ack = Forged::new(open.from, ACK, open.seq, open.ack).with_options(options);
        victim.receive_frame(&ack.frame());
        victim.now.0 += 10 * US;
    }
    assert!(victim.stack.tcp_info(victim.now, open.conn).is_some());
}

/// Sockstress and slow readers: each waits with data for a window that stays closed.
#[test]
fn a_thousand_closed_windows_cost_a_probe_in_two_minutes_each() {
    let mut victim = Victim::new(|_| {});
    let herd: Vec<Open> = (0..200)
        .filter_map(|i| victim.open(peer(i), 1, plain(1460)))
        .collect();
    assert_eq!(herd.len(), 200);
    let closed = |open: &Open| {
        let mut ack = Forged::new(open.from, ACK, open.seq, open.ack);
        ack.window = 0;
        ack.frame()
    };
    for open in &herd {
        victim.receive_frame(&closed(open));
        victim.stack.tcp_written(open.conn, 100, false);
    }
    let mut probes = [0u64; 30];
    for (minute, probes) in probes.iter_mut().enumerate() {
        let before = count(&victim, Counter::TxTcpWindowProbes);
        for _ in 0..600 {
            victim.now.0 += 100 * MS;
            victim.meet_router();
            victim.stack.on_timers(victim.now, &mut victim.fx);
            victim.stack.flush(victim.now, &mut victim.fx);
        }
        *probes = count(&victim, Counter::TxTcpWindowProbes) - before;
        let _ = minute;
        // The peers answer now and then: they are alive.
        for open in &herd {
            victim.receive_frame(&closed(open));
        }
    }
    let late: u64 = probes[20..].iter().sum();
    println!(
        "zero windows: {late} probes of 200 connections in the last ten minutes, {} at first",
        probes[0]
    );
    assert!(late <= 200 * 6, "{probes:?}");
}

/// RFC 5961 3.2, 4.2 and 5.2: 100,000 guesses of each kind do nothing to a connection.
#[test]
fn blind_guesses_neither_reset_nor_inject() {
    let (mut victim, open) = one_connection(1460);
    let mut rng = Rng::new(&[9; 32]);
    victim.fx.listens = false;
    let before = victim.fx.frames;
    for flags in [TcpFlags::RST, TcpFlags::SYN, ACK] {
        for _ in 0..100_000 {
            // In the window, but never the exact number, which is one in 2^32.
            let seq = open.seq.wrapping_add(1 + rng.below(60_000));
            let ack = open.ack.wrapping_add(70_000 + rng.below(1 << 31));
            let segment =
                Forged::new(open.from, flags, seq, ack).with_payload(usize::from(flags == ACK));
            victim.receive_frame(&segment.frame());
            victim.now.0 += 10 * US;
        }
    }
    let answers = victim.fx.frames - before;
    println!("blind guesses: 300000 segments in 3 s, {answers} answers, nothing stored");
    assert!(victim.stack.tcp_info(victim.now, open.conn).is_some());
    assert!(
        answers <= 8 && victim.fx.stored == 0,
        "{answers} {}",
        victim.fx.stored
    );
}

/// RFC 5961 7, CVE-2016-5696: the number of challenge ACKs left reveals nothing about another
/// connection.
#[test]
fn the_number_of_challenge_acks_left_reveals_nothing() {
    let answers = |seed: u8, others: u8| {
        let mut victim = Victim::new(|config| config.seed = [seed; 32]);
        let opens: Vec<Open> = (0..250)
            .filter_map(|i| victim.open(peer(i), 1, plain(1460)))
            .collect();
        victim.now.0 += SECOND;
        // A secret connection is challenged `others` times at most once; then all are.
        for open in opens.iter().take(usize::from(others)).chain(&opens[1..]) {
            let seq = open.seq.wrapping_add(100);
            victim.receive_frame(&Forged::new(open.from, TcpFlags::RST, seq, 0).frame());
        }
        count(&victim, Counter::TxTcpChallenges)
    };
    let totals: Vec<u64> = (0..16).map(|seed| answers(seed, 1)).collect();
    println!("challenge ACKs of 250 asked at once: {totals:?}");
    let (least, most) = (totals.iter().min(), totals.iter().max());
    assert!(most <= Some(&100) && least < most, "{totals:?}");
}

/// RFC 6528 3: the number of one connection reveals nothing about the next.
#[test]
fn initial_sequence_numbers_of_neighbouring_flows_are_unrelated() {
    let mut victim = Victim::new(|_| {});
    victim.fx.listens = true;
    let mut numbers = Vec::new();
    for port in 1000..3000u16 {
        let from = SocketAddr::from(([198, 51, 100, 7], port));
        victim.receive_frame(&Forged::new(from, TcpFlags::SYN, 1, 0).frame());
        numbers.extend(victim.fx.said.drain(..).map(|said| said.header.seq));
    }
    let near = numbers
        .windows(2)
        .filter(|w| w[1].wrapping_sub(w[0]).wrapping_add(1 << 20) < 1 << 21);
    let near = near.count();
    println!(
        "initial numbers: {near} of {} neighbours within 2^20",
        numbers.len() - 1
    );
    // By chance one in 2048.
    assert!(numbers.len() == 2000 && near <= 6, "{near}");
}

/// Land, martians, broadcasts, invalid lengths, urgent pointers beyond everything.
#[test]
fn malformed_and_impossible_segments_are_dropped_and_counted() {
    let (mut victim, open) = one_connection(1460);
    let from = |ip: [u8; 4]| Forged::new(SocketAddr::from((ip, 80)), TcpFlags::SYN, 1, 0).frame();
    for (ip, counter) in [
        ([10, 0, 0, 1], Counter::DropIpv4Spoofed),
        ([127, 0, 0, 1], Counter::DropIpv4Martian),
        ([0, 1, 2, 3], Counter::DropIpv4Martian),
        ([224, 0, 0, 1], Counter::DropIpv4Martian),
        ([255, 255, 255, 255], Counter::DropIpv4Martian),
        ([10, 0, 0, 255], Counter::DropIpv4Martian),
    ] {
        let before = count(&victim, counter);
        victim.receive_frame(&from(ip));
        assert_eq!(count(&victim, counter), before + 1, "{ip:?}");
    }
    let mut at = 0u32;
    for raw in [
        &[8u8, 0, 1, 1][..],
        &[2, 255, 0, 0],
        &[5, 3, 1, 1],
        &[1; 40],
        &[30, 1, 34, 0],
    ] {
        let mut segment =
            Forged::new(open.from, ACK | TcpFlags::URG, open.seq + at, open.ack).with_payload(10);
        segment.raw_options = Some(raw.to_vec());
        segment.urgent = 0xffff - at as u16;
        victim.receive_frame(&segment.frame());
        at += 10;
    }
    assert_eq!(victim.fx.stored, u64::from(at));
    assert!(victim.stack.tcp_info(victim.now, open.conn).is_some());
}
