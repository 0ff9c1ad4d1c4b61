use super::*;
use alloc::format;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use slipstack_terms::Carried;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').unwrap();
    Prefix::new(ip(addr), len.parse().unwrap())
}

fn via(fib: &mut Fib, table: u32, net: &str, gateway: &str, metric: u32) -> Result<(), FibError> {
    let entry = Entry {
        metric,
        ..Entry::new(prefix(net), Target::Via(ip(gateway)))
    };
    fib.add(table, entry)
}

fn found(fib: &Fib, query: &Query) -> Option<IpAddr> {
    match fib.find(query)?.target {
        Target::Via(gateway) => Some(gateway),
        _ => None,
    }
}

#[test]
fn the_longest_prefix_wins_and_then_the_smallest_metric() {
    // RFC 1812 5.2.4.
    let mut fib = Fib::default();
    via(&mut fib, MAIN, "0.0.0.0/0", "10.0.0.1", 20).unwrap();
    via(&mut fib, MAIN, "0.0.0.0/0", "10.0.0.2", 10).unwrap();
    via(&mut fib, MAIN, "192.168.0.0/16", "10.0.0.3", 0).unwrap();
    via(&mut fib, MAIN, "192.168.7.0/24", "10.0.0.4", 90).unwrap();
    via(&mut fib, MAIN, "192.168.7.9/32", "10.0.0.5", 0).unwrap();
    for (dst, want) in [
        ("8.8.8.8", "10.0.0.2"),
        ("192.168.8.1", "10.0.0.3"),
        ("192.168.7.1", "10.0.0.4"),
        ("192.168.7.9", "10.0.0.5"),
    ] {
        assert_eq!(found(&fib, &Query::to(ip(dst))), Some(ip(want)), "{dst}");
    }
    let again = via(&mut fib, MAIN, "0.0.0.0/0", "10.0.0.9", 10);
    assert_eq!(again, Err(FibError::Exists));
    assert_eq!(fib.retain(MAIN, |entry| entry.metric != 10), 1);
    assert_eq!(found(&fib, &Query::to(ip("8.8.8.8"))), Some(ip("10.0.0.1")));
}

#[test]
fn routing_rules_apply_in_the_order_of_their_priorities() {
    let mut fib = Fib::default();
    via(&mut fib, LOCAL, "10.0.0.5/32", "10.9.9.0", 0).unwrap();
    via(&mut fib, MAIN, "0.0.0.0/0", "10.9.9.1", 0).unwrap();
    via(&mut fib, 100, "0.0.0.0/0", "10.9.9.2", 0).unwrap();
    via(&mut fib, 101, "172.16.0.0/12", "10.9.9.3", 0).unwrap();
    via(&mut fib, 102, "0.0.0.0/0", "10.9.9.4", 0).unwrap();
    via(&mut fib, DEFAULT, "0.0.0.0/0", "10.9.9.5", 0).unwrap();
    let from = Rule {
        from: prefix("10.1.0.0/16"),
        ..Rule::new(1000, 100)
    };
    // A table without a route for the destination passes it on.
    let to = Rule {
        to: prefix("172.0.0.0/8"),
        ..Rule::new(900, 101)
    };
    let marked = Rule {
        mark: Some((0x10, 0xf0)),
        tos: Some(0x08),
        ..Rule::new(800, 102)
    };
    for rule in [from, to, marked] {
        fib.add_rule(rule).unwrap();
    }
    assert_eq!(fib.add_rule(from), Err(FibError::Exists));
    let ask = |src: Option<&str>, dst: &str, mark, tos| Query {
        src: src.map(ip),
        dst: ip(dst),
        choice: Choice {
            mark,
            ..Choice::NONE
        },
        tos,
        carried: Carried::NOTHING,
    };
    for (query, want) in [
        (ask(None, "8.8.8.8", 0, 0), "10.9.9.1"),
        (ask(Some("10.1.2.3"), "8.8.8.8", 0, 0), "10.9.9.2"),
        (ask(Some("10.2.2.3"), "8.8.8.8", 0, 0), "10.9.9.1"),
        (ask(Some("10.1.2.3"), "172.16.1.1", 0, 0), "10.9.9.3"),
        (ask(Some("10.1.2.3"), "172.99.1.1", 0, 0), "10.9.9.2"),
        (ask(None, "172.99.1.1", 0, 0), "10.9.9.1"),
        (ask(None, "8.8.8.8", 0x1f, 0x08), "10.9.9.4"),
        (ask(None, "8.8.8.8", 0x1f, 0), "10.9.9.1"),
        (ask(None, "8.8.8.8", 0x2f, 0x08), "10.9.9.1"),
        (ask(None, "10.0.0.5", 0x1f, 0x08), "10.9.9.0"),
    ] {
        assert_eq!(found(&fib, &query), Some(ip(want)), "{query:?}");
    }
    assert!(!fib.is_by_destination());
    // As on Linux, the last table is used when main has no match.
    fib.retain(MAIN, |_| false);
    let query = ask(None, "8.8.8.8", 0, 0);
    assert_eq!(found(&fib, &query), Some(ip("10.9.9.5")));
}

#[test]
fn an_unreachable_route_refuses_and_a_throw_route_continues_with_the_next_rule() {
    let mut fib = Fib::default();
    via(&mut fib, MAIN, "::/0", "fe80::1", 0).unwrap();
    fib.add_rule(Rule::new(10, 7)).unwrap();
    let add = |fib: &mut Fib, net: &str, target| fib.add(7, Entry::new(prefix(net), target));
    add(&mut fib, "2001:db8::/32", Target::Unreachable).unwrap();
    add(&mut fib, "2001:db8:1::/48", Target::Throw).unwrap();
    let ask = |dst: &str| found(&fib, &Query::to(ip(dst)));
    assert_eq!(ask("2001:db8:9::1"), None);
    assert_eq!(ask("2001:db8:1::1"), Some(ip("fe80::1")));
    assert_eq!(ask("2001:4::1"), Some(ip("fe80::1")));
}

#[test]
fn the_number_of_rules_is_bounded() {
    let mut fib = Fib::default();
    let added = (0..20_000).filter(|&n| fib.add_rule(Rule::new(n + 1, n)).is_ok());
    assert_eq!(added.count(), RULES_MAX - 3);
}

#[test]
fn compiled_rules_decide_as_the_rules_do() {
    let mut fib = Fib::default();
    let from = |net: &str, priority, table| Rule {
        from: prefix(net),
        ..Rule::new(priority, table)
    };
    let rules = [
        from("10.0.0.1/32", 10, 1),
        from("10.0.0.2/32", 10, 2),
        from("10.0.0.1/32", 20, 3),
        from("10.0.0.0/24", 20, 4),
        Rule {
            to: prefix("192.168.0.0/16"),
            ..from("10.0.0.3/32", 30, 5)
        },
    ];
    fib.add_rules(rules.into_iter());
    for table in [2, 3, 4, 5, MAIN] {
        via(&mut fib, table, "0.0.0.0/0", &format!("10.9.0.{table}"), 0).unwrap();
    }
    // A table without a route passes the packet on.
    via(&mut fib, 1, "172.16.0.0/12", "10.9.0.1", 0).unwrap();
    let mut joined = fib.clone();
    joined.build_index();
    for src in [
        None,
        Some("10.0.0.1"),
        Some("10.0.0.2"),
        Some("10.0.0.3"),
        Some("10.0.1.1"),
    ] {
        for dst in ["8.8.8.8", "172.16.0.1", "192.168.0.1"] {
            let query = Query::between(src.map(ip), ip(dst));
            assert_eq!(joined.find(&query), fib.find(&query), "{query:?}");
        }
    }
    let query = Query::between(Some(ip("10.0.0.1")), ip("8.8.8.8"));
    assert_eq!(found(&joined, &query), Some(ip("10.9.0.3")));
}

#[test]
fn a_chosen_table_or_link_takes_precedence_over_the_rules() {
    let mut fib = Fib::default();
    let by = |fib: &mut Fib, table, gateway: &str, link| {
        let entry = Entry {
            link,
            metric: u32::from(link),
            ..Entry::new(Prefix::ALL, Target::Via(ip(gateway)))
        };
        fib.add(table, entry).unwrap();
    };
    by(&mut fib, MAIN, "10.0.0.1", 0);
    by(&mut fib, MAIN, "10.0.7.1", 7);
    by(&mut fib, 100, "10.0.9.1", 9);
    let asked = |choice| Query::to(ip("8.8.8.8")).by(choice);
    let table = |table| {
        asked(Choice {
            table,
            ..Choice::NONE
        })
    };
    let link = |link| {
        let link = Choice::link_of(link);
        asked(Choice {
            link,
            ..Choice::NONE
        })
    };
    assert_eq!(found(&fib, &table(100)), Some(ip("10.0.9.1")));
    assert_eq!(found(&fib, &table(101)), None);
    assert_eq!(found(&fib, &link(7)), Some(ip("10.0.7.1")));
    // As on Linux, without a route the destination is on that link.
    let there = fib.find(&link(9)).unwrap();
    assert_eq!((there.target, there.link), (Target::OnLink, 9));
}

fn entries() -> impl Strategy<Value = Vec<(u128, u8, u32)>> {
    // Few bits, so that prefixes are nested.
    let bits = prop_oneof![any::<u128>(), (0u128..16).prop_map(|n| n << 124)];
    proptest::collection::vec((bits, 0u8..=128, 0u32..4), 0..60)
}

proptest! {
    #[test]
    fn a_table_lookup_equals_a_linear_search(
        routes in entries(),
        asked in proptest::collection::vec(any::<u128>(), 1..40),
        v4: bool,
    ) {
        let address = |bits: u128| -> IpAddr {
            if v4 {
                Ipv4Addr::from_bits((bits >> 96) as u32).into()
            } else {
                Ipv6Addr::from_bits(bits).into()
            }
        };
        let mut table = Table::default();
        let mut all: Vec<Entry> = Vec::new();
        for (bits, len, metric) in routes {
            let prefix = Prefix::new(address(bits), len);
            let entry = Entry { metric, ..Entry::new(prefix, Target::OnLink) };
            let is_new = !all.iter().any(|e| e.prefix == prefix && e.metric == metric);
            prop_assert_eq!(table.add(entry), is_new);
            if is_new {
                all.push(entry);
            }
        }
        let mut indexed = table.clone();
        indexed.index = Some(Index::of(&indexed.lengths));
        let own: Vec<u128> = all.iter().map(|entry| entry.prefix.bits | 1).collect();
        for dst in asked.into_iter().chain(own) {
            let fitting = all.iter().filter(|e| e.prefix.contains(bits(address(dst))));
            let want = fitting.max_by_key(|e| (e.prefix.len, u32::MAX - e.metric));
            prop_assert_eq!(table.find(address(dst)), want);
            prop_assert_eq!(indexed.find(address(dst)), want);
        }
        prop_assert_eq!(table.entries().count(), all.len());
    }
}

#[test]
fn connected_networks_are_in_every_table_that_is_not_standard() {
    let mut fib = Fib::default();
    for table in [MAIN, 20, 4096] {
        via(&mut fib, table, "0.0.0.0/0", "10.9.9.1", 0).unwrap();
    }
    via(&mut fib, 20, "10.1.0.0/24", "10.9.9.2", 0).unwrap();
    via(&mut fib, 20, "10.2.0.7/32", "10.9.9.3", 0).unwrap();
    let by = |table: u16, dst: &str| {
        let choice = Choice {
            table,
            ..Choice::NONE
        };
        Query::to(ip(dst)).by(choice)
    };
    assert_eq!(found(&fib, &by(4096, "10.2.0.9")), Some(ip("10.9.9.1")));
    let networks = ["10.1.0.0/24", "10.2.0.0/24", "10.2.0.0/24"];
    let networks = networks.map(|net| Entry::new(prefix(net), Target::OnLink));
    fib.connect_all(networks.into_iter());
    fib.build_index();
    for (table, dst, gateway) in [
        (20, "10.2.0.9", None),
        (4096, "10.1.0.9", None),
        (4096, "8.8.8.8", Some("10.9.9.1")),
        // A route of the table is longer, or as long.
        (20, "10.2.0.7", Some("10.9.9.3")),
        (20, "10.1.0.9", Some("10.9.9.2")),
        (254, "10.2.0.9", Some("10.9.9.1")),
        // A table without any route.
        (30, "10.2.0.9", None),
    ] {
        let query = by(table, dst);
        let is_found = fib.find(&query).is_some();
        let gateway = gateway.map(ip);
        assert_eq!(
            (is_found, found(&fib, &query)),
            (true, gateway),
            "{table} {dst}"
        );
    }
    assert_eq!(fib.find(&by(30, "8.8.8.8")), None);
}
