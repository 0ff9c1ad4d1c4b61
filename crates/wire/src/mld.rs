//! Multicast listener discovery, version 2 (RFC 3810 5).

use core::net::Ipv6Addr;

/// Where reports go: all MLDv2-capable routers.
pub const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// A record without sources.
pub const RECORD_LEN: usize = 20;

/// Types of records (RFC 3810 5.2.12) that a listener to all sources needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Answers a query: everything but no source.
    IsExclude = 2,
    /// Joins.
    ToExclude = 4,
    /// Leaves: from no source.
    ToInclude = 3,
}

/// A group in a report, from all sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: RecordKind,
    pub group: Ipv6Addr,
}

impl Record {
    pub fn emit(&self, out: &mut [u8; RECORD_LEN]) {
        out[..4].copy_from_slice(&[self.kind as u8, 0, 0, 0]);
        out[4..].copy_from_slice(&self.group.octets());
    }
}

/// RFC 3810 5.2.14, RFC 2711: reports carry a router alert in a hop-by-hop header, padded with a
/// PadN of no bytes; `next_header` is ICMPv6.
pub const fn hop_by_hop(next_header: u8) -> [u8; 8] {
    [next_header, 0, 5, 2, 0, 0, 1, 0]
}

/// A query of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Unspecified = all groups.
    pub group: Ipv6Addr,
    /// Within this time reports are spread.
    pub response_max_ms: u32,
    pub is_v1: bool,
}

impl Query {
    /// `rest`: the four bytes of the ICMPv6 header after the checksum. `None`: truncated.
    pub fn parse(rest: [u8; 4], body: &[u8]) -> Option<Self> {
        let (group, tail) = body.split_first_chunk::<16>()?;
        let group = Ipv6Addr::from(*group);
        let code = u16::from_be_bytes([rest[0], rest[1]]);
        if !group.is_unspecified() && !group.is_multicast() {
            return None;
        }
        // RFC 3810 8.1: 24 bytes are version 1, 28 and more version 2.
        let is_v1 = tail.is_empty();
        if !is_v1 {
            let counts = tail.first_chunk::<4>()?;
            let sources = usize::from(u16::from_be_bytes([counts[2], counts[3]]));
            tail.get(4..4 + sources * 16)?;
        }
        let response_max_ms = if is_v1 {
            u32::from(code)
        } else {
            response_ms(code)
        };
        Some(Self {
            group,
            response_max_ms,
            is_v1,
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
    fn malformed_queries_are_none() {
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

    #[test]
    fn a_record_is_kind_and_group() {
        let mut out = [9; RECORD_LEN];
        Record {
            kind: RecordKind::ToExclude,
            group: ROUTERS,
        }
        .emit(&mut out);
        assert_eq!(out[..5], [4, 0, 0, 0, 0xff]);
        assert_eq!(out[19], 0x16);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(rest: [u8; 4], body in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Query::parse(rest, &body);
        }
    }
}
