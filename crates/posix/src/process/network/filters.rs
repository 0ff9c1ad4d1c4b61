//! Reading source filters: `struct ip_msfilter` and `struct group_filter` (ip_mc_msfget(),
//! ip_mc_gsfget(), ip6_mc_msfget()).

use crate::errno::Errno;
use crate::process::network::Network;
use crate::socket::description::{Description, Kind};
use crate::socket::options::structures::{
    IP_MSFILTER, MCAST_MSFILTER, NARROW, WIDE, put, put_source, word_at,
};

impl Network {
    /// IP_MSFILTER and MCAST_MSFILTER of a group on the stack's interface. `Ok(None)`: of another,
    /// or another option.
    pub(crate) fn filter_of(
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
        let Some((group, link)) = self.group_on_stack(name, value) else {
            return Ok(None);
        };
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let cold = socket.cold.lock();
        let mut memberships = cold.memberships.iter();
        let found = memberships.find(|one| one.group == group && one.link == link);
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
