//! The structures of calls about multicast groups: `struct group_req`, `struct ip_msfilter` and
//! `struct group_filter`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addr::Family;

/// linux/in.h; IPPROTO_IPV6 has the same numbers from 42 on.
pub(crate) const IP_MSFILTER: i32 = 41;
pub(crate) const MCAST_JOIN_GROUP: i32 = 42;
pub(crate) const MCAST_BLOCK_SOURCE: i32 = 43;
pub(crate) const MCAST_UNBLOCK_SOURCE: i32 = 44;
pub(crate) const MCAST_LEAVE_GROUP: i32 = 45;
pub(crate) const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
pub(crate) const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;

/// `struct sockaddr_storage`, and its place in `struct group_req`.
pub(crate) const STORAGE: usize = 128;
pub(crate) const STORAGE_AT: usize = 8;

/// linux/in.h.
pub(crate) const MCAST_MSFILTER: i32 = 48;

/// Places of the parts of a structure.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) mode_at: usize,
    pub(crate) count_at: usize,
    pub(crate) sources_at: usize,
    /// Bytes of each source.
    pub(crate) each: usize,
}

pub(crate) const NARROW: Shape = Shape {
    mode_at: 8,
    count_at: 12,
    sources_at: 16,
    each: 4,
};
pub(crate) const WIDE: Shape = Shape {
    mode_at: STORAGE_AT + STORAGE,
    count_at: STORAGE_AT + STORAGE + 4,
    sources_at: STORAGE_AT + STORAGE + 8,
    each: STORAGE,
};

/// Mode and sources of a `struct group_filter`. `None`: the kernel is to judge it.
pub(crate) fn read_wide(value: &[u8], sources_max: usize) -> Option<(bool, Vec<IpAddr>)> {
    let mode = word_at(value, WIDE.mode_at)?;
    let count = word_at(value, WIDE.count_at)? as usize;
    if mode > 1 || count > sources_max {
        return None;
    }
    let source = |n: usize| {
        let at = WIDE.sources_at + n * WIDE.each;
        storage(value.get(at..at + WIDE.each)?)
    };
    let sources: Option<Vec<IpAddr>> = (0..count).map(source).collect();
    Some((mode == 0, sources?))
}

pub(crate) fn v4_at(value: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = value.get(at..at + 4)?.try_into().ok()?;
    Some(octets.into())
}

pub(crate) fn word_at(value: &[u8], at: usize) -> Option<u32> {
    let bytes: [u8; 4] = value.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

/// The address in a `struct sockaddr_storage`.
pub(crate) fn storage(bytes: &[u8]) -> Option<IpAddr> {
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    if i32::from(family) == Family::V4.number() {
        return Some(v4_at(bytes, 4)?.into());
    }
    let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
    (i32::from(family) == Family::V6.number()).then(|| Ipv6Addr::from(octets).into())
}

/// The group that a structure names.
pub(crate) fn group_of(name: i32, value: &[u8]) -> Option<IpAddr> {
    if name == IP_MSFILTER {
        return v4_at(value, 0).map(IpAddr::V4);
    }
    storage(value.get(STORAGE_AT..STORAGE_AT + STORAGE)?)
}

pub(crate) fn put(value: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = value.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

pub(crate) fn put_source(value: &mut [u8], at: usize, source: IpAddr, shape: Shape) {
    match source {
        IpAddr::V4(ip) if shape.each == NARROW.each => put(value, at, &ip.octets()),
        IpAddr::V4(ip) => {
            put(value, at, &[0; STORAGE]);
            put(value, at, &(Family::V4.number() as u16).to_ne_bytes());
            put(value, at + 4, &ip.octets());
        }
        IpAddr::V6(ip) => {
            put(value, at, &[0; STORAGE]);
            put(value, at, &(Family::V6.number() as u16).to_ne_bytes());
            put(value, at + 8, &ip.octets());
        }
    }
}
