//! Fragments that never become packets.

use std::net::Ipv4Addr;

use slipstack_sim::forge::{Victim, fragment};
use slipstack_stack::{Counter, UdpOptions};

use super::{MS, US};

/// As the configuration's default.
const LIMIT: u64 = 4 << 20;
const UDP_PORT: u16 = 5000;

fn count(victim: &Victim, counter: Counter) -> u64 {
    victim.stack.counters().value(counter)
}

/// A datagram of 3,000 bytes in three fragments, the last first.
fn honest(identification: u16) -> [Vec<u8>; 3] {
    let from = Ipv4Addr::new(203, 0, 113, 1);
    let mut bytes = slipstack_wire::udp::header(7, UDP_PORT, 3000).to_vec();
    bytes.resize(3008, 0);
    let part = |range: std::ops::Range<usize>| {
        let has_more = range.end < 3008;
        fragment(
            from,
            identification,
            range.start as u16,
            has_more,
            &bytes[range],
        )
    };
    [part(2960..3008), part(1480..2960), part(0..1480)]
}

/// 64 K fragments of as many packets in 66 ms, of 1,000 bytes or of 8, and an honest datagram in
/// fragments after each thousand.
#[test]
fn sixty_four_thousand_fragments_leave_honest_datagrams_whole() {
    for len in [1000, 8] {
        let mut victim = Victim::new(|_| {});
        let any = (Ipv4Addr::UNSPECIFIED, UDP_PORT).into();
        victim
            .stack
            .udp_bind(any, UdpOptions::default())
            .expect("a port");
        let mut sent = 0;
        for n in 0..65_536u32 {
            let [_, _, c, d] = n.to_be_bytes();
            let from = Ipv4Addr::new(198, 51, c, d);
            victim.receive_frame(&fragment(from, n as u16, 8, true, &vec![1; len]));
            victim.now.0 += US;
            if n % 1000 == 0 {
                for part in honest(sent) {
                    victim.receive_frame(&part);
                }
                sent += 1;
            }
        }
        let (whole, gone) = (
            count(&victim, Counter::RxReassembled),
            count(&victim, Counter::DropFragmentMemory),
        );
        let waiting = 65_536 - gone;
        println!(
            "64 K fragments of {len} bytes: {whole} of {sent} honest datagrams whole, {waiting} \
             fragments wait"
        );
        assert_eq!(
            (whole, count(&victim, Counter::RxUdp)),
            (sent.into(), sent.into())
        );
        assert!(waiting * (len as u64 + 320) <= LIMIT, "{waiting}");
        // Waiting fragments are dropped when their time is over.
        victim.now.0 += 31_000 * MS;
        victim.receive_frame(&fragment(Ipv4Addr::new(198, 51, 0, 0), 0, 8, true, &[1; 8]));
        let late = count(&victim, Counter::DropFragmentTimeout);
        assert_eq!(late + count(&victim, Counter::DropFragmentMemory), 65_536);
    }
}

/// The smallest pieces of one packet: it is given up when there are too many.
#[test]
fn a_packet_in_tiny_fragments_is_refused() {
    let mut victim = Victim::new(|_| {});
    let from = Ipv4Addr::new(198, 51, 100, 1);
    for n in (0..8000u16).rev() {
        victim.receive_frame(&fragment(from, 1, n * 8, true, &[1; 8]));
        victim.now.0 += US;
    }
    let pieces = count(&victim, Counter::DropFragmentPieces);
    let after = count(&victim, Counter::DropFragmentOverlap);
    println!("8,000 crumbs of a packet: refused after {}", pieces - 1);
    assert_eq!((pieces, pieces + after), (129, 8000));
}
