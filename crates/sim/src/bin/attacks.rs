//! Repeats one kind of hostile segment against a stack; `scripts/attacks` counts with callgrind the
//! cost of each for the stack (`Victim::receive_frame`), and that of ordinary segments for
//! comparison.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use slipstack_sim::forge::{Forged, Open, PORT, VICTIM, Victim, fragment};
use slipstack_stack::SynCookies;
use slipstack_stack::rng::Rng;
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::{SackBlocks, TcpOptions};

const MSS: u32 = 1000;
const ACK: TcpFlags = TcpFlags::ACK;

/// An attack, by name.
type Attack = fn(u32);
const ATTACKS: &[(&str, Attack)] = &[
    ("data", data),
    ("acks", acks),
    ("handshakes", handshakes),
    ("syn-flood-cookies", syn_flood),
    ("ack-flood", ack_flood),
    ("blind-rst", blind_rst),
    ("blind-syn", blind_syn),
    ("blind-data", blind_data),
    ("out-of-order", out_of_order),
    ("sack-holes", sack_holes),
    ("sack-four-holes", sack_four_holes),
    ("sack-everything", sack_everything),
    ("split-acks", split_acks),
    ("optimistic-acks", optimistic_acks),
    ("closed-windows", closed_windows),
    ("bad-options", bad_options),
    ("urgent", urgent),
    ("land", land),
    ("closed-port", closed_port),
    ("fragments", fragments),
    ("crumbs", tiny_fragments),
    ("cut-again", cut_again),
];

fn peer(n: u32) -> SocketAddr {
    let [_, b, c, d] = (n / 50_000).to_be_bytes();
    SocketAddr::from(([198, b, c, d], 1024 + (n % 50_000) as u16))
}

fn offer() -> TcpOptions {
    TcpOptions {
        mss: Some(MSS as u16),
        sack_permitted: true,
        window_scale: Some(14),
        ..TcpOptions::default()
    }
}

fn victim() -> Victim {
    Victim::new(|config| config.tcp.sndbuf_max = 1 << 30)
}

fn opened(victim: &mut Victim) -> Open {
    victim.open(peer(1), 1000, offer()).unwrap_or_else(|| {
        eprintln!("no connection");
        std::process::exit(1)
    })
}

fn tick(victim: &mut Victim) {
    victim.now.0 += 10_000;
    victim.fx.events.clear();
}

/// In order, read at once: the ordinary case.
fn data(count: u32) {
    let mut victim = victim();
    let open = opened(&mut victim);
    for i in 0..count {
        let segment = Forged::new(open.from, ACK, open.seq + i * 100, open.ack).with_payload(100);
        victim.receive_frame(&segment.frame());
        let upto = u64::from(i + 1) * 100;
        victim.stack.tcp_consumed(victim.now, open.conn, upto);
        tick(&mut victim);
    }
}

/// ACKs of bulk data, one for two segments, while there is always more to send.
fn acks(count: u32) {
    let mut victim = victim();
    let open = sending(&mut victim);
    for i in 1..=count {
        let ack = open.ack.wrapping_add(i * 2 * MSS);
        victim.receive_frame(&Forged::new(open.from, ACK, open.seq, ack).frame());
        tick(&mut victim);
    }
}

/// A connection of the victim that sends without end into a window that never closes.
fn sending(victim: &mut Victim) -> Open {
    let open = opened(victim);
    let grant = Forged::new(open.from, ACK, open.seq, open.ack);
    victim.receive_frame(&grant.frame());
    victim.stack.tcp_written(open.conn, 1 << 29, false);
    victim.receive_frame(&grant.frame());
    open
}

/// SYN and ACK in turns: `count` segments.
fn handshakes(count: u32) {
    let mut victim = victim();
    for i in 0..count / 2 {
        victim.open(peer(i), 1000, offer());
        tick(&mut victim);
    }
}

fn syn_flood(count: u32) {
    let mut victim = Victim::new(|config| config.tcp.syn_cookies = SynCookies::Always);
    for i in 0..count {
        let syn = Forged::new(peer(i), TcpFlags::SYN, i, 0).with_options(offer());
        victim.receive_frame(&syn.frame());
        tick(&mut victim);
    }
}

fn ack_flood(count: u32) {
    let mut victim = Victim::new(|config| config.tcp.syn_cookies = SynCookies::Always);
    let syn = Forged::new(peer(0), TcpFlags::SYN, 1, 0).with_options(offer());
    victim.receive_frame(&syn.frame());
    for i in 0..count {
        victim.receive_frame(&Forged::new(peer(i), ACK, i, !i).frame());
        tick(&mut victim);
    }
}

/// Sends the same segment at guessed sequence numbers.
fn blind(count: u32, flags: TcpFlags, payload: usize) {
    let (mut victim, mut rng) = (victim(), Rng::new(&[3; 32]));
    let open = opened(&mut victim);
    for _ in 0..count {
        // Half of the guesses are within the window.
        let ahead = 1 + rng.below(60_000);
        let seq = if rng.below(2) == 0 {
            open.seq.wrapping_add(ahead)
        } else {
            rng.next_u32()
        };
        let segment = Forged::new(open.from, flags, seq, rng.next_u32()).with_payload(payload);
        victim.receive_frame(&segment.frame());
        tick(&mut victim);
    }
}

fn blind_rst(count: u32) {
    blind(count, TcpFlags::RST, 0);
}

fn blind_syn(count: u32) {
    blind(count, TcpFlags::SYN, 0);
}

fn blind_data(count: u32) {
    blind(count, ACK, 100);
}

/// Bytes with holes between them, from the far end of the window to the near one and around again:
/// each is the worst place for a sorted table, and none can be given to the program.
fn out_of_order(count: u32) {
    let mut victim = victim();
    let open = opened(&mut victim);
    for i in 0..count {
        let ahead = 60_000 - 2 * (i % 29_999);
        let segment = Forged::new(open.from, ACK, open.seq + ahead, open.ack).with_payload(1);
        victim.receive_frame(&segment.frame());
        tick(&mut victim);
    }
}

fn sack(open: &Open, blocks: &[(u32, u32)], una: u32) -> Vec<u8> {
    let mut options = TcpOptions {
        sack: SackBlocks::EMPTY,
        ..TcpOptions::default()
    };
    for &(left, right) in blocks {
        let at = |offset: u32| open.ack.wrapping_add(offset);
        options.sack.push(at(left), at(right));
    }
    let ack = open.ack.wrapping_add(una);
    Forged::new(open.from, ACK, open.seq, ack)
        .with_options(options)
        .frame()
}

/// A sender with a large window in flight, reached faster than slow start thinks the path full (RFC
/// 9406).
fn far_ahead(victim: &mut Victim) -> (Open, u32) {
    let open = sending(victim);
    let mut una = 0;
    for _ in 0..2 * HOLES {
        una += 2 * MSS;
        let ack = open.ack.wrapping_add(una);
        victim.receive_frame(&Forged::new(open.from, ACK, open.seq, ack).frame());
        victim.now.0 += 100;
        victim.fx.events.clear();
    }
    let info = victim.stack.tcp_info(victim.now, open.conn);
    if info.is_none_or(|info| info.unacked < 2 * HOLES) {
        eprintln!("the flight is too small: {info:?}");
        std::process::exit(1)
    }
    (open, una)
}

/// Holes that a flight has room for.
const HOLES: u32 = 8000;
/// A prime that leads from one place to one far from it.
const STRIDE: u32 = 4099;

/// Every second segment, near and far in turns: as many holes as there can be, then the same again.
fn sack_holes(count: u32) {
    let mut victim = victim();
    let (open, una) = far_ahead(&mut victim);
    for i in 0..count {
        let at = una + MSS + 2 * MSS * (i * STRIDE % HOLES);
        victim.receive_frame(&sack(&open, &[(at, at + MSS)], una));
        tick(&mut victim);
    }
}

/// Four at once.
fn sack_four_holes(count: u32) {
    let mut victim = victim();
    let (open, una) = far_ahead(&mut victim);
    for i in 0..count {
        let blocks = [0, 1, 2, 3].map(|k| {
            let at = una + MSS + 2 * MSS * ((4 * i + k) * STRIDE % HOLES);
            (at, at + MSS)
        });
        victim.receive_frame(&sack(&open, &blocks, una));
        tick(&mut victim);
    }
}

/// All of the flight in one block, again and again, after it has been cut into pieces.
fn sack_everything(count: u32) {
    let mut victim = victim();
    let (open, una) = far_ahead(&mut victim);
    for i in 0..HOLES / 2 {
        let at = una + MSS + 2 * MSS * (i * STRIDE % HOLES);
        victim.receive_frame(&sack(&open, &[(at, at + MSS)], una));
        tick(&mut victim);
    }
    for i in 0..count {
        let right = una + 2 * HOLES * MSS - i % 2;
        victim.receive_frame(&sack(&open, &[(una + MSS, right)], una));
        tick(&mut victim);
    }
}

/// One byte at a time.
fn split_acks(count: u32) {
    let mut victim = victim();
    let open = sending(&mut victim);
    for i in 1..=count {
        let ack = open.ack.wrapping_add(i);
        victim.receive_frame(&Forged::new(open.from, ACK, open.seq, ack).frame());
        tick(&mut victim);
    }
}

/// ACKs of unsent data.
fn optimistic_acks(count: u32) {
    let mut victim = victim();
    let open = sending(&mut victim);
    for i in 1..=count {
        let ack = open.ack.wrapping_add((1 << 29) + i * MSS);
        victim.receive_frame(&Forged::new(open.from, ACK, open.seq, ack).frame());
        tick(&mut victim);
    }
}

/// ACKs of closed windows, from many connections with data to be sent to them.
fn closed_windows(count: u32) {
    const HERD: u32 = 1_000;
    let mut victim = victim();
    let herd: Vec<Open> = (0..HERD)
        .filter_map(|i| victim.open(peer(i), 1000, offer()))
        .collect();
    let closed = |open: &Open| {
        let mut ack = Forged::new(open.from, ACK, open.seq, open.ack);
        ack.window = 0;
        ack.frame()
    };
    for open in &herd {
        victim.receive_frame(&closed(open));
        victim.stack.tcp_written(open.conn, 1 << 20, false);
    }
    for i in 0..count {
        victim.receive_frame(&closed(&herd[(i % HERD) as usize]));
        tick(&mut victim);
    }
}

fn bad_options(count: u32) {
    let mut victim = victim();
    let open = opened(&mut victim);
    for i in 0..count {
        let mut segment = Forged::new(open.from, ACK, open.seq, open.ack);
        let kinds: [&[u8]; 4] = [&[8, 0], &[5, 1, 1, 1], &[1; 40], &[253, 2].repeat(20)];
        let mut options = kinds[i as usize % 4].to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        segment.raw_options = Some(options);
        victim.receive_frame(&segment.frame());
        tick(&mut victim);
    }
}

fn urgent(count: u32) {
    let mut victim = victim();
    let open = opened(&mut victim);
    for i in 0..count {
        let mut segment = Forged::new(open.from, ACK | TcpFlags::URG, open.seq, open.ack);
        segment.urgent = (i * 7919) as u16;
        victim.receive_frame(&segment.frame());
        tick(&mut victim);
    }
}

fn land(count: u32) {
    let mut victim = victim();
    let own = SocketAddr::from((VICTIM, PORT));
    for i in 0..count {
        victim.receive_frame(&Forged::new(own, TcpFlags::SYN, i, 0).frame());
        tick(&mut victim);
    }
}

/// No flow, no cookie, nothing: answered with resets as far as their limit goes.
fn closed_port(count: u32) {
    let mut victim = victim();
    for i in 0..count {
        victim.receive_frame(&Forged::new(peer(i), ACK, i, i).frame());
        tick(&mut victim);
    }
}

/// Each of another packet that never becomes whole, after the memory for them is full.
fn fragments(count: u32) {
    let mut victim = Victim::new(|config| config.fragments_bytes_max = 1 << 20);
    for i in 0..count {
        let from = Ipv4Addr::from_bits(0xc633_0000 + i);
        victim.receive_frame(&fragment(from, i as u16, 8, true, &[1; 1000]));
        tick(&mut victim);
    }
}

/// The smallest pieces of packets, each before the one before it.
fn tiny_fragments(count: u32) {
    let mut victim = victim();
    for i in 0..count {
        let (packet, piece) = ((i / 128) as u16, 128 - (i % 128) as u16);
        let from = Ipv4Addr::new(198, 51, 100, 1);
        victim.receive_frame(&fragment(from, packet, piece * 8, true, &[1; 8]));
        tick(&mut victim);
    }
}

/// Duplicates of one long piece, over the largest number of pieces but one.
fn cut_again(count: u32) {
    let mut victim = victim();
    let from = Ipv4Addr::new(198, 51, 100, 1);
    for piece in 1..128 {
        victim.receive_frame(&fragment(from, 1, piece * 8, true, &[1; 8]));
    }
    for _ in 0..count {
        victim.receive_frame(&fragment(from, 1, 8, true, &[1; 127 * 8]));
        tick(&mut victim);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let attack = |name: &str| ATTACKS.iter().find(|a| a.0 == name).map(|a| a.1);
    match &arguments[..] {
        [list] if list == "--list" => {
            ATTACKS.iter().for_each(|a| println!("{}", a.0));
            ExitCode::SUCCESS
        }
        [name, count] if let (Some(attack), Ok(count)) = (attack(name), count.parse()) => {
            attack(count);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: attacks --list | NAME COUNT");
            ExitCode::from(2)
        }
    }
}
