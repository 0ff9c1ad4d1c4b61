//! Every parser of the wire crate on arbitrary bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstack_wire::arp::ArpPacket;
use slipstack_wire::ethernet::EthernetHeader;
use slipstack_wire::icmpv4::IcmpMessage;
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::tcp::TcpSegment;
use slipstack_wire::tcp_options::TcpOptions;
use slipstack_wire::udp::UdpDatagram;

fuzz_target!(|data: &[u8]| {
    let _ = EthernetHeader::parse(data);
    let _ = ArpPacket::parse(data);
    let _ = Ipv4Packet::parse(data);
    let _ = Ipv4Packet::parse_quoted(data);
    let _ = IcmpMessage::parse(data);
    let _ = UdpDatagram::parse(data);
    let _ = TcpSegment::parse(data);
    let _ = TcpOptions::parse(data);
});
