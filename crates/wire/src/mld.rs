//! Multicast listener discovery, version 2 (RFC 3810 5).

use core::net::Ipv6Addr;

/// Destination of reports: all MLDv2-capable routers.
pub const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Group to which version 1 hosts send that they leave.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Types of the messages of version 1 (RFC 2710 3.1), whose bodies are the group.
pub const V1_REPORT: u8 = 131;
pub const V1_DONE: u8 = 132;

/// RFC 3810 5.2.14, RFC 2711: reports carry a router alert in a hop-by-hop header, padded with a
/// PadN of no bytes; `next_header` is ICMPv6.
pub const fn hop_by_hop(next_header: u8) -> [u8; 8] {
    [next_header, 0, 5, 2, 0, 0, 1, 0]
}

/// A query of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Unspecified = all groups.
    pub group: Ipv6Addr,
    /// Within this time reports are spread.
    pub response_max_ms: u32,
    pub is_v1: bool,
    /// Number of losses in a row that the querier expects to withstand; 0 = it does not say.
    pub robustness: u8,
    sources: &'a [u8],
}

impl<'a> Query<'a> {
    /// Only of these the querier wants to know; none = of all.
    pub fn sources(&self) -> impl Iterator<Item = Ipv6Addr> + 'a {
        let (sources, _) = self.sources.as_chunks::<16>();
        sources.iter().map(|octets| Ipv6Addr::from(*octets))
    }

    /// `rest`: the four bytes of the ICMPv6 header after the checksum. `None`: truncated.
    pub fn parse(rest: [u8; 4], body: &'a [u8]) -> Option<Self> {
        let (group, tail) = body.split_first_chunk::<16>()?;
        let group = Ipv6Addr::from(*group);
        let code = u16::from_be_bytes([rest[0], rest[1]]);
        if !group.is_unspecified() && !group.is_multicast() {
            return None;
        }
        // RFC 3810 8.1: 24 bytes are version 1, 28 and more version 2.
        let is_v1 = tail.is_empty();
        let (robustness, sources) = match *tail {
            [] => (0, &[][..]),
            [flags, _, high, low, ref sources @ ..] => {
                let count = usize::from(u16::from_be_bytes([high, low]));
                (flags & 7, sources.get(..16 * count)?)
            }
            _ => return None,
        };
        let response_max_ms = if is_v1 {
            u32::from(code)
        } else {
            response_ms(code)
        };
        Some(Self {
            group,
            response_max_ms,
            is_v1,
            robustness,
            sources,
        })
    }
}

/// RFC 3810 5.1.3: from 32768 on a floating point number.
const fn response_ms(code: u16) -> u32 {
    if code < 0x8000 {
        return code as u32;
    }
    let mantissa = (code & 0x0fff) as u32 | 0x1000;
    let exponent = (code >> 12 & 7) as u32;
    mantissa << (exponent + 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn queries_of_both_versions_are_read() {
        // RFC 3810 5.1 and 8.1.
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 5);
        let mut body = [0; 20];
        body[..16].copy_from_slice(&group.octets());
        let v1 = Query::parse([0x27, 0x10, 0, 0], &body[..16]).unwrap();
        assert_eq!(
            (v1.group, v1.response_max_ms, v1.is_v1),
            (group, 10_000, true)
        );
        let v2 = Query::parse([0x80, 0x00, 0, 0], &body).unwrap();
        assert_eq!((v2.response_max_ms, v2.is_v1), (32_768, false));
    }

    #[test]
    fn malformed_queries_do_not_parse() {
        let mut body = [0; 20];
        assert_eq!(Query::parse([0; 4], &body[..15]), None, "cut group");
        assert_eq!(
            Query::parse([0; 4], &body[..18]),
            None,
            "between the versions"
        );
        body[19] = 1;
        assert_eq!(
            Query::parse([0; 4], &body),
            None,
            "sources that are not there"
        );
        body[0] = 0xfd;
        assert_eq!(Query::parse([0; 4], &body[..16]), None, "no group");
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(
            rest: [u8; 4],
            body in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = Query::parse(rest, &body);
        }
    }
}
