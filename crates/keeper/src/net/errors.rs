//! ICMP errors about segments and datagrams of engines.
//!
//! All ICMP arrives at the keeper's slot. An error quotes the beginning of the packet it is about;
//! it is passed to the engine that serves the quoted flow.

use slipstack_device::Flow;
use slipstack_wire::flow::FrameFlow;

use super::flows::proto_of;

/// The flow that an ICMP error quotes, as its owner sees it.
pub(super) fn quoted_flow(frame: &[u8]) -> Option<Flow> {
    let quoted = FrameFlow::parse_quoted(frame)?;
    Some(Flow {
        proto: proto_of(quoted.protocol),
        local: quoted.src,
        remote: quoted.dst,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_device::Transport;
    use slipstack_wire::protocol;

    /// Ethernet, IPv4, ICMP port unreachable, quoted UDP packet from 10.0.0.2:40000 to 10.0.0.1:53.
    fn unreachable() -> Vec<u8> {
        let ip = |proto: u8, len: u16, src: [u8; 4], dst: [u8; 4]| {
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0];
            header[2..4].copy_from_slice(&len.to_be_bytes());
            header.extend(src);
            header.extend(dst);
            let sum = header
                .chunks(2)
                .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum::<u32>();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        };
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend(ip(
            protocol::ICMP,
            20 + 8 + 28,
            [10, 0, 0, 1],
            [10, 0, 0, 2],
        ));
        frame.extend([3, 3, 0, 0, 0, 0, 0, 0]);
        frame.extend(ip(protocol::UDP, 29, [10, 0, 0, 2], [10, 0, 0, 1]));
        frame.extend(40_000u16.to_be_bytes());
        frame.extend(53u16.to_be_bytes());
        frame.extend([0, 9, 0, 0]);
        frame
    }

    #[test]
    fn the_flow_quoted_in_an_icmp_error_is_seen_from_its_sender() {
        let flow = quoted_flow(&unreachable()).unwrap();
        assert_eq!(flow.proto, Transport::Udp);
        assert_eq!(flow.local, "10.0.0.2:40000".parse().unwrap());
        assert_eq!(flow.remote, "10.0.0.1:53".parse().unwrap());
    }

    #[test]
    fn truncated_and_other_icmp_messages_quote_no_flow() {
        let whole = unreachable();
        for len in 0..whole.len() - 4 {
            assert_eq!(quoted_flow(&whole[..len]), None);
        }
        let mut echo = whole;
        echo[34] = 8;
        assert_eq!(quoted_flow(&echo), None);
    }
}
