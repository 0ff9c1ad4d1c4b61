//! Datagrams without a checksum.

use std::net::Ipv6Addr;
use std::num::NonZeroU16;

use crate::support::*;
use slipstack_stack::{Counter, DatagramOut, SocketError, SocketOption};
use slipstack_wire::protocol;
use slipstack_wire::udp::{self, UdpDatagram};

const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);

#[test]
fn a_datagram_without_checksum_is_sent_alone() {
    let mut table = Table::new();
    table.introduce_peer();
    let udp = table.bind("0.0.0.0:1000");
    let option = SocketOption::NoChecksum(true);
    table.stack.udp_set_option(udp, option).unwrap();
    let mut send = |segment| {
        let datagram = DatagramOut {
            segment,
            ..DatagramOut::new(Some(at(PEER, 7)), b"odd")
        };
        let (now, fx) = (table.now, &mut table.fx);
        let sent = table.stack.udp_send(now, udp, &datagram, fx);
        sent.map(|()| table.take_frames())
    };
    let frames = send(None).unwrap();
    let packet = ip_of(&frames[0]);
    assert_eq!(UdpDatagram::parse(packet.payload).unwrap().checksum, 0);
    let cut = send(NonZeroU16::new(2));
    assert_eq!(cut, Err(SocketError::InvalidArgument));
}

#[test]
fn over_ipv6_a_datagram_without_checksum_needs_a_socket_that_takes_it() {
    let mut table = Table::with(|config| {
        let own = config.network_mut().own_mut();
        own.addresses.push((OWN.into(), 64));
    });
    let udp = table.bind("[fd00::5]:1000");
    let bytes = [&udp::header(7, 1000, 5)[..], b"hello"].concat();
    let bare = packet6(PEER_MAC, protocol::UDP, (PEER6, OWN), 64, &bytes);
    table.input(&bare);
    assert_eq!(table.count(Counter::DropUdpChecksum), 1);
    let option = SocketOption::TakesNoChecksumV6(true);
    table.stack.udp_set_option(udp, option).unwrap();
    table.input(&bare);
    assert_eq!(table.fx.datagrams.len(), 1);
}
