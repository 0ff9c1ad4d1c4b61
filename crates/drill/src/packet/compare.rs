//! Comparison of a sent packet with the one that a script expects.

use slipstack_wire::icmpv4::IcmpKind;
use slipstack_wire::tcp::TcpHeader;

use super::{
    Ecn, Flow, IcmpSpec, LiveBody, LivePacket, PacketBody, PacketSpec, TcpOption, TcpSpec, text,
};

/// Compares, and learns the mapping of the script's numbers from the first segments.
///
/// # Errors
/// The difference.
pub fn compare(
    spec: &PacketSpec,
    live: &LivePacket,
    flow: &mut Flow,
    timestamp_tolerance: u32,
) -> Result<(), String> {
    let is_same = match (&spec.body, &live.body) {
        (
            PacketBody::Tcp(spec),
            LiveBody::Tcp {
                header,
                options,
                len,
            },
        ) => {
            learn(spec, header, options, flow);
            let expected = relative(header, options, *len, flow);
            is_same_segment(spec, &expected, flow, timestamp_tolerance)
        }
        (PacketBody::Udp(expected), LiveBody::Udp { len, .. }) => usize::from(*expected) == *len,
        (PacketBody::Icmp(IcmpSpec { code, .. }), LiveBody::Icmp(kind)) => {
            matches!(kind, IcmpKind::DestinationUnreachable { code: live, .. } if live == code)
        }
        _ => false,
    };
    if is_same && is_same_mark(spec.ecn, live.ecn) {
        return Ok(());
    }
    Err(format!(
        "expected: {}\n  actual: {}",
        text::of(spec),
        text::of(&shown(live, flow))
    ))
}

/// Returns a sent packet in the script's numbers.
pub fn shown(live: &LivePacket, flow: &Flow) -> PacketSpec {
    let ecn = match live.ecn {
        0b01 => Some(Ecn::Capable1),
        0b10 => Some(Ecn::Capable0),
        0b11 => Some(Ecn::Congested),
        _ => None,
    };
    let body = match &live.body {
        LiveBody::Tcp {
            header,
            options,
            len,
        } => PacketBody::Tcp(relative(header, options, *len, flow)),
        LiveBody::Udp { len, .. } => PacketBody::Udp(*len as u16),
        LiveBody::Icmp(IcmpKind::DestinationUnreachable { code, mtu }) => {
            PacketBody::Icmp(IcmpSpec {
                code: *code,
                mtu: *mtu,
                is_udp: false,
                seq: 0,
                len: 0,
            })
        }
        LiveBody::Icmp(_) => PacketBody::Icmp(IcmpSpec {
            code: u8::MAX,
            mtu: 0,
            is_udp: false,
            seq: 0,
            len: 0,
        }),
    };
    PacketSpec { ecn, body }
}

fn learn(spec: &TcpSpec, header: &TcpHeader, options: &[TcpOption], flow: &mut Flow) {
    if header.flags.is_syn() && spec.flags.is_syn() && !flow.is_synchronised {
        flow.local_offset = header.seq.wrapping_sub(spec.seq);
        flow.is_synchronised = true;
        flow.timestamp_offset = None;
        flow.remote_isn = flow.remote_candidate;
    }
    let given = options.iter().find_map(|option| match option {
        TcpOption::FastOpen(cookie) if !cookie.is_empty() => Some(cookie),
        _ => None,
    });
    let is_asked = spec
        .options
        .iter()
        .flatten()
        .any(|option| *option == TcpOption::OurCookie);
    if let (true, true, Some(cookie)) = (is_asked, flow.cookie.is_empty(), given) {
        flow.cookie.clone_from(cookie);
    }
    let stamp = |options: &[TcpOption]| {
        options.iter().find_map(|option| match option {
            TcpOption::Timestamps { value, .. } => Some(*value),
            _ => None,
        })
    };
    let expected = spec.options.as_deref().and_then(stamp);
    if let (None, Some(expected), Some(value)) = (flow.timestamp_offset, expected, stamp(options)) {
        flow.timestamp_offset = Some(value.wrapping_sub(expected));
    }
}

fn relative(header: &TcpHeader, options: &[TcpOption], len: usize, flow: &Flow) -> TcpSpec {
    let options = options.iter().map(|option| match option {
        TcpOption::Sack(blocks) => {
            let shift = |edge: u32| edge.wrapping_sub(flow.remote_offset());
            TcpOption::Sack(
                blocks
                    .iter()
                    .map(|(left, right)| (shift(*left), shift(*right)))
                    .collect(),
            )
        }
        TcpOption::Timestamps { value, echo } => TcpOption::Timestamps {
            value: value.wrapping_sub(flow.timestamp_offset.unwrap_or(0)),
            echo: *echo,
        },
        other => other.clone(),
    });
    TcpSpec {
        flags: header.flags,
        // A reset for a segment without a connection has the number that the peer acknowledged.
        seq: header.seq.wrapping_sub(flow.local_offset),
        len: len as u16,
        ack: header
            .flags
            .is_ack()
            .then(|| header.ack.wrapping_sub(flow.remote_offset())),
        window: Some(header.window),
        urgent: (header.urgent != 0).then_some(header.urgent),
        options: Some(options.collect()),
    }
}

fn is_same_segment(spec: &TcpSpec, live: &TcpSpec, flow: &Flow, tolerance: u32) -> bool {
    let has_window = spec.window.is_none() || spec.window == live.window;
    let has_options = match (&spec.options, &live.options) {
        (Some(expected), Some(found)) => {
            expected.len() == found.len()
                && expected
                    .iter()
                    .zip(found)
                    .all(|pair| is_same_option(pair, flow, tolerance))
        }
        _ => true,
    };
    spec.flags == live.flags
        && spec.seq == live.seq
        && spec.len == live.len
        && (spec.ack.is_none() || spec.ack == live.ack)
        && (spec.urgent.is_none() || spec.urgent == live.urgent)
        && has_window
        && has_options
}

fn is_same_option(pair: (&TcpOption, &TcpOption), flow: &Flow, tolerance: u32) -> bool {
    match pair {
        (
            TcpOption::Timestamps { value, echo },
            TcpOption::Timestamps {
                value: live,
                echo: live_echo,
            },
        ) => {
            let off = live.wrapping_sub(*value) as i32;
            echo == live_echo && off.unsigned_abs() <= tolerance
        }
        (TcpOption::OurCookie, TcpOption::FastOpen(cookie)) => *cookie == flow.cookie,
        (expected, found) => expected == found,
    }
}

fn is_same_mark(expected: Option<Ecn>, live: u8) -> bool {
    match expected {
        None => true,
        Some(Ecn::NotCapable) => live == 0b00,
        Some(Ecn::Capable0) => live == 0b10,
        Some(Ecn::Capable1) => live == 0b01,
        Some(Ecn::Congested) => live == 0b11,
        Some(Ecn::Any) => live == 0b01 || live == 0b10,
    }
}
