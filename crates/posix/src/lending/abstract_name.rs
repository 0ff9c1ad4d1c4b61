//! The name of a lent connection: the steward's end of its pair is bound to an abstract name with
//! both addresses, the inode, the owner's number for it and whether it may be written to, which the
//! holder of the other end finds by `getpeername`.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::SocketAddrUnix;
use slipstack_mem::Descriptor;

use crate::socket::borrowed::{Names, PairName};

const PREFIX: &[u8] = b"slipstack-held\0";
/// Family (4 or 6), address, port.
const ADDRESS: usize = 1 + 16 + 2;
const NUMBER: usize = 8;
const LEN: usize = PREFIX.len() + size_of::<PairName>() + 2 * NUMBER + 1 + 2 * ADDRESS;

/// Makes names.
#[derive(Debug, Default)]
pub(crate) struct AbstractNames(AtomicU64);

impl AbstractNames {
    /// Names the end `ours`. Without a name the connection works all the same.
    pub(crate) fn put(&self, ours: &OwnedFd, names: &Names) {
        let (Some(local), Some(remote)) = (names.local, names.remote) else {
            return;
        };
        let mut name = Vec::with_capacity(LEN);
        name.extend_from_slice(PREFIX);
        name.extend_from_slice(&std::process::id().to_le_bytes());
        name.extend_from_slice(&slipstack_mem::now_ns().to_le_bytes());
        name.extend_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        name.extend_from_slice(&names.id.to_le_bytes());
        name.extend_from_slice(&names.inode.to_le_bytes());
        name.push(u8::from(names.is_shut));
        for addr in [local, remote] {
            let (family, ip) = match addr.ip() {
                IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
                IpAddr::V6(ip) => (6, ip),
            };
            name.push(family);
            name.extend_from_slice(&ip.octets());
            name.extend_from_slice(&addr.port().to_le_bytes());
        }
        if let Ok(name) = SocketAddrUnix::new_abstract_name(&name) {
            let _ = rustix::net::bind(ours, &name);
        }
    }
}

/// Returns the names of the lent connection that `number` is an end of, and its pair's.
pub(crate) fn read(number: Descriptor) -> Option<(Names, PairName)> {
    let peer = rustix::net::getpeername(number.as_fd()).ok()??;
    let peer = SocketAddrUnix::try_from(peer).ok()?;
    parse(peer.abstract_name()?)
}

fn parse(name: &[u8]) -> Option<(Names, PairName)> {
    let rest = name.strip_prefix(PREFIX).filter(|_| name.len() == LEN)?;
    let (pair, rest) = rest.split_first_chunk()?;
    let (id, rest) = rest.split_first_chunk::<NUMBER>()?;
    let (inode, rest) = rest.split_first_chunk::<NUMBER>()?;
    let (is_shut, addresses) = rest.split_first()?;
    let (local, remote) = addresses.split_at(ADDRESS);
    let names = Names {
        id: u64::from_le_bytes(*id),
        inode: u64::from_le_bytes(*inode),
        local: Some(address(local)?),
        remote: Some(address(remote)?),
        is_shut: *is_shut != 0,
    };
    Some((names, *pair))
}

fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let ip: [u8; 16] = bytes.get(1..17)?.try_into().ok()?;
    let ip = std::net::Ipv6Addr::from(ip);
    let ip = match bytes[0] {
        4 => IpAddr::V4(ip.to_ipv4_mapped()?),
        6 => IpAddr::V6(ip),
        _ => return None,
    };
    let port = u16::from_le_bytes(bytes.get(17..19)?.try_into().ok()?);
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_of_a_socket_pair_reads_both_addresses() {
        let plates = AbstractNames::default();
        for (local, remote) in [
            ("10.0.0.5:80", "10.0.0.1:40000"),
            ("[fd00::5]:443", "[fd00:77::ffff:1]:65535"),
        ] {
            let (local, remote): (SocketAddr, SocketAddr) =
                (local.parse().unwrap(), remote.parse().unwrap());
            let (ours, theirs) = UnixStream::pair().unwrap();
            let names = Names {
                id: 9,
                inode: 7 << 32,
                local: Some(local),
                remote: Some(remote),
                is_shut: remote.port() == 65535,
            };
            plates.put(&ours.into(), &names);
            let theirs = Descriptor::give(theirs.into());
            let (read, _) = read(theirs).unwrap();
            assert_eq!((read.local, read.remote), (names.local, names.remote));
            assert_eq!((read.id, read.inode), (names.id, names.inode));
            assert_eq!(read.is_shut, names.is_shut);
            theirs.close();
        }
    }

    #[test]
    fn foreign_names_are_ignored() {
        assert!(parse(b"slipstack-held\0").is_none());
        assert!(parse(&[0; LEN]).is_none());
        let mut name = PREFIX.to_vec();
        name.resize(LEN, 9);
        assert!(parse(&name).is_none());
    }
}
