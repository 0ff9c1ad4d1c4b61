mod flows;
mod limits;
mod tables;

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use slipstack_wire::tcp::TcpFlags;

use super::packet::{NO_PORT, value};
use super::*;

const TCP: u8 = 6;
const UDP: u8 = 17;
const NOW: Instant = Instant::from_millis(1000);

fn rule(number: u32, action: FilterAction) -> FilterRule {
    FilterRule {
        id: u64::from(number) << 16,
        number,
        is_enabled: true,
        action,
        protocol: None,
        is_v6: None,
        from: End::default(),
        to: End::default(),
        direction: None,
        link: None,
        part: None,
        clauses: Vec::new(),
        state: None,
        log: None,
    }
}

fn filter(rules: &[FilterRule]) -> Filter {
    Filter::new(rules, Vec::new())
}

fn verdict(filter: &mut Filter, packet: &Packet) -> Verdict {
    filter.verdict(NOW, packet)
}

fn net(text: &str) -> (IpAddr, u8) {
    let (ip, len) = text.split_once('/').unwrap();
    (ip.parse().unwrap(), len.parse().unwrap())
}

fn packet(src: &str, dst: &str, ports: (u32, u32)) -> Packet {
    let src: IpAddr = src.parse().unwrap();
    Packet {
        direction: FilterDirection::In,
        src: value(src),
        dst: value(dst.parse().unwrap()),
        is_v6: src.is_ipv6(),
        protocol: TCP,
        ports,
        flags: TcpFlags::SYN,
        icmp_type: None,
        is_later_fragment: false,
        ttl: 64,
        link: 0,
        len: 100,
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let mut filter = filter(&[
        FilterRule {
            protocol: Some(UDP),
            ..rule(100, FilterAction::Deny)
        },
        rule(200, FilterAction::Count),
        FilterRule {
            protocol: Some(TCP),
            from: End {
                nets: vec![net("10.0.0.0/8"), net("fd00::/16")],
                ..End::default()
            },
            to: End {
                ports: vec![(80, 80), (8000, 8999)],
                ..End::default()
            },
            direction: Some(FilterDirection::In),
            ..rule(300, FilterAction::Reset)
        },
        FilterRule {
            part: Some(FilterPart::Setup),
            ..rule(400, FilterAction::Unreach(UnreachCode::Port))
        },
        rule(500, FilterAction::Allow),
    ]);
    let it = packet("10.1.2.3", "192.0.2.1", (4000, 8080));
    assert_eq!(verdict(&mut filter, &it), Verdict::Reset);
    let udp = Packet {
        protocol: UDP,
        ..it
    };
    assert_eq!(verdict(&mut filter, &udp), Verdict::Drop);
    let v6 = packet("fd00::1", "fd00::2", (4000, 80));
    assert_eq!(verdict(&mut filter, &v6), Verdict::Reset);
    let other = packet("11.0.0.1", "192.0.2.1", (4000, 80));
    assert_eq!(
        verdict(&mut filter, &other),
        Verdict::Unreach(UnreachCode::Port)
    );
    let out = Packet {
        direction: FilterDirection::Out,
        flags: TcpFlags::ACK,
        ..it
    };
    assert_eq!(verdict(&mut filter, &out), Verdict::Pass);
    let counts: Vec<u64> = filter.counts().map(|(_, count)| count.packets).collect();
    assert_eq!(counts, [1, 4, 2, 1, 1, 0]);
    filter.zero(Some(&[200 << 16]), false);
    assert_eq!(filter.counts().nth(1).unwrap().1, Count::default());
}

#[test]
fn negations_and_packets_without_ports_are_distinguished() {
    let but = |is_not, is_not_ports| FilterRule {
        from: End {
            nets: vec![net("10.0.0.0/8")],
            is_not,
            ports: vec![(53, 53)],
            is_not_ports,
        },
        ..rule(1, FilterAction::Deny)
    };
    let table = [
        (but(false, false), "10.0.0.1", 53, true),
        (but(false, false), "10.0.0.1", NO_PORT, false),
        (but(true, false), "10.0.0.1", 53, false),
        (but(true, false), "9.255.255.255", 53, true),
        (but(true, false), "11.0.0.0", 53, true),
        (but(true, true), "11.0.0.0", 53, false),
        (but(true, true), "11.0.0.0", 54, true),
        (but(true, true), "11.0.0.0", NO_PORT, false),
    ];
    for (rule, src, port, is_dropped) in table {
        let it = packet(src, "192.0.2.1", (port, NO_PORT));
        let verdict = verdict(&mut filter(&[rule]), &it);
        assert_eq!(verdict == Verdict::Drop, is_dropped, "{src} {port}");
    }
}

#[test]
fn skipto_continues_at_the_named_rule() {
    let mut filter = filter(&[
        rule(100, FilterAction::SkipTo(250)),
        rule(200, FilterAction::Deny),
        rule(300, FilterAction::Count),
    ]);
    let it = packet("10.0.0.1", "10.0.0.2", (1, 2));
    assert_eq!(verdict(&mut filter, &it), Verdict::Pass);
    let counts: Vec<u64> = filter.counts().map(|(_, count)| count.packets).collect();
    assert_eq!(
        counts,
        [1, 0, 1, 1],
        "the last one is of the rule for the rest"
    );
    filter.zero(Some(&[REST]), false);
    assert_eq!(filter.counts().last().unwrap(), (REST, Count::default()));
    let mut end = self::filter(&[
        rule(100, FilterAction::SkipTo(65_535)),
        rule(200, FilterAction::Deny),
    ]);
    assert_eq!(verdict(&mut end, &it), Verdict::Pass);
}

/// The walk over the rules that the classifier replaces.
fn walk(rules: &[FilterRule], it: &Packet) -> Option<usize> {
    let is_in = |end: &End, ip: u128, port: u32| {
        let is_host = end.nets.is_empty()
            || end.is_not
                != end.nets.iter().any(|(net, len)| {
                    let bits = if net.is_ipv4() { 96 + len } else { *len };
                    bits == 0 || (value(*net) ^ ip) >> (128 - u32::from(bits)) == 0
                });
        let is_port = end.ports.is_empty()
            || end
                .ports
                .iter()
                .any(|(low, high)| (u32::from(*low)..=u32::from(*high)).contains(&port));
        is_host && is_port
    };
    rules.iter().position(|rule| {
        rule.protocol.is_none_or(|it_is| it_is == it.protocol)
            && rule.direction.is_none_or(|it_is| it_is == it.direction)
            && rule.link.is_none_or(|it_is| it_is == it.link)
            && (rule.part.is_none()
                || (rule.part == Some(FilterPart::Setup) && it.is_setup())
                || (rule.part == Some(FilterPart::Established) && it.is_established()))
            && is_in(&rule.from, it.src, it.ports.0)
            && is_in(&rule.to, it.dst, it.ports.1)
    })
}

#[test]
fn the_classifier_equals_a_walk_over_the_rules() {
    let mut state = 1u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for round in 0..60 {
        let end = |draw: &mut dyn FnMut(u64) -> u64| {
            let host = |draw: &mut dyn FnMut(u64) -> u64| {
                IpAddr::V4(Ipv4Addr::new(10, 0, draw(3) as u8, draw(8) as u8))
            };
            let nets = (0..draw(3)).map(|_| (host(draw), 22 + draw(11) as u8));
            let nets = nets.collect();
            let ports = (0..draw(2)).map(|_| {
                let low = draw(6) as u16;
                (low, low + draw(3) as u16)
            });
            End {
                nets,
                ports: ports.collect(),
                is_not: draw(4) == 0,
                is_not_ports: false,
            }
        };
        let count = 1 + draw(200);
        let rules: Vec<FilterRule> = (0..count)
            .map(|at| FilterRule {
                protocol: [None, Some(TCP), Some(UDP)][draw(3) as usize],
                from: end(&mut draw),
                to: end(&mut draw),
                direction: [None, Some(FilterDirection::In), Some(FilterDirection::Out)]
                    [draw(3) as usize],
                link: [None, None, Some(7)][draw(3) as usize],
                part: [None, None, Some(FilterPart::Established)][draw(3) as usize],
                ..rule(at as u32, FilterAction::Deny)
            })
            .collect();
        let classifier = Classifier::new(&rules);
        for _ in 0..200 {
            let it = Packet {
                direction: [FilterDirection::In, FilterDirection::Out][draw(2) as usize],
                src: value(Ipv4Addr::new(10, 0, draw(4) as u8, draw(9) as u8).into()),
                dst: value(Ipv4Addr::new(10, 0, draw(4) as u8, draw(9) as u8).into()),
                is_v6: false,
                protocol: [TCP, UDP, 1][draw(3) as usize],
                ports: (draw(9) as u32, draw(9) as u32),
                flags: TcpFlags(0x10 * draw(2) as u8),
                icmp_type: None,
                is_later_fragment: false,
                ttl: 64,
                link: [0, 7][draw(2) as usize],
                len: 1,
            };
            assert_eq!(
                classifier.matching(&it).first(0),
                walk(&rules, &it),
                "round {round}: {it:?}"
            );
        }
    }
}
