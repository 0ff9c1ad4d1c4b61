//! Every parser of the wire crate on arbitrary bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstack_wire::arp::ArpPacket;
use slipstack_wire::ethernet::EthernetHeader;
use slipstack_wire::fast_open::FastOpen;
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::frame_fragment::FrameFragment;
use slipstack_wire::icmpv4::IcmpMessage;
use slipstack_wire::icmpv6::Icmpv6Message;
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::ipv6_extensions::{find_quoted, walk};
use slipstack_wire::mld::Query;
use slipstack_wire::ndp::{Neighbour, Redirect, RouterAdvertisement};
use slipstack_wire::tcp::TcpSegment;
use slipstack_wire::tcp_options::TcpOptions;
use slipstack_wire::udp::UdpDatagram;
use slipstack_wire::user_timeout::UserTimeout;

fuzz_target!(|data: &[u8]| {
    let _ = EthernetHeader::parse(data);
    let _ = ArpPacket::parse(data);
    let _ = Ipv4Packet::parse(data);
    let _ = Ipv4Packet::parse_quoted(data);
    let _ = IcmpMessage::parse(data);
    let _ = UdpDatagram::parse(data);
    let _ = TcpSegment::parse(data);
    let _ = TcpOptions::parse(data);
    let _ = FastOpen::find(data);
    let _ = UserTimeout::find(data);
    ipv6(data);
});

fn ipv6(data: &[u8]) {
    let _ = Ipv6Packet::parse(data);
    let _ = Ipv6Packet::parse_quoted(data);
    let _ = FrameFlow::parse(data);
    let _ = FrameFlow::parse_quoted(data);
    let _ = FrameFragment::parse(data);
    let any = core::net::Ipv6Addr::UNSPECIFIED;
    let _ = Icmpv6Message::parse(any, any, data);
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let _ = walk(*first, rest);
    let _ = find_quoted(*first, rest);
    let _ = Neighbour::parse_solicitation(rest);
    let _ = Neighbour::parse_advertisement(rest);
    let _ = Redirect::parse(rest);
    let _ = Query::parse([*first; 4], rest);
    if let Some(advertisement) = RouterAdvertisement::parse([*first; 4], rest) {
        assert!(advertisement.prefixes().count() <= slipstack_wire::ndp::PREFIXES_MAX);
    }
}
