//! Packets in the script's own language, for messages.

use std::fmt::Write as _;

use slipstack_wire::tcp::TcpFlags;

use super::{Ecn, PacketBody, PacketSpec, TcpOption, TcpSpec};

pub fn of(spec: &PacketSpec) -> String {
    let mark = match spec.ecn {
        None => "",
        Some(Ecn::NotCapable) => "[noecn] ",
        Some(Ecn::Capable0) => "[ect0] ",
        Some(Ecn::Capable1) => "[ect1] ",
        Some(Ecn::Congested) => "[ce] ",
        Some(Ecn::Any) => "[ect01] ",
    };
    let body = match &spec.body {
        PacketBody::Tcp(spec) => segment(spec),
        PacketBody::Udp(len) => format!("udp ({len})"),
        PacketBody::Icmp(spec) => format!("icmp unreachable code {} mtu {}", spec.code, spec.mtu),
    };
    format!("{mark}{body}")
}

fn segment(spec: &TcpSpec) -> String {
    let letters = [
        ('S', TcpFlags::SYN),
        ('F', TcpFlags::FIN),
        ('R', TcpFlags::RST),
        ('P', TcpFlags::PSH),
        ('U', TcpFlags::URG),
        ('E', TcpFlags::ECE),
        ('W', TcpFlags::CWR),
        ('.', TcpFlags::ACK),
    ];
    let set = letters
        .iter()
        .filter(|(_, flag)| spec.flags.contains(*flag));
    let mut out: String = set.map(|(letter, _)| *letter).collect();
    if out.is_empty() {
        out.push('-');
    }
    let end = spec.seq.wrapping_add(u32::from(spec.len));
    let _ = write!(out, " {}:{end}({})", spec.seq, spec.len);
    if let Some(ack) = spec.ack {
        let _ = write!(out, " ack {ack}");
    }
    if let Some(window) = spec.window {
        let _ = write!(out, " win {window}");
    }
    if let Some(urgent) = spec.urgent {
        let _ = write!(out, " urg {urgent}");
    }
    match &spec.options {
        None => out.push_str(" <...>"),
        Some(options) if options.is_empty() => {}
        Some(options) => {
            let options: Vec<_> = options.iter().map(option).collect();
            let _ = write!(out, " <{}>", options.join(","));
        }
    }
    out
}

fn option(option: &TcpOption) -> String {
    match option {
        TcpOption::End => "eol".to_owned(),
        TcpOption::Nop => "nop".to_owned(),
        TcpOption::Mss(mss) => format!("mss {mss}"),
        TcpOption::WindowScale(shift) => format!("wscale {shift}"),
        TcpOption::SackPermitted => "sackOK".to_owned(),
        TcpOption::Sack(blocks) => {
            let blocks: Vec<_> = blocks.iter().map(|(l, r)| format!("{l}:{r}")).collect();
            format!("sack {}", blocks.join(" "))
        }
        TcpOption::Timestamps { value, echo } => format!("TS val {value} ecr {echo}"),
        TcpOption::FastOpen(cookie) => {
            let hex: String = cookie.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("FO {hex}")
        }
        TcpOption::UserTimeout(field) if field & 0x8000 == 0 => format!("uto {field}s"),
        TcpOption::UserTimeout(field) => format!("uto {}m", field & 0x7fff),
        TcpOption::OurCookie => "FO TFO_COOKIE".to_owned(),
        TcpOption::Unknown(kind, bytes) => format!("kind {kind} ({} bytes)", bytes.len()),
    }
}
