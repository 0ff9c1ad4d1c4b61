use super::*;

fn prefix(text: &str, value: u32) -> Prefix {
    (net(text), value)
}

fn find(table: &Table, ip: &str) -> Option<u32> {
    table.find(value(ip.parse().unwrap()))
}

#[test]
fn the_longest_prefix_of_the_family_counts() {
    let table = Table::new(&[
        prefix("10.0.0.0/8", 1),
        prefix("10.1.0.0/16", 2),
        prefix("10.1.255.255/32", 3),
        prefix("255.255.255.255/32", 4),
        prefix("::/0", 5),
        prefix("2001:db8::/32", 6),
    ]);
    for (ip, wanted) in [
        ("10.0.0.0", Some(1)),
        ("10.0.255.255", Some(1)),
        ("10.1.0.0", Some(2)),
        ("10.1.255.254", Some(2)),
        ("10.1.255.255", Some(3)),
        ("10.2.0.0", Some(1)),
        ("11.0.0.0", None),
        ("9.255.255.255", None),
        ("255.255.255.255", Some(4)),
        ("fe80::1", Some(5)),
        ("2001:db8:ffff::", Some(6)),
        ("2001:db9::", Some(5)),
    ] {
        assert_eq!(find(&table, ip), wanted, "{ip}");
    }
    assert_eq!(find(&Table::new(&[prefix("0.0.0.0/0", 9)]), "::1"), None);
}

#[test]
fn a_table_of_many_prefixes_equals_a_linear_search() {
    let mut state = 7u64;
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32
    };
    let mut prefixes: Vec<Prefix> = (0..3000)
        .map(|at| {
            let len = 8 + (draw() % 25) as u8;
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            let ip = Ipv4Addr::from_bits((draw() & 0x03ff_ffff) & mask);
            ((IpAddr::V4(ip), len), at)
        })
        .collect();
    prefixes.sort_by_key(|(net, _)| *net);
    prefixes.dedup_by_key(|(net, _)| *net);
    let table = Table::new(&prefixes);
    for _ in 0..3000 {
        let ip = draw() & 0x03ff_ffff;
        let of_it = prefixes.iter().filter(|((net, len), _)| {
            let IpAddr::V4(net) = net else { return false };
            (ip ^ net.to_bits())
                .checked_shr(32 - u32::from(*len))
                .unwrap_or(0)
                == 0
        });
        let longest = of_it
            .max_by_key(|((_, len), _)| *len)
            .map(|(_, value)| *value);
        let found = table.find(value(Ipv4Addr::from_bits(ip).into()));
        assert_eq!(found, longest, "{}", Ipv4Addr::from_bits(ip));
    }
}

#[test]
fn rules_ask_tables_and_further_conditions() {
    let with = |test: Test, is_not: bool| FilterRule {
        clauses: vec![vec![Term { is_not, test }]],
        ..rule(100, FilterAction::Deny)
    };
    let of = |value| {
        Test::Source(Addresses {
            nets: Vec::new(),
            tables: vec![(0, value)],
        })
    };
    let table = || vec![Table::new(&[prefix("10.0.0.0/8", 3)]).into()];
    let it = packet("10.0.0.1", "192.0.2.1", (4000, 80));
    let ping = Packet {
        protocol: 1,
        ports: (NO_PORT, NO_PORT),
        flags: TcpFlags::NONE,
        icmp_type: Some(8),
        ..it
    };
    let cases = [
        (with(of(None), false), it, true),
        (with(of(Some(3)), false), it, true),
        (with(of(Some(4)), false), it, false),
        (with(of(None), true), it, false),
        (with(Test::Flags { set: 2, clear: 16 }, false), it, true),
        (with(Test::Flags { set: 16, clear: 0 }, false), it, false),
        (
            with(Test::IcmpType(Numbers::of(&[0, 8])), false),
            ping,
            true,
        ),
        (with(Test::IcmpType(Numbers::of(&[0, 8])), false), it, false),
        (with(Test::Icmp6Type(Numbers::of(&[8])), false), ping, false),
        (with(Test::Ttl(vec![(1, 63)]), false), it, false),
        (with(Test::Ttl(vec![(64, 64)]), false), it, true),
        (with(Test::Len(vec![(0, 99)]), true), it, true),
        (with(Test::Fragment, false), it, false),
        (with(Test::DestinationPort(vec![(80, 80)]), false), it, true),
        (
            with(Test::DestinationPort(vec![(0, 65_535)]), false),
            ping,
            false,
        ),
    ];
    for (rule, packet, is_dropped) in cases {
        let mut filter = Filter::new(core::slice::from_ref(&rule), table());
        for _ in 0..2 {
            let found = verdict(&mut filter, &packet) == Verdict::Drop;
            assert_eq!(found, is_dropped, "{:?}", rule.clauses);
        }
    }
}
