//! Group records of multicast reports. IGMPv3 (RFC 3376 4.2.4) and MLDv2 (RFC 3810 5.2.4) differ
//! only in the length of their addresses.

use core::net::IpAddr;

/// RFC 3376 4.2.12, RFC 3810 5.2.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    IsInclude = 1,
    IsExclude = 2,
    ToInclude = 3,
    ToExclude = 4,
    Allow = 5,
    Block = 6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecord<'a> {
    pub kind: RecordKind,
    pub group: IpAddr,
    /// Sources, of the group's family.
    pub sources: &'a [IpAddr],
}

const HEADER_LEN: usize = 4;

impl GroupRecord<'_> {
    pub const fn wire_len(&self) -> usize {
        let address = if self.group.is_ipv4() { 4 } else { 16 };
        HEADER_LEN + address * (1 + self.sources.len())
    }

    /// Writes the first [`GroupRecord::wire_len`] bytes of `out`, which must be that long; the rest
    /// of it.
    pub fn emit<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        let (head, mut rest) = out.split_at_mut(HEADER_LEN);
        head[..2].copy_from_slice(&[self.kind as u8, 0]);
        head[2..].copy_from_slice(&(self.sources.len() as u16).to_be_bytes());
        for address in core::iter::once(&self.group).chain(self.sources) {
            rest = match address {
                IpAddr::V4(ip) => put(&ip.octets(), rest),
                IpAddr::V6(ip) => put(&ip.octets(), rest),
            };
        }
        rest
    }
}

fn put<'o>(octets: &[u8], out: &'o mut [u8]) -> &'o mut [u8] {
    let (place, rest) = out.split_at_mut(octets.len());
    place.copy_from_slice(octets);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_kind_count_group_and_sources() {
        // RFC 3376 4.2, RFC 3810 5.2.
        let record = GroupRecord {
            kind: RecordKind::ToExclude,
            group: [239, 1, 2, 3].into(),
            sources: &[IpAddr::from([10, 0, 0, 1])],
        };
        let mut out = [9; 13];
        assert_eq!(record.wire_len(), 12);
        assert_eq!(record.emit(&mut out).len(), 1);
        assert_eq!(out, [4, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 1, 9]);
        let record = GroupRecord {
            kind: RecordKind::Block,
            group: "ff0e::7".parse().unwrap(),
            sources: &[],
        };
        let mut out = [9; 20];
        assert_eq!(record.wire_len(), 20);
        record.emit(&mut out);
        assert_eq!((&out[..5], out[19]), (&[6, 0, 0, 0, 0xff][..], 7));
    }
}
