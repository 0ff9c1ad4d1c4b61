//! Internet group management, versions 1 to 3 (RFC 1112 appendix I, RFC 2236, RFC 3376 4).

use core::net::Ipv4Addr;

use crate::checksum;

/// Destination of version 3 reports: all routers that support it.
pub const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Group to which version 2 hosts send that they leave.
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Every host of the link: never reported.
pub const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Type, code, checksum and four bytes.
pub const HEADER_LEN: usize = 8;

const QUERY: u8 = 0x11;
const V1_REPORT: u8 = 0x12;
const V2_REPORT: u8 = 0x16;
const V2_LEAVE: u8 = 0x17;
const V3_REPORT: u8 = 0x22;
/// RFC 2236 4: the response time of a version 1 query.
const V1_RESPONSE_MS: u32 = 10_000;

/// A query of any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    pub version: u8,
    /// Unspecified = all groups.
    pub group: Ipv4Addr,
    /// Within this time reports are spread.
    pub response_max_ms: u32,
    /// Number of losses in a row that the querier expects to withstand; 0 = it does not say.
    pub robustness: u8,
    sources: &'a [u8],
}

impl<'a> Query<'a> {
    /// Only of these the querier wants to know; none = of all.
    pub fn sources(&self) -> impl Iterator<Item = Ipv4Addr> + 'a {
        let (sources, _) = self.sources.as_chunks::<4>();
        sources.iter().map(|octets| Ipv4Addr::from(*octets))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgmpMessage<'a> {
    Query(Query<'a>),
    /// Another host of version 1 or 2 is a member.
    Report(Ipv4Addr),
    /// Message that does not concern hosts.
    Other,
}

impl<'a> IgmpMessage<'a> {
    /// `None`: truncated, its checksum wrong, or a query about no group.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        if !checksum::is_valid(bytes) {
            return None;
        }
        let [kind, code, _, _, group @ ..] = *header;
        let group = Ipv4Addr::from(group);
        match kind {
            QUERY => Self::parse_query(code, group, rest),
            V1_REPORT | V2_REPORT => Some(Self::Report(group)),
            _ => Some(Self::Other),
        }
    }

    fn parse_query(code: u8, group: Ipv4Addr, rest: &'a [u8]) -> Option<Self> {
        if !group.is_unspecified() && !group.is_multicast() {
            return None;
        }
        let query = |version, response_max_ms| Query {
            version,
            group,
            response_max_ms,
            robustness: 0,
            sources: &[],
        };
        // RFC 3376 7.1: versions are distinguished by length and code.
        match (rest, code) {
            ([], 0) => Some(Self::Query(query(1, V1_RESPONSE_MS))),
            ([], code) => Some(Self::Query(query(2, u32::from(code) * 100))),
            ([flags, _, high, low, sources @ ..], code) => {
                let count = usize::from(u16::from_be_bytes([*high, *low]));
                Some(Self::Query(Query {
                    robustness: flags & 7,
                    sources: sources.get(..4 * count)?,
                    ..query(3, response_ms(code))
                }))
            }
            _ => None,
        }
    }
}

/// RFC 3376 4.1.1: tenths of a second, from 128 on a floating point number.
const fn response_ms(code: u8) -> u32 {
    if code < 0x80 {
        return code as u32 * 100;
    }
    let mantissa = (code & 0x0f) as u32 | 0x10;
    (mantissa << ((code >> 4 & 7) + 3)) * 100
}

/// Messages of hosts of versions 1 and 2 about one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying {
    V1Member,
    V2Member,
    V2Leave,
}

impl Saying {
    pub fn message(self, group: Ipv4Addr) -> [u8; HEADER_LEN] {
        let kind = match self {
            Self::V1Member => V1_REPORT,
            Self::V2Member => V2_REPORT,
            Self::V2Leave => V2_LEAVE,
        };
        let [a, b, c, d] = group.octets();
        let mut message = [kind, 0, 0, 0, a, b, c, d];
        let sum = checksum::of(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        message
    }
}

/// The header of a version 3 report with these records.
pub fn v3_report(count: u16, records: &[u8]) -> [u8; HEADER_LEN] {
    let [high, low] = count.to_be_bytes();
    let mut header = [V3_REPORT, 0, 0, 0, 0, 0, high, low];
    let mut sum = checksum::Sum::default();
    sum.add_bytes(&header);
    sum.add_bytes(records);
    header[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    fn message(code: u8, group: Ipv4Addr, rest: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from([QUERY, code, 0, 0]);
        bytes.extend(group.octets());
        bytes.extend(rest);
        let sum = checksum::of(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn queries_of_three_versions_are_distinguished() {
        // RFC 3376 4.1 and 7.1.
        let one_source = [2, 125, 0, 1, 10, 0, 0, 1];
        let table = [
            (0, &[][..], (1, 10_000, 0)),
            (100, &[], (2, 10_000, 0)),
            (100, &[2, 125, 0, 0], (3, 10_000, 2)),
            (0x8f, &one_source, (3, 24_800, 2)),
        ];
        for (code, rest, want) in table {
            let bytes = message(code, GROUP, rest);
            let Some(IgmpMessage::Query(query)) = IgmpMessage::parse(&bytes) else {
                panic!("{bytes:?}")
            };
            assert_eq!(
                (query.version, query.response_max_ms, query.robustness),
                want
            );
            assert_eq!(query.group, GROUP);
            assert_eq!(query.sources().count(), rest.len().saturating_sub(4) / 4);
        }
    }

    #[test]
    fn malformed_messages_do_not_parse() {
        let sources_missing = message(1, GROUP, &[0, 0, 0, 2, 1, 2, 3, 4]);
        let between = message(1, GROUP, &[0, 0]);
        let no_group = message(1, Ipv4Addr::new(10, 0, 0, 1), &[]);
        let mut damaged = message(1, GROUP, &[]);
        damaged[1] ^= 1;
        for bytes in [sources_missing, between, no_group, damaged] {
            assert_eq!(IgmpMessage::parse(&bytes), None);
        }
    }

    #[test]
    fn reports_have_a_valid_checksum() {
        let report = Saying::V2Member.message(GROUP);
        assert_eq!(
            IgmpMessage::parse(&report),
            Some(IgmpMessage::Report(GROUP))
        );
        let leave = Saying::V2Leave.message(GROUP);
        assert_eq!(IgmpMessage::parse(&leave), Some(IgmpMessage::Other));
        let records = [4, 0, 0, 0, 239, 1, 2, 3];
        let whole = [&v3_report(1, &records)[..], &records].concat();
        assert_eq!(IgmpMessage::parse(&whole), Some(IgmpMessage::Other));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = IgmpMessage::parse(&bytes);
        }
    }
}
