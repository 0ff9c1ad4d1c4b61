//! Packets: `[ce] P. 1:1001(1000) ack 1 win 257 <nop,nop,TS val 100 ecr 700>`.

use slipstack_wire::tcp::TcpFlags;

use super::ScriptError;
use super::lexer::Cursor;
use crate::packet::{Ecn, IcmpSpec, PacketBody, PacketSpec, TcpOption, TcpSpec};

const FLAGS: &[(char, TcpFlags)] = &[
    ('S', TcpFlags::SYN),
    ('F', TcpFlags::FIN),
    ('R', TcpFlags::RST),
    ('P', TcpFlags::PSH),
    ('.', TcpFlags::ACK),
    ('U', TcpFlags::URG),
    ('E', TcpFlags::ECE),
    ('W', TcpFlags::CWR),
];

pub fn parse(cursor: &mut Cursor<'_>) -> Result<PacketSpec, ScriptError> {
    let ecn = ecn(cursor)?;
    let body = if cursor.take_word("icmp") || cursor.take_word("icmpv6") {
        PacketBody::Icmp(icmp(cursor)?)
    } else if cursor.take_word("udp") {
        PacketBody::Udp(datagram_len(cursor)?)
    } else {
        PacketBody::Tcp(tcp(cursor)?)
    };
    Ok(PacketSpec { ecn, body })
}

/// `(1000)`
fn datagram_len(cursor: &mut Cursor<'_>) -> Result<u16, ScriptError> {
    cursor.expect("(")?;
    let len = cursor.unsigned()?;
    cursor.expect(")")?;
    Ok(len)
}

fn ecn(cursor: &mut Cursor<'_>) -> Result<Option<Ecn>, ScriptError> {
    if !cursor.take("[") {
        return Ok(None);
    }
    let known = [
        ("noecn", Ecn::NotCapable),
        ("ect01", Ecn::Any),
        ("ect0", Ecn::Capable0),
        ("ect1", Ecn::Capable1),
        ("ce", Ecn::Congested),
    ];
    let found = known.into_iter().find(|(word, _)| cursor.take_word(word));
    let Some((_, ecn)) = found else {
        return cursor.fail(format!(
            "expected noecn, ect0, ect1, ect01 or ce before `{}`",
            cursor.rest()
        ));
    };
    cursor.expect("]")?;
    Ok(Some(ecn))
}

fn tcp(cursor: &mut Cursor<'_>) -> Result<TcpSpec, ScriptError> {
    let word = cursor.take_while(|c| FLAGS.iter().any(|(letter, _)| *letter == c) || c == '-');
    if word.is_empty() {
        return cursor.fail(format!("expected TCP flags before `{}`", cursor.rest()));
    }
    let flags = FLAGS
        .iter()
        .filter(|(letter, _)| word.contains(*letter))
        .fold(TcpFlags::NONE, |flags, (_, flag)| flags.union(*flag));
    let (seq, len) = range(cursor)?;
    let mut spec = TcpSpec {
        flags,
        seq,
        len,
        ack: None,
        window: None,
        urgent: None,
        options: Some(Vec::new()),
    };
    if cursor.take_word("ack") {
        spec.ack = Some(cursor.unsigned()?);
    }
    if cursor.take_word("win") {
        spec.window = Some(cursor.unsigned()?);
    }
    if cursor.take_word("urg") {
        spec.urgent = Some(cursor.unsigned()?);
    }
    if cursor.take("<") {
        spec.options = options(cursor)?;
    }
    Ok(spec)
}

/// `1:1001(1000)`
fn range(cursor: &mut Cursor<'_>) -> Result<(u32, u16), ScriptError> {
    let seq: u32 = cursor.unsigned()?;
    cursor.expect(":")?;
    let end: u32 = cursor.unsigned()?;
    cursor.expect("(")?;
    let len: u16 = cursor.unsigned()?;
    cursor.expect(")")?;
    match seq.wrapping_add(u32::from(len)) == end {
        true => Ok((seq, len)),
        false => cursor.fail(format!("{seq}:{end} is not {len} bytes long")),
    }
}

/// `None` for `<...>`, which leaves them open.
fn options(cursor: &mut Cursor<'_>) -> Result<Option<Vec<TcpOption>>, ScriptError> {
    if cursor.take("...") {
        cursor.expect(">")?;
        return Ok(None);
    }
    let mut options = Vec::new();
    while !cursor.take(">") {
        if !options.is_empty() {
            cursor.expect(",")?;
        }
        options.push(option(cursor)?);
    }
    Ok(Some(options))
}

fn option(cursor: &mut Cursor<'_>) -> Result<TcpOption, ScriptError> {
    if cursor.take_word("nop") {
        return Ok(TcpOption::Nop);
    }
    if cursor.take_word("eol") {
        return Ok(TcpOption::End);
    }
    if cursor.take_word("sackOK") {
        return Ok(TcpOption::SackPermitted);
    }
    if cursor.take_word("mss") {
        return Ok(TcpOption::Mss(cursor.unsigned()?));
    }
    if cursor.take_word("wscale") {
        return Ok(TcpOption::WindowScale(cursor.unsigned()?));
    }
    if cursor.take_word("TS") {
        cursor.expect("val")?;
        let value = cursor.unsigned()?;
        cursor.expect("ecr")?;
        let echo = cursor.unsigned()?;
        return Ok(TcpOption::Timestamps { value, echo });
    }
    if cursor.take_word("sack") {
        let mut blocks = Vec::new();
        while cursor.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let left = cursor.unsigned()?;
            cursor.expect(":")?;
            blocks.push((left, cursor.unsigned()?));
        }
        return Ok(TcpOption::Sack(blocks));
    }
    if cursor.take_word("uto") {
        return user_timeout(cursor);
    }
    if cursor.take_word("FO") {
        if cursor.take_word("TFO_COOKIE") {
            return Ok(TcpOption::OurCookie);
        }
        let cookie = cursor.take_while(|c| c.is_ascii_hexdigit());
        return match cookie {
            "" => Ok(TcpOption::FastOpen(Vec::new())),
            cookie => hex(cookie).map(TcpOption::FastOpen).map_or_else(
                || cursor.fail(format!("`{cookie}` is not a cookie in hexadecimal")),
                Ok,
            ),
        };
    }
    cursor.fail(format!("`{}` is no TCP option", cursor.rest()))
}

/// `30s` or `45m`
fn user_timeout(cursor: &mut Cursor<'_>) -> Result<TcpOption, ScriptError> {
    let word = cursor.take_while(|c| c.is_ascii_alphanumeric());
    let (value, unit) = word
        .split_at_checked(word.len().saturating_sub(1))
        .unwrap_or((word, ""));
    match (value.parse::<u16>(), unit) {
        (Ok(value), "s") => Ok(TcpOption::UserTimeout(value)),
        (Ok(value), "m") => Ok(TcpOption::UserTimeout(value | 0x8000)),
        _ => cursor.fail(format!("`{word}` is no time such as 30s or 45m")),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect()
}

/// `icmp unreachable frag_needed mtu 1200 [1:1461(1460)]`, `icmpv6 packet_too_big mtu 1280
/// [1:1461(1460)]`, `icmp unreachable port_unreachable [udp (1000)]`
fn icmp(cursor: &mut Cursor<'_>) -> Result<IcmpSpec, ScriptError> {
    let codes = [
        ("net_unreachable", 0),
        ("host_unreachable", 1),
        ("protocol_unreachable", 2),
        ("port_unreachable", 3),
        ("frag_needed", 4),
        ("source_route_failed", 5),
        // IPv6's names for the same.
        ("no_route", 0),
        ("address_unreachable", 1),
        ("packet_too_big", 4),
    ];
    if !cursor.rest().starts_with("packet_too_big") {
        cursor.expect("unreachable")?;
    }
    let Some((_, code)) = codes.into_iter().find(|(word, _)| cursor.take_word(word)) else {
        return cursor.fail(format!("`{}` is no ICMP code known here", cursor.rest()));
    };
    let mtu = match cursor.take_word("mtu") {
        true => cursor.unsigned()?,
        false => 0,
    };
    cursor.expect("[")?;
    let is_udp = cursor.take_word("udp");
    let (seq, len) = match is_udp {
        true => (0, datagram_len(cursor)?),
        false => range(cursor)?,
    };
    cursor.expect("]")?;
    Ok(IcmpSpec {
        code,
        mtu,
        is_udp,
        seq,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(text: &str) -> PacketSpec {
        let mut cursor = Cursor::new(text, 1);
        let packet = parse(&mut cursor).unwrap();
        assert!(cursor.is_at_end(), "{}", cursor.rest());
        packet
    }

    #[test]
    fn segments_of_scripts_parse() {
        let PacketBody::Tcp(spec) =
            packet("P. 1:1001(1000) ack 7 win 257 <nop,nop,sack 1:2 4:9>").body
        else {
            panic!("not TCP");
        };
        assert_eq!(
            (spec.seq, spec.len, spec.ack, spec.window),
            (1, 1000, Some(7), Some(257))
        );
        assert!(spec.flags.contains(TcpFlags::PSH.union(TcpFlags::ACK)));
        let sack = TcpOption::Sack(vec![(1, 2), (4, 9)]);
        assert_eq!(
            spec.options,
            Some(vec![TcpOption::Nop, TcpOption::Nop, sack])
        );
    }

    #[test]
    fn ecn_marks_and_errors_are_read() {
        assert_eq!(packet("[ce] . 1:1(0) ack 1").ecn, Some(Ecn::Congested));
        let body = packet("icmp unreachable frag_needed mtu 1200 [1:1461(1460)]").body;
        assert!(matches!(
            body,
            PacketBody::Icmp(IcmpSpec {
                code: 4,
                mtu: 1200,
                ..
            })
        ));
        let body = packet("icmpv6 unreachable port_unreachable [udp (10)]").body;
        assert!(matches!(
            body,
            PacketBody::Icmp(IcmpSpec {
                code: 3,
                is_udp: true,
                len: 10,
                ..
            })
        ));
    }
}
