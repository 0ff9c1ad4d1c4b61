use std::net::{Ipv4Addr, Ipv6Addr};

use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage};
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv4::{Ipv4Header, Ipv4Packet};
use slipstack_wire::ipv6::{Ipv6Header, Ipv6Packet};

use super::*;

const MS: u64 = 1_000_000;

fn link(params: LinkParams) -> Link<u32> {
    assert_eq!(params.check(), Ok(()));
    Link::new(params, Rng::new(&[7; 32]))
}

/// Offers frames of this length, numbered, one every `gap_ns`.
fn offer(link: &mut Link<u32>, count: u32, len: usize, gap_ns: u64) -> Vec<DropReason> {
    let offers = (0..count).map(|i| link.offer(Instant(u64::from(i) * gap_ns), vec![0x55; len], i));
    offers.filter_map(Result::err).collect()
}

fn deliveries(link: &mut Link<u32>) -> Vec<Delivery<u32>> {
    std::iter::from_fn(|| link.poll(Instant::FAR_FUTURE)).collect()
}

fn packet(tos: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; 14 + len];
    EthernetHeader {
        dst: [2, 0, 0, 0, 0, 2],
        src: [2, 0, 0, 0, 0, 1],
        ethertype: EtherType::IPV4,
    }
    .emit(&mut frame);
    Ipv4Header {
        tos,
        total_len: len as u16,
        identification: 7,
        dont_fragment: true,
        ttl: 64,
        protocol: 17,
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
    }
    .emit(&mut frame[14..]);
    frame
}

#[test]
fn a_perfect_link_delivers_everything_in_order_at_once() {
    let mut link = link(LinkParams::default());
    assert_eq!(offer(&mut link, 100, 60, 0), []);
    let tags: Vec<_> = deliveries(&mut link)
        .iter()
        .map(|d| (d.at.0, d.tag))
        .collect();
    assert_eq!(tags, (0..100).map(|i| (0, i)).collect::<Vec<_>>());
}

#[test]
fn the_rate_spaces_frames_and_the_delay_is_added() {
    let mut link = link(LinkParams {
        rate: 8_000_000,
        delay_ns: 5 * MS,
        ..LinkParams::default()
    });
    offer(&mut link, 3, 1000, 0);
    assert_eq!(link.next_deadline(), Some(Instant(6 * MS)));
    assert_eq!(link.poll(Instant(6 * MS - 1)), None);
    let at: Vec<_> = deliveries(&mut link).iter().map(|d| d.at.0).collect();
    assert_eq!(at, [6 * MS, 7 * MS, 8 * MS]);
}

#[test]
fn a_full_queue_drops_the_tail_by_bytes_or_by_frames() {
    let limits = [
        QueueParams {
            bytes_max: 5000,
            ..QueueParams::default()
        },
        QueueParams {
            packets_max: 5,
            ..QueueParams::default()
        },
    ];
    for queue in limits {
        let mut link = link(LinkParams {
            rate: 8_000_000,
            queue,
            ..LinkParams::default()
        });
        assert_eq!(offer(&mut link, 8, 1000, 0), [DropReason::QueueFull; 3]);
        assert_eq!(
            link.offer(Instant(MS), vec![0; 1000], 8),
            Ok(()),
            "one left"
        );
        assert_eq!(link.counters().dropped_queue_full, 3);
        assert_eq!(link.counters().queue_bytes_max, 5000);
        assert_eq!(deliveries(&mut link).len(), 6);
    }
}

#[test]
fn packets_that_can_carry_a_mark_get_one_beyond_the_threshold() {
    for (tos, marked) in [(0, 0), (0xb8 | 1, 3), (2, 3), (3, 0)] {
        let mut link = link(LinkParams {
            rate: 8_000_000,
            queue: QueueParams {
                mark_bytes: 1500,
                ..QueueParams::default()
            },
            ..LinkParams::default()
        });
        for i in 0..5 {
            link.offer(Instant::ZERO, packet(tos, 986), i).unwrap();
        }
        let arrived = deliveries(&mut link);
        for (i, delivery) in arrived.iter().enumerate() {
            let header = Ipv4Packet::parse(&delivery.bytes[14..]).unwrap().header;
            let is_marked = i >= 2 && marked != 0;
            assert_eq!(header.tos, if is_marked { tos | 3 } else { tos });
        }
        assert_eq!(link.counters().marked, marked);
    }
}

#[test]
fn ipv6_packets_are_marked_and_other_frames_are_not() {
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[15] = 0x20;
    assert_eq!(Codepoint::of(&frame), Some(Codepoint::Ect0));
    assert!(ecn::mark(&mut frame));
    assert_eq!(Codepoint::of(&frame), Some(Codepoint::Ce));
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(Codepoint::of(&frame), None);
    assert!(!ecn::mark(&mut frame));
}

#[test]
fn a_policer_lets_its_burst_and_then_its_rate_pass() {
    let mut link = link(LinkParams {
        policer: Some(Policer {
            rate: 8_000_000,
            burst_bytes: 10_000,
        }),
        ..LinkParams::default()
    });
    // Twice the rate, for 100 ms: the burst and 100 frames pass.
    let dropped = offer(&mut link, 200, 1000, MS / 2);
    assert!(dropped.iter().all(|why| *why == DropReason::Policed));
    let passed = deliveries(&mut link).len();
    assert!((108..=111).contains(&passed), "{passed}");
}

#[test]
fn random_impairments_occur_with_their_probability() {
    let mut link = link(LinkParams {
        delay_ns: 0,
        ..LinkParams::ROUGH
    });
    let sent = 20_000;
    offer(&mut link, sent, 100, 0);
    let arrived = deliveries(&mut link);
    let share = |count: u64| count as f64 / f64::from(sent);
    let counters = *link.counters();
    assert!((0.045..0.055).contains(&share(counters.dropped_lost)));
    assert!((0.043..0.052).contains(&share(counters.duplicated)));
    assert!((0.09..0.11).contains(&share(counters.reordered)));
    let damaged = arrived.iter().filter(|d| d.bytes != [0x55; 100]).count() as u64;
    assert_eq!(damaged, counters.corrupted);
    assert!((0.008..0.012).contains(&share(damaged)));
    assert_eq!(
        arrived.len() as u64,
        counters.offered - counters.dropped() + counters.duplicated
    );
}

#[test]
fn damage_that_no_checksum_would_notice_is_a_cut() {
    let mut link = link(LinkParams {
        corruption: Share::percent(100),
        ..LinkParams::default()
    });
    let mut arp = vec![0; 42];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    for i in 0..1000 {
        link.offer(Instant::ZERO, arp.clone(), i).unwrap();
    }
    let arrived = deliveries(&mut link);
    assert_eq!(arrived.len(), 1000);
    assert!(arrived.iter().all(|it| it.bytes.len() < arp.len()));
}

#[test]
fn loss_bursts_have_their_probability_and_length() {
    let mut link = link(LinkParams {
        loss: Loss::bursts_of(8, Share::percent(2)),
        ..LinkParams::default()
    });
    let sent = 400_000;
    let mut bursts = 0;
    let mut was_lost = false;
    for i in 0..sent {
        let is_lost = link.offer(Instant::ZERO, vec![0; 60], i).is_err();
        bursts += u64::from(is_lost && !was_lost);
        was_lost = is_lost;
    }
    let lost = link.counters().dropped_lost;
    let share = lost as f64 / f64::from(sent);
    assert!((0.016..0.024).contains(&share), "{share}");
    let mean = lost as f64 / bursts as f64;
    assert!((7.0..9.0).contains(&mean), "{mean}");
}

#[test]
fn jitter_keeps_the_order_and_reordering_does_not() {
    let params = LinkParams {
        delay_ns: 10 * MS,
        jitter_ns: 5 * MS,
        ..LinkParams::default()
    };
    let mut jittery = link(params);
    offer(&mut jittery, 1000, 60, MS / 10);
    let arrived = deliveries(&mut jittery);
    assert!(arrived.is_sorted_by_key(|d| d.tag));
    for delivery in &arrived {
        let sent_at = u64::from(delivery.tag) * (MS / 10);
        assert!((10 * MS..=15 * MS).contains(&(delivery.at.0 - sent_at)));
    }
    let mut reordering = link(LinkParams {
        reordering: Share::percent(5),
        reorder_ns: 5 * MS,
        ..params
    });
    offer(&mut reordering, 1000, 60, MS / 10);
    assert!(!deliveries(&mut reordering).is_sorted_by_key(|d| d.tag));
}

#[test]
fn changes_take_effect_at_their_time_in_any_order_of_input() {
    let params = LinkParams::default();
    let mut link = link(params);
    link.change_at(Instant(20), params);
    link.change_at(Instant(10), params.cut());
    let outcome: Vec<_> = [5, 10, 19, 20]
        .map(|at| link.offer(Instant(at), vec![0; 60], 0))
        .into();
    assert_eq!(
        outcome,
        [Ok(()), Err(DropReason::Cut), Err(DropReason::Cut), Ok(())]
    );
}

#[test]
fn frames_over_the_mtu_are_dropped_with_an_icmp_error() {
    let mut link = link(LinkParams {
        mtu: 1400,
        ..LinkParams::default()
    });
    assert_eq!(link.offer(Instant::ZERO, packet(0, 1400), 0), Ok(()));
    let frame = packet(0, 1401);
    assert_eq!(
        link.offer(Instant::ZERO, frame.clone(), 1),
        Err(DropReason::TooBig)
    );
    let router = Ipv4Addr::new(10, 0, 0, 254);
    let answer = too_big::answer(&frame, 1400, router.into()).unwrap();
    let packet = Ipv4Packet::parse(&answer[14..]).unwrap();
    assert_eq!(packet.header.src, router);
    assert_eq!(packet.header.dst, Ipv4Addr::new(10, 0, 0, 1));
    let message = IcmpMessage::parse(packet.payload).unwrap();
    let kind = IcmpKind::DestinationUnreachable { code: 4, mtu: 1400 };
    assert_eq!(message.kind, kind);
    assert!(frame[14..].starts_with(message.body));
    assert_eq!(
        too_big::answer(&answer, 500, router.into()),
        None,
        "an error"
    );
}

#[test]
fn an_ipv6_router_reports_oversized_packets_by_icmpv6() {
    let (from, to) = (
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
    );
    let router = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 254);
    let mut frame = vec![0; 14 + 1500];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 1460,
        next_header: 6,
        hop_limit: 64,
        src: from,
        dst: to,
    }
    .emit(&mut frame[14..]);
    let answer = too_big::answer(&frame, 1400, router.into()).unwrap();
    assert!(answer.len() <= 14 + 1280, "RFC 4443 2.4");
    let packet = Ipv6Packet::parse(&answer[14..]).unwrap();
    assert_eq!((packet.header.src, packet.header.dst), (router, from));
    let message = Icmpv6Message::parse(router, from, packet.payload).unwrap();
    assert_eq!(message.kind, Icmpv6Kind::PacketTooBig { mtu: 1400 });
    assert!(frame[14..].starts_with(message.body));
    let again = too_big::answer(&answer, 1280, router.into());
    assert_eq!(again, None, "an error");
    let other = Ipv4Addr::new(10, 0, 0, 254).into();
    assert_eq!(too_big::answer(&frame, 1400, other), None);
}

#[test]
fn the_audit_finds_a_frame_counted_wrongly() {
    let spoils: [fn(&mut Link<u32>); 5] = [
        |link| link.counters.offered += 1,
        |link| link.counters.delivered += 1,
        |link| link.counters.duplicated += 1,
        |link| link.counters.on_drop(DropReason::Lost),
        |link| drop(link.wire.pop(Instant::FAR_FUTURE)),
    ];
    for spoil in spoils {
        let mut link = link(LinkParams::ROUGH);
        offer(&mut link, 100, 100, 1000);
        assert_eq!(link.balance(), Ok(()));
        spoil(&mut link);
        assert!(link.balance().is_err());
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome_frame_by_frame() {
    let run = || {
        let mut link = link(LinkParams {
            jitter_ns: MS,
            ..LinkParams::ROUGH
        });
        offer(&mut link, 500, 100, 1000);
        deliveries(&mut link)
    };
    assert_eq!(run(), run());
}

#[test]
fn invalid_link_parameters_are_refused() {
    let queue = QueueParams {
        packets_max: 1,
        ..QueueParams::default()
    };
    let perfect = LinkParams::default();
    let rows = [
        (
            LinkParams { queue, ..perfect },
            ParamsError::QueueWithoutRate,
        ),
        (
            LinkParams {
                policer: Some(Policer {
                    rate: 1,
                    burst_bytes: 0,
                }),
                ..perfect
            },
            ParamsError::EmptyPolicer,
        ),
        (
            LinkParams {
                reordering: Share::percent(1),
                ..perfect
            },
            ParamsError::ReorderingWithoutDelay,
        ),
    ];
    for (params, error) in rows {
        assert_eq!(params.check(), Err(error));
    }
}
