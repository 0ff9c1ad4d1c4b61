//! Multicast groups: received packets, and reports to routers (RFC 3376, RFC 3810).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::support::*;
use slipstack_stack::{
    Counter, DatagramOut, GroupChange, GroupFilter, LinkedGroup, MulticastOption, Role,
    SocketError, UdpId, UdpOptions,
};
use slipstack_wire::checksum;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const QUERY_V3: [u8; 12] = [0x11, 20, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];

/// The group part of Ethernet, which the frames of the other tests do not have.
fn to_group(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3]);
    frame
}

fn datagram(src: Ipv4Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    to_group(udp_frame((src, 7), (GROUP, port), payload))
}

fn igmp(mut message: Vec<u8>, dst: Ipv4Addr) -> Vec<u8> {
    let sum = checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    patch_ip(to_group(ip_frame(2, PEER, dst, &message)), |ip| ip[8] = 1)
}

fn query(version: u8, group: Ipv4Addr) -> Vec<u8> {
    let mut message = match version {
        3 => QUERY_V3.to_vec(),
        2 => vec![0x11, 20, 0, 0, 0, 0, 0, 0],
        _ => vec![0x11, 0, 0, 0, 0, 0, 0, 0],
    };
    message[4..8].copy_from_slice(&group.octets());
    let everybody = Ipv4Addr::new(224, 0, 0, 1);
    igmp(
        message,
        if group.is_unspecified() {
            everybody
        } else {
            group
        },
    )
}

fn socket(table: &mut Table, port: u16) -> UdpId {
    let options = UdpOptions {
        is_shared: true,
        reuse_port: true,
        ..UdpOptions::default()
    };
    let all = at(Ipv4Addr::UNSPECIFIED, port);
    table.stack.udp_bind(all, options).unwrap()
}

fn change(table: &mut Table, udp: UdpId, change: GroupChange) {
    let option = MulticastOption::Group {
        group: GROUP.into(),
        link: 0,
        change,
    };
    table.set_multicast(udp, option).unwrap();
}

/// Returns the IGMP messages: of version 3 kind and sources' last bytes of each record, of others
/// the type.
fn said(table: &mut Table) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    for frame in table.take_frames().iter().filter(|frame| frame[23] == 2) {
        let ip = ip_of(frame);
        assert_eq!((ip.header.ttl, ip.options), (1, &[0x94, 4, 0, 0][..]));
        let message = ip.payload;
        assert!(checksum::is_valid(message));
        if message[0] != 0x22 {
            all.push((message[0], vec![message[7]]));
            continue;
        }
        assert_eq!(ip.header.dst, Ipv4Addr::new(224, 0, 0, 22));
        let mut rest = &message[8..];
        while let [kind, 0, 0, count, _, _, _, 3, more @ ..] = rest {
            let (sources, after) = more.split_at(4 * usize::from(*count));
            all.push((*kind, sources.chunks(4).map(|ip| ip[3]).collect()));
            rest = after;
        }
        assert!(rest.is_empty());
    }
    all
}

fn source(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

#[test]
fn a_member_receives_its_group_and_others_do_not() {
    // RFC 1112 7.1 and 7.2.
    let mut table = Table::new();
    let member = socket(&mut table, 1000);
    table.input(&datagram(PEER, 1000, b"early"));
    assert_eq!(table.count(Counter::DropIpv4NotOurs), 1);
    change(&mut table, member, GroupChange::Join);
    let same_port = socket(&mut table, 1000);
    let deaf = socket(&mut table, 1000);
    let all = MulticastOption::All {
        is_v6: false,
        on: false,
    };
    table.set_multicast(deaf, all).unwrap();
    table.input(&datagram(PEER, 1000, b"hello"));
    table.input(&datagram(PEER, 1001, b"nobody"));
    let heard: Vec<_> = table.fx.datagrams.iter().map(|got| got.0).collect();
    assert_eq!(heard, [member, same_port]);
    assert_eq!(table.count(Counter::DropUdpGroup), 1);
    change(&mut table, member, GroupChange::Leave);
    table.input(&datagram(PEER, 1000, b"late"));
    assert_eq!(table.count(Counter::DropIpv4NotOurs), 2);
}

#[test]
fn sources_are_chosen_for_each_socket() {
    // RFC 3376 3.1.
    let mut table = Table::new();
    let (picky, open) = (socket(&mut table, 1000), socket(&mut table, 1000));
    change(&mut table, picky, GroupChange::Include(PEER.into()));
    change(&mut table, open, GroupChange::Join);
    change(&mut table, open, GroupChange::Block(PEER.into()));
    table.input(&datagram(PEER, 1000, b"a"));
    table.input(&datagram(OTHER, 1000, b"b"));
    let heard: Vec<_> = table.fx.datagrams.iter().map(|got| got.0).collect();
    assert_eq!(heard, [picky, open]);
    let block = MulticastOption::Group {
        group: GROUP.into(),
        link: 0,
        change: GroupChange::Block(OTHER.into()),
    };
    let wrong = table.set_multicast(picky, block);
    assert_eq!(wrong, Err(SocketError::InvalidArgument));
}

#[test]
fn joining_and_leaving_are_reported_at_once_and_repeated() {
    // RFC 3376 5.1, 8.1 and 8.11.
    let mut table = Table::new();
    let udp = socket(&mut table, 1000);
    change(&mut table, udp, GroupChange::Join);
    table.pass(0);
    assert_eq!(said(&mut table), [(4, vec![])]);
    table.pass(1001);
    assert_eq!(said(&mut table), [(4, vec![])]);
    table.pass(5000);
    assert_eq!(said(&mut table), []);
    table.stack.udp_close(udp).unwrap();
    table.pass(1001);
    assert_eq!(said(&mut table), [(3, vec![]), (3, vec![])]);
    assert_eq!(table.stack.next_deadline(), None);
}

#[test]
fn source_changes_are_reported_as_such() {
    // RFC 3376 4.2 and 5.1.
    let mut table = Table::new();
    let udp = socket(&mut table, 1000);
    change(&mut table, udp, GroupChange::Include(source(1)));
    table.pass(1001);
    assert_eq!(said(&mut table), [(5, vec![1]), (5, vec![1])]);
    change(&mut table, udp, GroupChange::Include(source(2)));
    change(&mut table, udp, GroupChange::Forgo(source(1)));
    table.pass(0);
    assert_eq!(said(&mut table), [(5, vec![2]), (6, vec![1])]);
    // A second socket wants all sources: the mode changes, whatever report was pending.
    let open = socket(&mut table, 1000);
    change(&mut table, open, GroupChange::Join);
    table.pass(1001);
    assert_eq!(said(&mut table), [(4, vec![]), (4, vec![])]);
}

#[test]
fn queries_are_answered_within_their_time() {
    // RFC 3376 4.1 and 5.2.
    let mut table = Table::new();
    let udp = socket(&mut table, 1000);
    change(&mut table, udp, GroupChange::Join);
    change(&mut table, udp, GroupChange::Block(source(1)));
    table.pass(5000);
    said(&mut table);
    table.input(&query(3, Ipv4Addr::UNSPECIFIED));
    table.input(&query(3, GROUP));
    assert_eq!(said(&mut table), []);
    table.pass(2001);
    let answers = said(&mut table);
    assert!((1..=2).contains(&answers.len()), "{answers:?}");
    assert!(answers.iter().all(|one| *one == (2, vec![1])));
    // About sources: those of them that are wanted.
    let mut asked = QUERY_V3.to_vec();
    asked[4..8].copy_from_slice(&GROUP.octets());
    asked[11] = 2;
    asked.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    table.input(&igmp(asked, GROUP));
    table.pass(2001);
    assert_eq!(said(&mut table), [(1, vec![2])]);
    assert_eq!(table.count(Counter::RxIgmpQueries), 3);
}

/// RFC 4291 2.7.
#[test]
fn interface_local_multicast_stays_in_its_host() {
    let own = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 5]);
    let mut table = Table::with(|config| config.network_mut().own_mut().addresses.push((own, 64)));
    let udp = table.bind("[::]:1000");
    for (group, leaves) in [("ff01::1234", false), ("ff02::1234", true)] {
        let to = SocketAddr::new(group.parse().unwrap(), 9);
        let out = DatagramOut::new(Some(to), b"x");
        let Table { stack, now, fx } = &mut table;
        stack.udp_send(*now, udp, &out, fx).unwrap();
        let local = std::mem::take(&mut table.fx.local);
        assert_eq!(local.contains(&false), leaves, "{group}");
        assert!(local.contains(&true), "{group}");
    }
}

/// A switch that queries in a router's place (RFC 4541 2.1.1), and a host that requests its first
/// address.
#[test]
fn a_sender_without_an_address_is_received_by_broadcast_and_not_by_unicast() {
    let mut table = Table::new();
    let udp = socket(&mut table, 67);
    change(&mut table, udp, GroupChange::Join);
    table.pass(5000);
    said(&mut table);
    let none = Ipv4Addr::UNSPECIFIED;
    let nameless = |frame| patch_ip(frame, |ip| ip[12..16].fill(0));
    table.input(&nameless(query(3, none)));
    table.input(&nameless(query(3, GROUP)));
    table.pass(2001);
    assert_eq!(table.count(Counter::RxIgmpQueries), 2);
    assert!(!said(&mut table).is_empty());
    table.input(&udp_frame(
        (none, 68),
        (Ipv4Addr::BROADCAST, 67),
        b"discover",
    ));
    let (_, from, to, _) = table.fx.datagrams.pop().unwrap();
    assert_eq!((from, to), (at(none, 68), at(Ipv4Addr::BROADCAST, 67)));
    for dst in [IP, GROUP, Ipv4Addr::new(10, 0, 0, 255)] {
        table.input(&udp_frame((none, 68), (dst, 67), b"no"));
    }
    assert_eq!(table.count(Counter::DropIpv4Martian), 3);
    assert!(table.fx.datagrams.is_empty());
}

#[test]
fn older_routers_get_reports_of_their_version() {
    // RFC 3376 7.2.1 and 8.12, RFC 2236 2, 3 and 4.
    for (version, report) in [(1, 0x12), (2, 0x16)] {
        let mut table = Table::new();
        let udp = socket(&mut table, 1000);
        table.input(&query(version, Ipv4Addr::UNSPECIFIED));
        change(&mut table, udp, GroupChange::Join);
        table.pass(0);
        assert_eq!(said(&mut table), [(report, vec![3])]);
        table.pass(20_000);
        assert_eq!(said(&mut table), [(report, vec![3])]);
        // Another member's report is answer enough.
        table.input(&query(version, Ipv4Addr::UNSPECIFIED));
        let mut other = vec![report, 0, 0, 0];
        other.extend(GROUP.octets());
        table.input(&igmp(other, GROUP));
        table.pass(20_000);
        assert_eq!(said(&mut table), []);
        assert_eq!(table.count(Counter::RxGroupReports), 1);
        table.input(&query(version, Ipv4Addr::UNSPECIFIED));
        table.pass(10_001);
        assert_eq!(said(&mut table), [(report, vec![3])]);
        change(&mut table, udp, GroupChange::Leave);
        table.pass(20_000);
        let leave: &[(u8, Vec<u8>)] = if version == 2 {
            &[(0x17, vec![3])]
        } else {
            &[]
        };
        assert_eq!(said(&mut table), leave);
        // The old router is gone.
        table.pass(260_000);
        change(&mut table, udp, GroupChange::Join);
        table.pass(0);
        assert_eq!(said(&mut table), [(4, vec![])]);
    }
}

#[test]
fn unsolicited_reports_to_an_older_router_are_repeated_within_ten_seconds() {
    // RFC 2236 8.10.
    let mut table = Table::new();
    let udp = socket(&mut table, 1000);
    table.input(&query(2, Ipv4Addr::UNSPECIFIED));
    table.pass(20_000);
    for last in 1..=8 {
        let group = Ipv4Addr::new(239, 1, 2, last).into();
        let join = MulticastOption::Group {
            group,
            link: 0,
            change: GroupChange::Join,
        };
        table.set_multicast(udp, join).unwrap();
    }
    table.pass(0);
    assert_eq!(said(&mut table).len(), 8);
    table.pass(1_001);
    let soon = said(&mut table).len();
    table.pass(9_000);
    let late = said(&mut table).len();
    assert_eq!(soon + late, 8);
    // Version 3 would have repeated all of it by then.
    assert!(late > 4, "{late}");
}

#[test]
fn malformed_and_off_link_reports_are_counted() {
    // RFC 3376 4.
    let mut table = Table::new();
    let udp = socket(&mut table, 1000);
    change(&mut table, udp, GroupChange::Join);
    table.pass(5000);
    said(&mut table);
    let routed = patch_ip(query(3, Ipv4Addr::UNSPECIFIED), |ip| ip[8] = 2);
    table.input(&routed);
    let mut damaged = query(3, Ipv4Addr::UNSPECIFIED);
    damaged[35] ^= 1;
    table.input(&damaged);
    table.pass(20_000);
    assert_eq!(said(&mut table), []);
    assert_eq!(table.count(Counter::DropIgmpMalformed), 2);
}

#[test]
fn engines_leave_reports_to_their_keeper_which_merges_them() {
    // RFC 3376 3.2.
    let mut engine = Table::with(|config| config.role = Role::Engine);
    let udp = socket(&mut engine, 1000);
    change(&mut engine, udp, GroupChange::Join);
    engine.pass(59_000);
    assert!(engine.take_frames().is_empty());
    let group = LinkedGroup {
        group: GROUP.into(),
        link: 0,
    };
    // Told at once, and again in case the keeper is a new one.
    assert_eq!(engine.fx.groups, vec![(group, GroupFilter::ALL); 2]);
    let mut keeper = Table::with(|config| config.role = Role::Keeper);
    let only = |last| GroupFilter {
        is_exclude: false,
        sources: vec![source(last)],
    };
    keeper.stack.set_slot_group(1, group, only(1));
    keeper.stack.set_slot_group(2, group, only(2));
    keeper.pass(1001);
    assert_eq!(said(&mut keeper), [(5, vec![1, 2]), (5, vec![1, 2])]);
    keeper.stack.forget_slot_groups(1);
    keeper.pass(0);
    assert_eq!(said(&mut keeper), [(6, vec![1])]);
}

#[test]
fn looped_back_multicast_keeps_its_ttl() {
    // RFC 1112 6.1 and 6.4.
    let mut table = Table::new();
    let udp = socket(&mut table, 1000);
    let out = DatagramOut::new(Some(at(GROUP, 1000)), b"x");
    let send = |table: &mut Table| {
        let sent = table.stack.udp_send(table.now, udp, &out, &mut table.fx);
        sent.unwrap();
        let local = std::mem::take(&mut table.fx.local);
        (table.take_frames(), local)
    };
    let (frames, local) = send(&mut table);
    assert_eq!(local, [true, false]);
    assert_eq!(frames[1][..6], [1, 0, 0x5e, 1, 2, 3]);
    assert_eq!(
        (ip_of(&frames[1]).header.ttl, ip_of(&frames[1]).header.src),
        (1, IP)
    );
    let set = |table: &mut Table, option| table.set_multicast(udp, option).unwrap();
    let is_v6 = false;
    set(&mut table, MulticastOption::Ttl { is_v6, ttl: 9 });
    set(&mut table, MulticastOption::Loop { is_v6, on: false });
    let (frames, local) = send(&mut table);
    assert_eq!(
        (ip_of(&frames[0]).header.ttl, &local[..]),
        (9, &[false][..])
    );
    set(&mut table, MulticastOption::Ttl { is_v6, ttl: 0 });
    assert!(send(&mut table).0.is_empty());
}
