//! Attacks on a stack whose engine needs time for every frame: what is too much is lost at the device, as in life.
//! Each test prints its figure (`--nocapture`); the book's page on attacks gathers them.

#[path = "attacks/fragments.rs"]
mod fragments;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;

use slipstack_sim::forge::{Forged, Open, Victim};
use slipstack_stack::rng::Rng;
use slipstack_stack::{Counter, Event};
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const ACK: TcpFlags = TcpFlags::ACK;
/// Frames that the device holds for the engine.
const DEVICE_QUEUE: usize = 4096;
const REQUEST: usize = 100;
/// Half of a round trip.
const WAY_NS: u64 = 500 * US;

fn offer(now: u64) -> TcpOptions {
    TcpOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps {
            value: (now / MS) as u32,
            echo: 0,
        }),
        ..TcpOptions::default()
    }
}

/// A client that follows the rules: its SYN, and its request, again after 1, 3 and 7 seconds, or 0.3 and 0.9.
struct Honest {
    iss: u32,
    began: u64,
    tries: u32,
    /// Our next number and the timestamp to echo, once the SYN-ACK is there.
    open: Option<(u32, u32)>,
    served_after: Option<u64>,
}

enum Step {
    /// A client's (re)transmission.
    Send(SocketAddr, u32),
    /// The same if it has not been acknowledged.
    Again(SocketAddr, u32),
    /// A frame reaches the device.
    Arrive(Vec<u8>),
}

struct Flood {
    victim: Victim,
    rng: Rng,
    device: VecDeque<Vec<u8>>,
    steps: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: HashMap<u64, Step>,
    honest: HashMap<SocketAddr, Honest>,
    established: Vec<(Open, u32)>,
    lost: u64,
    resets: u64,
}

impl Flood {
    fn new() -> Flood {
        let mut victim = Victim::new(|_| {});
        let established = (0..100)
            .filter_map(|i| {
                let from = SocketAddr::from(([203, 0, 113, i], 5000));
                let plain = TcpOptions {
                    mss: Some(1460),
                    ..TcpOptions::default()
                };
                victim.open(from, 1, plain).map(|open| (open, 0))
            })
            .collect();
        victim.fx.listens = true;
        Flood {
            victim,
            rng: Rng::new(&[5; 32]),
            device: VecDeque::new(),
            steps: BinaryHeap::new(),
            bodies: HashMap::new(),
            honest: HashMap::new(),
            established,
            lost: 0,
            resets: 0,
        }
    }

    fn plan(&mut self, at: u64, step: Step) {
        let id = self.bodies.len() as u64 + (at << 20);
        let id = (id..)
            .find(|id| !self.bodies.contains_key(id))
            .unwrap_or(id);
        self.bodies.insert(id, step);
        self.steps.push(Reverse((at, id)));
    }

    fn arrive(&mut self, frame: Vec<u8>) {
        if self.device.len() < DEVICE_QUEUE {
            self.device.push_back(frame);
        } else {
            self.lost += 1;
        }
    }

    /// Everything that happens up to `now`, the flood's SYNs among it.
    fn catch_up(&mut self, now: u64, flood_at: &mut u64, flood_gap: u64, flood_end: u64) {
        loop {
            let next = self.steps.peek().map_or(u64::MAX, |s| s.0.0);
            if *flood_at <= next && *flood_at <= now && *flood_at < flood_end {
                let [a, b, c, d] = self.rng.next_u32().to_be_bytes();
                let from =
                    SocketAddr::from(([100 + a % 50, b, c, d], 1 + self.rng.below(65_535) as u16));
                let syn = Forged::new(from, TcpFlags::SYN, self.rng.next_u32(), 0);
                self.arrive(syn.with_options(offer(*flood_at)).frame());
                *flood_at += flood_gap;
                continue;
            }
            if next > now {
                return;
            }
            let Some(Reverse((at, id))) = self.steps.pop() else {
                return;
            };
            match self.bodies.remove(&id) {
                Some(Step::Arrive(frame)) => self.arrive(frame),
                Some(Step::Send(who, request)) => self.send(at, who, request, false),
                Some(Step::Again(who, request)) => self.send(at, who, request, true),
                None => {}
            }
        }
    }

    /// What a client sends at this moment, and when it tries again.
    fn send(&mut self, at: u64, who: SocketAddr, request: u32, is_again: bool) {
        if let Some((open, acked)) = self.established.iter().find(|e| e.0.from == who).copied() {
            let place = request * REQUEST as u32;
            if is_again && place < acked {
                return;
            }
            // Only what everything else waits for is sent again.
            if !is_again || place == acked {
                let seq = open.seq.wrapping_add(place);
                let frame =
                    Forged::new(who, ACK | TcpFlags::PSH, seq, open.ack).with_payload(REQUEST);
                self.plan(at + WAY_NS, Step::Arrive(frame.frame()));
            }
            self.plan(at + 300 * MS, Step::Again(who, request));
            return;
        }
        let Some(client) = self
            .honest
            .get_mut(&who)
            .filter(|c| c.served_after.is_none())
        else {
            return;
        };
        let (frame, wait) = match client.open {
            None => {
                let syn = Forged::new(who, TcpFlags::SYN, client.iss, 0).with_options(offer(at));
                (syn, SECOND << client.tries)
            }
            Some((ack, echo)) => {
                let stamps = Timestamps {
                    value: (at / MS) as u32,
                    echo,
                };
                let options = TcpOptions {
                    timestamps: Some(stamps),
                    ..TcpOptions::default()
                };
                let seq = client.iss.wrapping_add(1);
                let data = Forged::new(who, ACK | TcpFlags::PSH, seq, ack);
                (
                    data.with_options(options).with_payload(REQUEST),
                    (300 * MS) << client.tries,
                )
            }
        };
        client.tries += 1;
        if client.tries < 7 {
            self.plan(at + wait, Step::Send(who, 0));
        }
        self.plan(at + WAY_NS, Step::Arrive(frame.frame()));
    }

    /// What the victim said reaches its clients; strangers of the flood do not answer.
    fn hear(&mut self, now: u64) {
        for said in std::mem::take(&mut self.victim.fx.said) {
            if let Some((open, acked)) = self.established.iter_mut().find(|e| e.0.from == said.to) {
                *acked = (*acked).max(said.header.ack.wrapping_sub(open.seq));
                self.resets += u64::from(said.header.flags.is_rst());
                continue;
            }
            let Some(client) = self.honest.get_mut(&said.to) else {
                continue;
            };
            if said.header.flags.is_rst() {
                self.resets += 1;
            } else if said.header.flags.is_syn() && client.open.is_none() {
                let echo = said.options.timestamps.map_or(0, |t| t.value);
                client.open = Some((said.header.seq.wrapping_add(1), echo));
                client.tries = 0;
                self.plan(now + WAY_NS, Step::Send(said.to, 0));
            } else if said.header.ack == client.iss.wrapping_add(1 + REQUEST as u32) {
                client
                    .served_after
                    .get_or_insert(now + WAY_NS - client.began);
            }
        }
        let accepted = |e: &Event| matches!(e, Event::Accepted { .. });
        let total = self.victim.fx.events.iter().filter(|e| accepted(e)).count();
        if total > 0 {
            let all = self.victim.stack.counters().value(Counter::TcpAccepted);
            self.victim
                .stack
                .tcp_accepted(self.victim.listener, all as u32);
        }
        self.victim.fx.events.clear();
    }

    /// `cost_ns`: what a frame that comes in costs the engine; one that leaves costs a quarter of it.
    fn run(&mut self, cost_ns: u64, flood_per_second: u64, flood_ns: u64) {
        let begin = self.victim.now.0;
        for i in 0..500u64 {
            let who = SocketAddr::from(([198, 51, 100, (i % 250) as u8], 2000 + i as u16));
            let client = Honest {
                iss: i as u32 * 77_777,
                // In no step with the flood, which would take each place in the device's queue before them.
                began: begin
                    + flood_ns / 10
                    + i * flood_ns / 1000
                    + u64::from(self.rng.below(1_000_000)),
                tries: 0,
                open: None,
                served_after: None,
            };
            self.plan(client.began, Step::Send(who, 0));
            self.honest.insert(who, client);
        }
        for i in 0..self.established.len() {
            let from = self.established[i].0.from;
            for request in 0..requests(flood_ns) {
                let jitter = u64::from(self.rng.below(90_000));
                let at = begin + u64::from(request) * 10 * MS + i as u64 * 97 * US + jitter;
                self.plan(at, Step::Send(from, request));
            }
        }
        let (mut flood_at, gap) = (begin, SECOND / flood_per_second);
        let (mut now, mut router_at) = (begin, begin);
        while now < begin + flood_ns {
            self.catch_up(now, &mut flood_at, gap, begin + flood_ns);
            let Some(frame) = self.device.pop_front() else {
                let next = self.steps.peek().map_or(flood_at, |s| s.0.0.min(flood_at));
                now = next.max(now + 1);
                continue;
            };
            self.victim.now.0 = now;
            if now >= router_at {
                self.victim.meet_router();
                router_at = now + SECOND;
            }
            let sent = self.victim.fx.frames;
            self.victim.suffer(&frame);
            now += cost_ns + (self.victim.fx.frames - sent) * cost_ns / 4;
            self.hear(now);
        }
    }

    fn served(&self) -> (f64, u64) {
        let mut times: Vec<u64> = self
            .honest
            .values()
            .filter_map(|c| c.served_after)
            .collect();
        times.sort_unstable();
        let share = times.len() as f64 / self.honest.len() as f64;
        (share, times.get(times.len() / 2).copied().unwrap_or(0))
    }

    /// Share of the requests on old connections that were acknowledged.
    fn unharmed(&self, flood_ns: u64) -> f64 {
        let each = f64::from(requests(flood_ns)) * REQUEST as f64;
        let asked = each * self.established.len() as f64;
        let got: u32 = self.established.iter().map(|e| e.1).sum();
        f64::from(got) / asked
    }
}

/// On each old connection, one in 10 ms; none so late that its delayed ACK would miss the end.
fn requests(flood_ns: u64) -> u32 {
    (flood_ns.saturating_sub(50 * MS) / (10 * MS)) as u32
}

fn flood(cost_ns: u64, per_second: u64, flood_ns: u64) -> (f64, f64, Flood) {
    let mut flood = Flood::new();
    flood.run(cost_ns, per_second, flood_ns);
    let ((served, median), unharmed) = (flood.served(), flood.unharmed(flood_ns));
    println!(
        "SYN flood, {per_second}/s for {} ms, {cost_ns} ns a frame: {:.1} % of 500 honest connects served, median {:.1} ms; \
         {:.1} % of requests on 100 old connections; {} frames lost at the device; {} resets",
        flood_ns / MS,
        served * 100.0,
        median as f64 / MS as f64,
        unharmed * 100.0,
        flood.lost,
        flood.resets
    );
    (served, unharmed, flood)
}

#[test]
fn a_million_syns_a_second_shut_nobody_out() {
    let (served, unharmed, flood) = flood(600, 1_000_000, 600 * MS);
    assert!(served >= 0.99 && unharmed >= 0.98, "{served} {unharmed}");
    assert_eq!(flood.resets, 0);
    // No more is kept than the listener's share.
    let (conns, half_open, _) = flood.victim.stack.tcp_sizes();
    assert!(conns <= 600 && half_open <= 1 << 20, "{conns} {half_open}");
}

/// A quarter more than the engine can take, for eight seconds: what is lost at the device comes again. (A tenth of the
/// rate on an engine that is as much slower: the same load.)
#[test]
fn a_flood_beyond_all_power_is_lost_at_the_device_and_most_come_in_with_their_next_try() {
    let (served, _, flood) = flood(10_000, 100_000, 8_000 * MS);
    assert!(flood.lost > 100_000, "{}", flood.lost);
    assert!(served >= 0.6, "{served}");
    assert_eq!(flood.resets, 0);
}

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
        victim.suffer(
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
    victim.suffer(&fill.frame());
    let received = |e: &Event| matches!(e, Event::Received { upto, .. } if *upto >= 1400);
    assert!(victim.fx.events.iter().any(received));
}

/// RFC 3465: an ACK counts for the bytes that it acknowledges, however many ACKs say so.
#[test]
fn split_acks_open_the_window_no_faster() {
    let sent_after = |pieces: u32| {
        let (mut victim, open) = one_connection(1000);
        victim
            .stack
            .tcp_written(victim.now, open.conn, 1 << 19, false);
        victim.suffer(&Forged::new(open.from, ACK, open.seq, open.ack).frame());
        victim.now.0 += 10 * MS;
        for i in 1..=pieces {
            let ack = open.ack.wrapping_add(10_000 * i / pieces);
            victim.suffer(&Forged::new(open.from, ACK, open.seq, ack).frame());
        }
        victim.fx.said.iter().map(|said| said.len).sum::<u32>()
    };
    let (whole, split) = (sent_after(1), sent_after(1000));
    println!("split ACKs: {split} bytes after 1000 ACKs, {whole} after one");
    // The first window, what was acknowledged of it, and as much again in slow start. One ACK for all of it earns
    // less: RFC 9406 4.3 lets it count for 8 segments.
    assert!(split <= 30_000 && whole <= split, "{split} {whole}");
}

/// An ACK of what was not sent yet is no ACK, and earns at most one challenge.
#[test]
fn optimistic_acks_earn_nothing() {
    let (mut victim, open) = one_connection(1000);
    victim
        .stack
        .tcp_written(victim.now, open.conn, 1 << 19, false);
    victim.suffer(&Forged::new(open.from, ACK, open.seq, open.ack).frame());
    victim.fx.said.clear();
    for i in 1..1000 {
        let ack = open.ack.wrapping_add(10_000 + i * 1000);
        victim.suffer(&Forged::new(open.from, ACK, open.seq, ack).frame());
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
fn a_tiny_mss_is_not_believed_and_its_sacks_are_bounded() {
    let (mut victim, open) = one_connection(1);
    victim.fx.listens = true;
    victim
        .stack
        .tcp_written(victim.now, open.conn, 1 << 19, false);
    victim.suffer(&Forged::new(open.from, ACK, open.seq, open.ack).frame());
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
        victim.suffer(&ack.frame());
        victim.now.0 += 10 * US;
    }
    assert!(victim.stack.tcp_info(victim.now, open.conn).is_some());
}

/// Sockstress and slow readers: each waits with data for a window that stays closed.
#[test]
fn a_herd_of_closed_windows_costs_a_probe_in_two_minutes_each() {
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
        victim.suffer(&closed(open));
        victim.stack.tcp_written(victim.now, open.conn, 100, false);
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
            victim.suffer(&closed(open));
        }
    }
    let late: u64 = probes[20..].iter().sum();
    println!(
        "zero windows: {late} probes of 200 connections in the last ten minutes, {} at first",
        probes[0]
    );
    assert!(late <= 200 * 6, "{probes:?}");
}

/// RFC 5961: 100,000 guesses of each kind do nothing to a connection.
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
            victim.suffer(&segment.frame());
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

/// CVE-2016-5696: how many challenges are left says nothing about another connection.
#[test]
fn the_global_limit_of_challenges_cannot_be_counted() {
    let answers = |seed: u8, others: u8| {
        let mut victim = Victim::new(|config| config.seed = [seed; 32]);
        let opens: Vec<Open> = (0..250)
            .filter_map(|i| victim.open(peer(i), 1, plain(1460)))
            .collect();
        victim.now.0 += SECOND;
        // A secret connection is challenged `others` times at most once; then everybody is.
        for open in opens.iter().take(usize::from(others)).chain(&opens[1..]) {
            let seq = open.seq.wrapping_add(100);
            victim.suffer(&Forged::new(open.from, TcpFlags::RST, seq, 0).frame());
        }
        count(&victim, Counter::TxTcpChallenges)
    };
    let totals: Vec<u64> = (0..16).map(|seed| answers(seed, 1)).collect();
    println!("challenge ACKs of 250 asked at once: {totals:?}");
    let (least, most) = (totals.iter().min(), totals.iter().max());
    assert!(most <= Some(&100) && least < most, "{totals:?}");
}

/// RFC 6528: what one connection shows says nothing about the next.
#[test]
fn initial_numbers_of_neighbouring_flows_are_unrelated() {
    let mut victim = Victim::new(|_| {});
    victim.fx.listens = true;
    let mut numbers = Vec::new();
    for port in 1000..3000u16 {
        let from = SocketAddr::from(([198, 51, 100, 7], port));
        victim.suffer(&Forged::new(from, TcpFlags::SYN, 1, 0).frame());
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

/// Land, martians, broadcasts, lengths that lie, urgent pointers beyond everything.
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
        victim.suffer(&from(ip));
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
        victim.suffer(&segment.frame());
        at += 10;
    }
    assert_eq!(victim.fx.stored, u64::from(at));
    assert!(victim.stack.tcp_info(victim.now, open.conn).is_some());
}
