use core::time::Duration;

use super::*;

const SECOND: u64 = 1_000_000_000;

pub(super) fn at(seconds: u64) -> Instant {
    Instant(SECOND * seconds)
}

fn segment(src: &str, dst: &str, ports: (u32, u32), flags: TcpFlags) -> Packet {
    Packet {
        flags,
        ..packet(src, dst, ports)
    }
}

/// A client's segment, and a server's answer.
pub(super) fn pair(port: u32, flags: TcpFlags, answer: TcpFlags) -> (Packet, Packet) {
    let there = segment("10.0.0.1", "10.0.0.2", (port, 80), flags);
    let back = segment("10.0.0.2", "10.0.0.1", (80, port), answer);
    (
        there,
        Packet {
            direction: FilterDirection::Out,
            ..back
        },
    )
}

/// Lets new connections to port 80 in, and drops packets of unknown flows.
pub(super) fn keeping(state: FilterKeep) -> Filter {
    filter(&[
        FilterRule {
            protocol: Some(TCP),
            to: End {
                ports: vec![(80, 80)],
                ..End::default()
            },
            part: Some(FilterPart::Setup),
            state: Some(state),
            ..rule(100, FilterAction::Allow)
        },
        rule(200, FilterAction::Deny),
    ])
}

pub(super) fn limit(max: u32) -> FilterKeep {
    FilterKeep::Limit {
        by: LimitBy {
            source: true,
            ..LimitBy::default()
        },
        max,
    }
}

pub(super) const SYN_ACK: TcpFlags = TcpFlags(0x12);

#[test]
fn a_flow_goes_on_in_both_directions_until_its_time_is_over() {
    let mut filter = keeping(FilterKeep::State);
    let (syn, syn_ack) = pair(4000, TcpFlags::SYN, SYN_ACK);
    let (ack, data) = pair(4000, TcpFlags::ACK, TcpFlags::ACK);
    assert_eq!(
        filter.verdict(at(1), &ack),
        Verdict::Drop,
        "it is not known"
    );
    assert_eq!(filter.verdict(at(1), &syn), Verdict::Pass);
    assert_eq!(filter.verdict(at(2), &syn_ack), Verdict::Pass);
    assert_eq!(filter.verdict(at(2), &ack), Verdict::Pass);
    let left: Vec<Duration> = filter.states(at(12)).map(|row| row.left).collect();
    assert_eq!(left, [Duration::from_secs(290)]);
    let counts: Vec<u64> = filter.counts().map(|(_, count)| count.packets).collect();
    assert_eq!(counts, [3, 1, 0]);
    // The stack has it: it is known however long it is idle.
    filter.states_mut().sweep(at(400), |_, _| true);
    assert_eq!(filter.verdict(at(600), &data), Verdict::Pass);
    filter.states_mut().sweep(at(1000), |_, _| false);
    assert_eq!(filter.verdict(at(1000), &data), Verdict::Drop);
}

#[test]
fn the_end_of_a_connection_ends_its_flow_soon() {
    for (there, back, seconds) in [
        (TcpFlags(0x11), TcpFlags(0x11), 1),
        (TcpFlags::RST, TcpFlags::NONE, 1),
        (TcpFlags(0x11), TcpFlags::ACK, 300),
    ] {
        let mut filter = keeping(FilterKeep::State);
        let (syn, syn_ack) = pair(4000, TcpFlags::SYN, SYN_ACK);
        let (fin, answer) = pair(4000, there, back);
        for packet in [syn, syn_ack, fin, answer] {
            assert_eq!(filter.verdict(at(1), &packet), Verdict::Pass);
        }
        let ack = Packet {
            flags: TcpFlags::ACK,
            ..fin
        };
        assert_eq!(
            filter.verdict(at(1 + seconds), &ack),
            Verdict::Pass,
            "{there:?} {back:?}"
        );
        let much_later = at(2 + 2 * seconds);
        filter.states_mut().sweep(much_later, |_, _| false);
        assert_eq!(
            filter.verdict(much_later, &ack),
            Verdict::Drop,
            "{there:?} {back:?}"
        );
    }
}

#[test]
fn flows_that_are_alike_are_limited() {
    let mut filter = keeping(limit(2));
    let syn = |port| pair(port, TcpFlags::SYN, SYN_ACK).0;
    let verdicts = [1, 2, 3, 2].map(|port| filter.verdict(at(1), &syn(port)));
    let (pass, drop) = (Verdict::Pass, Verdict::Drop);
    assert_eq!(verdicts, [pass, pass, drop, pass]);
    let other = Packet {
        src: value("10.0.0.9".parse().unwrap()),
        ..syn(3)
    };
    assert_eq!(filter.verdict(at(1), &other), pass);
    assert_eq!(
        filter.verdict(at(30), &syn(3)),
        pass,
        "handshakes were given up"
    );
}

#[test]
fn the_number_of_tracked_flows_is_bounded() {
    let mut filter = keeping(FilterKeep::State);
    filter.set_times(StateTimes {
        max: 3,
        ..StateTimes::DEFAULT
    });
    let mut verdict = |port, seconds| {
        let syn = pair(port, TcpFlags::SYN, SYN_ACK).0;
        filter.verdict(at(seconds), &syn)
    };
    assert_eq!([1, 2, 3].map(|port| verdict(port, 1)), [Verdict::Pass; 3]);
    assert_eq!(verdict(4, 1), Verdict::Drop);
    assert_eq!(verdict(4, 60), Verdict::Pass);
}

#[test]
fn flows_of_unchanged_rules_stay_and_move_with_their_connection() {
    let mut first = keeping(limit(1));
    let (syn, syn_ack) = pair(4000, TcpFlags::SYN, SYN_ACK);
    let (ack, _) = pair(4000, TcpFlags::ACK, TcpFlags::ACK);
    for packet in [syn, syn_ack] {
        assert_eq!(first.verdict(at(1), &packet), Verdict::Pass);
    }
    let mut second = keeping(limit(1));
    second.adopt(at(2), &[syn, syn_ack]);
    assert_eq!(second.verdict(at(2), &ack), Verdict::Pass, "it has come");
    second.keep(first);
    assert_eq!(second.verdict(at(3), &ack), Verdict::Pass, "it has stayed");
    let mut third = filter(&[rule(200, FilterAction::Deny)]);
    third.keep(second);
    assert_eq!(
        third.verdict(at(3), &ack),
        Verdict::Drop,
        "its rule has gone"
    );
    assert_eq!(third.states(at(3)).count(), 0);
}

#[test]
fn a_plain_packet_has_the_key_of_its_flow() {
    let mut filter = filter(&[rule(100, FilterAction::Count)]);
    let mut ip = [0; 40];
    ip[0] = 0x45;
    ip[3] = 40;
    (ip[8], ip[9]) = (64, TCP);
    ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    ip[20..24].copy_from_slice(&[0x0f, 0xa0, 0, 80]);
    ip[33] = 0x10;
    let way = (FilterDirection::In, 7);
    assert!(!filter.passes(NOW, way, &ip, 40), "it is not known");
    assert!(!filter.knows(way, &ip));
    let packet = Packet::parse(way.0, way.1, false, &ip).unwrap();
    assert_eq!((packet.ports, packet.is_established()), ((4000, 80), true));
    assert_eq!(filter.verdict(NOW, &packet), Verdict::Pass);
    assert!(filter.passes(NOW, way, &ip, 40));
    assert!(
        filter.knows(way, &ip),
        "it is asked for without being counted"
    );
    for (at, byte) in [(33, 0x02), (9, UDP), (15, 9), (6, 0x20), (0, 0x46), (22, 1)] {
        let mut other = ip;
        other[at] = byte;
        assert!(!filter.passes(NOW, way, &other, 40), "byte {at}");
    }
    let counts: Vec<u64> = filter.counts().map(|(_, count)| count.bytes).collect();
    assert_eq!(counts, [80, 80]);
}

#[test]
fn the_cache_distinguishes_many_flows() {
    let mut filter = filter(&[
        FilterRule {
            from: End {
                ports: vec![(0, 999)],
                ..End::default()
            },
            ..rule(100, FilterAction::Deny)
        },
        rule(200, FilterAction::Count),
    ]);
    for round in 0..3 {
        for port in (0..60_000).step_by(7) {
            let it = packet("10.0.0.1", "10.0.0.2", (port, 80));
            let is_dropped = filter.verdict(NOW, &it) == Verdict::Drop;
            assert_eq!(is_dropped, port < 1000, "round {round}: {port}");
        }
    }
}
