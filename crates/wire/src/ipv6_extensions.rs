//! IPv6 extension headers (RFC 8200 4): from the fixed header to the transport.
//!
//! A host must be able to process headers of any number and order; limits bound the work (RFC 8504
//! 5.3), and a chain beyond them is refused.

use crate::ipv6::HEADER_LEN;

/// Next header values (IANA).
pub const HOP_BY_HOP: u8 = 0;
pub const ROUTING: u8 = 43;
pub const FRAGMENT: u8 = 44;
pub const NO_NEXT_HEADER: u8 = 59;
pub const DESTINATION_OPTIONS: u8 = 60;

/// Extension headers of one packet at most.
pub const EXTENSIONS_MAX: usize = 8;
/// Options of one header at most, padding not counted (Linux: `max_dst_opts_number`).
pub const OPTIONS_MAX: usize = 8;
/// Bytes of padding in a row at most: more than alignment ever needs (Linux: 7).
pub const PADDING_MAX: usize = 7;
/// Bytes of all extension headers together at most.
pub const LEN_MAX: usize = 1024;

/// Offset of the next-header field in the fixed header.
const NEXT_HEADER_AT: usize = 6;

/// A whole packet's transport part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'a> {
    /// The last next-header value.
    pub protocol: u8,
    pub payload: &'a [u8],
    /// Offset of the field that names `protocol`, from the start of the packet.
    pub named_at: u32,
    /// The packet had a fragment header and is whole: an atomic fragment.
    pub is_atomic: bool,
}

/// Continuation of a packet after its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked<'a> {
    Whole(Upper<'a>),
    /// A part of a packet.
    Fragment(Fragment<'a>),
}

/// A fragment (RFC 8200 4.5). An atomic one, which is a whole packet (RFC 6946), is not reported as
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    pub identification: u32,
    /// In bytes.
    pub offset: u16,
    pub has_more: bool,
    /// The header with which the fragmentable part begins.
    pub next_header: u8,
    pub payload: &'a [u8],
}

/// Reason why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Truncated, or beyond the limits.
    Malformed,
    /// Requested by an option (RFC 8200 4.2, action 01).
    Silently,
    /// The sender gets an error (RFC 4443 3.4).
    Problem {
        code: u8,
        /// Offset of the byte that is wrong, from the start of the packet.
        pointer: u32,
        /// The error is sent even if the packet went to a group (action 10 of an option).
        to_groups: bool,
    },
}

/// Codes of ICMPv6 parameter problem.
pub mod problem {
    pub const ERRONEOUS_FIELD: u8 = 0;
    pub const NEXT_HEADER: u8 = 1;
    pub const OPTION: u8 = 2;
    /// RFC 7112 5: the first fragment ends before its headers do.
    pub const FIRST_FRAGMENT: u8 = 3;
}

/// Returns whether a next-header value names an extension header that is walked over here.
#[inline]
pub const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS
    )
}

/// Walks the extension headers of a packet whose fixed header names `next_header`.
pub fn walk(next_header: u8, payload: &[u8]) -> Result<Walked<'_>, Refused> {
    let mut at = HeaderPosition {
        next_header,
        named_at: NEXT_HEADER_AT,
        offset: HEADER_LEN,
    };
    let mut rest = payload;
    let mut is_atomic = false;
    for count in 0..=EXTENSIONS_MAX {
        if !is_extension(at.next_header) {
            return Ok(Walked::Whole(Upper {
                protocol: at.next_header,
                payload: rest,
                named_at: at.named_at as u32,
                is_atomic,
            }));
        }
        // RFC 8200 4.1: hop-by-hop options come first or are an unknown header.
        if at.next_header == HOP_BY_HOP && count != 0 {
            return Err(at.unknown());
        }
        if count == EXTENSIONS_MAX || at.offset - HEADER_LEN > LEN_MAX {
            break;
        }
        if at.next_header == FRAGMENT {
            let (fragment, after) = parse_fragment(rest, &at)?;
            if fragment.offset != 0 || fragment.has_more {
                return Ok(Walked::Fragment(fragment));
            }
            at = at.after(fragment.next_header, FRAGMENT_LEN);
            rest = after;
            is_atomic = true;
            continue;
        }
        let (header, after) = split(rest)?;
        match at.next_header {
            ROUTING => check_routing(header, &at)?,
            _ => check_options(header, &at)?,
        }
        at = at.after(header[0], header.len());
        rest = after;
    }
    Err(Refused::Malformed)
}

/// The position of a header.
#[derive(Clone, Copy)]
struct HeaderPosition {
    next_header: u8,
    named_at: usize,
    offset: usize,
}

impl HeaderPosition {
    fn after(self, next_header: u8, len: usize) -> HeaderPosition {
        HeaderPosition {
            next_header,
            named_at: self.offset,
            offset: self.offset + len,
        }
    }

    fn unknown(self) -> Refused {
        Refused::Problem {
            code: problem::NEXT_HEADER,
            pointer: self.named_at as u32,
            to_groups: false,
        }
    }

    fn wrong(self, at: usize) -> Refused {
        Refused::Problem {
            code: problem::ERRONEOUS_FIELD,
            pointer: (self.offset + at) as u32,
            to_groups: false,
        }
    }
}

/// Splits off a header in units of eight bytes.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), Refused> {
    let len = usize::from(*bytes.get(1).ok_or(Refused::Malformed)?) * 8 + 8;
    bytes.split_at_checked(len).ok_or(Refused::Malformed)
}

/// Length of a fragment header.
pub const FRAGMENT_LEN: usize = 8;

/// The header of a part of a packet that begins at `offset`, a multiple of eight (RFC 8200 4.5).
pub const fn fragment_header(
    next_header: u8,
    offset: u16,
    has_more: bool,
    identification: u32,
) -> [u8; FRAGMENT_LEN] {
    let [high, low] = (offset | has_more as u16).to_be_bytes();
    let [a, b, c, d] = identification.to_be_bytes();
    [next_header, 0, high, low, a, b, c, d]
}

fn parse_fragment<'a>(
    bytes: &'a [u8],
    at: &HeaderPosition,
) -> Result<(Fragment<'a>, &'a [u8]), Refused> {
    let (header, after) = bytes
        .split_first_chunk::<FRAGMENT_LEN>()
        .ok_or(Refused::Malformed)?;
    let word = u16::from_be_bytes([header[2], header[3]]);
    let fragment = Fragment {
        identification: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        offset: word & !7,
        has_more: word & 1 == 1,
        next_header: header[0],
        payload: after,
    };
    // RFC 8200 4.5: all but the last are multiples of eight bytes long …
    if fragment.has_more && !after.len().is_multiple_of(8) {
        return Err(Refused::Problem {
            code: problem::ERRONEOUS_FIELD,
            pointer: PAYLOAD_LEN_AT,
            to_groups: false,
        });
    }
    // … and none reaches beyond the largest packet.
    if usize::from(fragment.offset) + after.len() > usize::from(u16::MAX) {
        return Err(at.wrong(2));
    }
    Ok((fragment, after))
}

/// Offset of the payload length in the fixed header.
const PAYLOAD_LEN_AT: u32 = 4;

/// RFC 8200 4.4: a routing header of an unknown type is skipped when it is used up. Type 0 is
/// obsolete (RFC 5095).
fn check_routing(header: &[u8], at: &HeaderPosition) -> Result<(), Refused> {
    match header[3] {
        0 => Ok(()),
        _ => Err(at.wrong(2)),
    }
}

/// RFC 8200 4.2. No option has a meaning for us; the type of an unknown one gives the required
/// action.
fn check_options(header: &[u8], at: &HeaderPosition) -> Result<(), Refused> {
    let (mut offset, mut count, mut padding) = (2, 0, 0);
    while let Some(&kind) = header.get(offset) {
        let len = match kind {
            0 => 1,
            _ => 2 + usize::from(*header.get(offset + 1).ok_or(Refused::Malformed)?),
        };
        if offset + len > header.len() {
            return Err(Refused::Malformed);
        }
        if kind <= 1 {
            padding += len;
            if padding > PADDING_MAX {
                return Err(Refused::Malformed);
            }
        } else {
            padding = 0;
            count += 1;
            if count > OPTIONS_MAX {
                return Err(Refused::Malformed);
            }
            judge_option(kind, at.offset + offset)?;
        }
        offset += len;
    }
    Ok(())
}

fn judge_option(kind: u8, pointer: usize) -> Result<(), Refused> {
    let told = |to_groups| Refused::Problem {
        code: problem::OPTION,
        pointer: pointer as u32,
        to_groups,
    };
    match kind >> 6 {
        0 => Ok(()),
        1 => Err(Refused::Silently),
        2 => Err(told(true)),
        _ => Err(told(false)),
    }
}

/// The transport of a packet that an ICMP error quotes, cut off anywhere: protocol and payload.
/// `None`: a later fragment, or cut off before its transport.
pub fn find_quoted(next_header: u8, payload: &[u8]) -> Option<(u8, &[u8])> {
    let (mut next_header, mut rest) = (next_header, payload);
    for _ in 0..=EXTENSIONS_MAX {
        if !is_extension(next_header) {
            return Some((next_header, rest));
        }
        let (header, after) = if next_header == FRAGMENT {
            let (header, after) = rest.split_first_chunk::<FRAGMENT_LEN>()?;
            if u16::from_be_bytes([header[2], header[3]]) & !7 != 0 {
                return None;
            }
            (&header[..], after)
        } else {
            split(rest).ok()?
        };
        next_header = header[0];
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const TCP: u8 = 6;

    fn problem(code: u8, pointer: u32) -> Refused {
        Refused::Problem {
            code,
            pointer,
            to_groups: false,
        }
    }

    fn whole(result: Result<Walked<'_>, Refused>) -> Upper<'_> {
        match result {
            Ok(Walked::Whole(upper)) => upper,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn headers_of_every_kind_are_walked_over() {
        // RFC 8200 4.
        let chain = [
            &[ROUTING, 0, 1, 4, 0, 0, 0, 0][..],
            &[DESTINATION_OPTIONS, 0, 253, 0, 1, 2, 3, 4],
            &[FRAGMENT, 0, 0x1e, 4, 1, 2, 3, 4],
            &[TCP, 0, 0, 0, 9, 9, 9, 9],
            b"segment",
        ]
        .concat();
        let upper = whole(walk(HOP_BY_HOP, &chain));
        assert_eq!((upper.protocol, upper.payload), (TCP, &b"segment"[..]));
        assert_eq!((upper.named_at, upper.is_atomic), (40 + 24, true));
        assert_eq!(
            find_quoted(HOP_BY_HOP, &chain),
            Some((TCP, &b"segment"[..]))
        );
    }

    #[test]
    fn a_packet_without_extensions_is_its_payload() {
        let upper = whole(walk(TCP, b"x"));
        assert_eq!(
            (upper.protocol, upper.payload, upper.named_at),
            (TCP, &b"x"[..], 6)
        );
        assert!(!upper.is_atomic);
        assert_eq!(whole(walk(NO_NEXT_HEADER, b"x")).protocol, NO_NEXT_HEADER);
    }

    #[test]
    fn option_types_select_the_handling_of_the_packet() {
        // RFC 8200 4.2.
        let table: [(u8, Result<(), Refused>); 5] = [
            (0x05, Ok(())),
            (0x1e, Ok(())),
            (0x5e, Err(Refused::Silently)),
            (
                0x9e,
                Err(Refused::Problem {
                    code: problem::OPTION,
                    pointer: 42,
                    to_groups: true,
                }),
            ),
            (0xde, Err(self::problem(problem::OPTION, 42))),
        ];
        for (kind, want) in table {
            let bytes = [TCP, 0, kind, 4, 0, 0, 0, 0, 1];
            for first in [HOP_BY_HOP, DESTINATION_OPTIONS] {
                assert_eq!(walk(first, &bytes).map(drop), want, "option {kind:#x}");
            }
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        let table: [(&str, u8, &[u8], Refused); 12] = [
            ("nothing", HOP_BY_HOP, &[], Refused::Malformed),
            ("one byte", ROUTING, &[TCP], Refused::Malformed),
            (
                "cut",
                DESTINATION_OPTIONS,
                &[TCP, 0, 1, 4, 0, 0, 0],
                Refused::Malformed,
            ),
            (
                "longer than the packet",
                HOP_BY_HOP,
                &[TCP, 1, 1, 4, 0, 0, 0, 0],
                Refused::Malformed,
            ),
            (
                "option without length",
                HOP_BY_HOP,
                &[TCP, 0, 1, 3, 0, 0, 0, 9],
                Refused::Malformed,
            ),
            (
                "option beyond the end",
                HOP_BY_HOP,
                &[TCP, 0, 5, 9, 0, 0, 0, 0],
                Refused::Malformed,
            ),
            (
                "padding of 8",
                HOP_BY_HOP,
                &[TCP, 1, 1, 6, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0],
                Refused::Malformed,
            ),
            (
                "hop-by-hop not first",
                DESTINATION_OPTIONS,
                &[HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0],
                problem(problem::NEXT_HEADER, 40),
            ),
            (
                "route to go",
                ROUTING,
                &[TCP, 0, 0, 1, 0, 0, 0, 0],
                problem(problem::ERRONEOUS_FIELD, 42),
            ),
            (
                "short fragment",
                FRAGMENT,
                &[TCP, 0, 0, 1, 0, 0, 0],
                Refused::Malformed,
            ),
            (
                "odd fragment",
                FRAGMENT,
                &[TCP, 0, 0, 1, 0, 0, 0, 0, 7],
                problem(problem::ERRONEOUS_FIELD, 4),
            ),
            (
                "fragment too far",
                FRAGMENT,
                &[TCP, 0, 0xff, 0xf8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
                problem(problem::ERRONEOUS_FIELD, 42),
            ),
        ];
        for (what, first, bytes, want) in table {
            assert_eq!(walk(first, bytes), Err(want), "{what}");
        }
    }

    #[test]
    fn header_chains_and_option_lists_are_bounded() {
        // RFC 8504 5.3.
        let chain = |n: usize| {
            let mut bytes: Vec<u8> = (0..n)
                .flat_map(|_| [DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0])
                .collect();
            if let Some(last) = n.checked_sub(1) {
                bytes[last * 8] = TCP;
            }
            bytes
        };
        assert_eq!(
            whole(walk(DESTINATION_OPTIONS, &chain(EXTENSIONS_MAX))).protocol,
            TCP
        );
        assert_eq!(
            walk(DESTINATION_OPTIONS, &chain(EXTENSIONS_MAX + 1)),
            Err(Refused::Malformed)
        );
        let options = |n: u8| {
            let mut bytes = [TCP, (2 + 2 * n).div_ceil(8) - 1, 0, 0].to_vec();
            bytes.truncate(2);
            for _ in 0..n {
                bytes.extend([0x1e, 0]);
            }
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes
        };
        assert!(walk(HOP_BY_HOP, &options(OPTIONS_MAX as u8)).is_ok());
        assert_eq!(
            walk(HOP_BY_HOP, &options(OPTIONS_MAX as u8 + 1)),
            Err(Refused::Malformed)
        );
    }

    #[test]
    fn fragments_are_distinguished_from_atomic_ones() {
        // RFC 8200 4.5, RFC 6946.
        let bytes = [TCP, 0, 0x05, 0xa9, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8];
        let Ok(Walked::Fragment(fragment)) = walk(FRAGMENT, &bytes) else {
            panic!("no fragment");
        };
        assert_eq!((fragment.offset, fragment.has_more), (0x5a8, true));
        assert_eq!((fragment.identification, fragment.next_header), (7, TCP));
        assert_eq!(find_quoted(FRAGMENT, &bytes), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_panic(
            first: u8,
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            for first in [first, HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS] {
                let _ = find_quoted(first, &bytes);
                if let Ok(Walked::Whole(upper)) = walk(first, &bytes) {
                    prop_assert!(upper.payload.len() <= bytes.len());
                    prop_assert!(!is_extension(upper.protocol));
                }
            }
        }
    }
}
