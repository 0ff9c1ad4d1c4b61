//! Source filters read back, and set in the form that serves both families: `struct ip_msfilter` and `struct
//! group_filter` (ip_mc_msfget(), ip_mc_gsfget(), ip6_mc_msfget()).

use std::net::IpAddr;

use crate::addr::Family;
use crate::description::{Description, Kind};
use crate::errno::Errno;
use crate::options::multicast::{IP_MSFILTER, STORAGE, STORAGE_AT, storage, v4_at, word_at};
use crate::process::Process;

/// linux/in.h.
pub(super) const MCAST_MSFILTER: i32 = 48;

/// Where the parts of a structure lie.
#[derive(Clone, Copy)]
struct Shape {
    mode_at: usize,
    count_at: usize,
    sources_at: usize,
    /// Bytes of each source.
    each: usize,
}

const NARROW: Shape = Shape {
    mode_at: 8,
    count_at: 12,
    sources_at: 16,
    each: 4,
};
const WIDE: Shape = Shape {
    mode_at: STORAGE_AT + STORAGE,
    count_at: STORAGE_AT + STORAGE + 4,
    sources_at: STORAGE_AT + STORAGE + 8,
    each: STORAGE,
};

/// Mode and sources of a `struct group_filter`. `None`: the kernel is to judge it.
pub(super) fn read_wide(value: &[u8], sources_max: usize) -> Option<(bool, Vec<IpAddr>)> {
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

impl Process {
    /// IP_MSFILTER and MCAST_MSFILTER of a group on the stack's interface. `Ok(None)`: of another, or another option.
    pub(super) fn filter_of(
        &self,
        socket: &Description,
        level: i32,
        name: i32,
        value: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        let shape = match (level, name) {
            (libc::IPPROTO_IP, IP_MSFILTER) => NARROW,
            (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_MSFILTER) => WIDE,
            _ => return Ok(None),
        };
        if socket.kind != Kind::Dgram || value.len() < shape.sources_at {
            return Ok(None);
        }
        let Some(group) = self.group_on_stack(name, value) else {
            return Ok(None);
        };
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let cold = socket.cold.lock();
        let mut memberships = cold.memberships.iter();
        let found = memberships.find(|one| one.group == group);
        let membership = found.ok_or(Errno::EADDRNOTAVAIL)?;
        let asked = word_at(value, shape.count_at).unwrap_or(0) as usize;
        let room = (value.len() - shape.sources_at) / shape.each;
        let copied = membership.sources.len().min(asked).min(room);
        let mode = u32::from(!membership.is_exclude);
        put(value, shape.mode_at, &mode.to_ne_bytes());
        let count = membership.sources.len() as u32;
        put(value, shape.count_at, &count.to_ne_bytes());
        for (n, source) in membership.sources.iter().take(copied).enumerate() {
            put_source(value, shape.sources_at + n * shape.each, *source, shape);
        }
        Ok(Some(shape.sources_at + copied * shape.each))
    }
}

fn put(value: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = value.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn put_source(value: &mut [u8], at: usize, source: IpAddr, shape: Shape) {
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

/// The group that a structure names.
pub(super) fn group_of(name: i32, value: &[u8]) -> Option<IpAddr> {
    if name == IP_MSFILTER {
        return v4_at(value, 0).map(IpAddr::V4);
    }
    storage(value.get(STORAGE_AT..STORAGE_AT + STORAGE)?)
}
