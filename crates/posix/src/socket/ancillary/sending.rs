//! Control messages of a datagram to send: udp_cmsg_send(), ip_cmsg_send() and
//! ip6_datagram_send_ctl() of Linux.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addr::Family;
use crate::errno::Errno;
use crate::socket::ancillary::HEADER_LEN;
use crate::socket::stamping;

/// A program's options for one datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sending {
    /// The address that it comes from.
    pub(crate) src: Option<IpAddr>,
    /// The number of the interface that it leaves by; 0 = as routes say.
    pub(crate) interface: u32,
    pub(crate) tos: Option<u8>,
    pub(crate) ttl: Option<u8>,
    /// The mark by which rules choose its table; `None`: the socket's.
    pub(crate) mark: Option<u32>,
    /// The priority (SO_PRIORITY); `None`: that of `tos`, or the socket's.
    pub(crate) priority: Option<i32>,
    /// Forbids fragments (IPV6_DONTFRAG).
    pub(crate) is_whole: bool,
    /// UDP_SEGMENT; 0 = one datagram, whatever the socket's option.
    pub(crate) segment: Option<u16>,
    /// Requested timestamps (SO_TIMESTAMPING's bits); `None`: those of the socket's option.
    pub(crate) stamps: Option<u32>,
}

const SO_MARK: i32 = 36;
const SO_PRIORITY: i32 = 12;
const SO_TIMESTAMPING_OLD: i32 = 37;
const SO_TIMESTAMPING_NEW: i32 = 65;
const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
const IPV6_2292PKTINFO: i32 = 2;
const IPV6_DONTFRAG: i32 = 62;
const IPV6_FLOWINFO: i32 = 11;

/// Reads a program's control messages, of which those of other levels are passed over.
pub(crate) fn parse(control: &[u8], family: Family) -> Result<Sending, Errno> {
    let mut sending = Sending::default();
    each(control, |of, data| take(&mut sending, family, of, data))?;
    Ok(sending)
}

/// sock_cmsg_send(): of a stream's control messages only those of SOL_SOCKET are read. Returns the
/// requested timestamps.
pub(crate) fn check_stream(control: &[u8]) -> Result<Option<u32>, Errno> {
    let mut stamps = None;
    each(control, |(level, kind), data| match level {
        libc::SOL_SOCKET => {
            take_socket(kind, data)?;
            if is_stamping(kind) {
                stamps = Some(stamps_of(data)?);
            }
            Ok(())
        }
        _ => Ok(()),
    })?;
    Ok(stamps)
}

fn is_stamping(kind: i32) -> bool {
    matches!(kind, SO_TIMESTAMPING_OLD | SO_TIMESTAMPING_NEW)
}

/// __sock_cmsg_send(): only the requested timestamps can be set for one message.
fn stamps_of(data: &[u8]) -> Result<u32, Errno> {
    let bits = whole_int(data)?.cast_unsigned();
    match bits & !stamping::TX_RECORD {
        0 => Ok(bits),
        _ => Err(Errno::EINVAL),
    }
}

/// Walks the messages: their level and kind, and their data.
fn each(
    control: &[u8],
    mut visit: impl FnMut((i32, i32), &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut rest = control;
    while rest.len() >= HEADER_LEN {
        let word = |at: usize| int(&rest[at..]).unwrap_or(0);
        let len = rest
            .first_chunk()
            .map_or(0, |len| usize::from_ne_bytes(*len));
        if len < HEADER_LEN || len > rest.len() {
            return Err(Errno::EINVAL);
        }
        let (level, kind, data) = (word(8), word(12), &rest[HEADER_LEN..len]);
        visit((level, kind), data)?;
        rest = rest.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
    Ok(())
}

fn take(
    sending: &mut Sending,
    family: Family,
    (level, kind): (i32, i32),
    data: &[u8],
) -> Result<(), Errno> {
    match level {
        libc::SOL_UDP => take_udp(sending, kind, data),
        libc::SOL_SOCKET => {
            take_socket(kind, data)?;
            if kind == SO_MARK {
                sending.mark = Some(whole_int(data)?.cast_unsigned());
            }
            if kind == SO_PRIORITY {
                sending.priority = Some(whole_int(data)?);
            }
            if is_stamping(kind) {
                sending.stamps = Some(stamps_of(data)?);
            }
            Ok(())
        }
        // A socket of IPv6 sends to v4-mapped addresses by the rules of IPv4.
        libc::IPPROTO_IP => take_v4(sending, kind, data),
        libc::IPPROTO_IPV6 if family == Family::V6 => take_v6(sending, kind, data),
        _ => Ok(()),
    }
}

fn take_udp(sending: &mut Sending, kind: i32, data: &[u8]) -> Result<(), Errno> {
    match (kind, data) {
        (libc::UDP_SEGMENT, &[a, b]) => {
            sending.segment = Some(u16::from_ne_bytes([a, b]));
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Priorities and marks of one message mean nothing to a stream.
fn take_socket(kind: i32, data: &[u8]) -> Result<(), Errno> {
    match kind {
        SO_MARK | SO_PRIORITY | SO_TIMESTAMPING_OLD | SO_TIMESTAMPING_NEW if data.len() == 4 => {
            Ok(())
        }
        SCM_RIGHTS | SCM_CREDENTIALS => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

fn take_v4(sending: &mut Sending, kind: i32, data: &[u8]) -> Result<(), Errno> {
    match kind {
        libc::IP_PKTINFO => {
            let info: &[u8; 12] = data.try_into().map_err(|_| Errno::EINVAL)?;
            let [i, j, k, l, a, b, c, d, ..] = *info;
            sending.interface = u32::from_ne_bytes([i, j, k, l]);
            let ip = Ipv4Addr::new(a, b, c, d);
            sending.src = (!ip.is_unspecified()).then_some(ip.into());
        }
        libc::IP_TTL => {
            let ttl = whole_int(data)?;
            sending.ttl = Some(in_range(ttl, 1)?);
        }
        libc::IP_TOS => {
            let tos = match data {
                [tos] => i32::from(*tos),
                data => whole_int(data)?,
            };
            sending.tos = Some(in_range(tos, 0)?);
            sending.priority = None;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

fn take_v6(sending: &mut Sending, kind: i32, data: &[u8]) -> Result<(), Errno> {
    match kind {
        libc::IPV6_PKTINFO | IPV6_2292PKTINFO => {
            let info: &[u8; 20] = data.first_chunk().ok_or(Errno::EINVAL)?;
            let octets: &[u8; 16] = info.first_chunk().ok_or(Errno::EINVAL)?;
            let ip = Ipv6Addr::from(*octets);
            sending.src = (!ip.is_unspecified()).then(|| IpAddr::V6(ip).to_canonical());
            let [.., i, j, k, l] = *info;
            sending.interface = u32::from_ne_bytes([i, j, k, l]);
        }
        libc::IPV6_HOPLIMIT => sending.ttl = optional_byte(data)?,
        libc::IPV6_TCLASS => sending.tos = optional_byte(data)?,
        // Packets have no flow label: as from a kernel with exclusive labels (flowlabel_exclusive),
        // of which this socket has leased none. A class is set by IPV6_TCLASS.
        IPV6_FLOWINFO if is_unlabelled(data) => {}
        IPV6_DONTFRAG if matches!(whole_int(data)?, 0 | 1) => {
            sending.is_whole = whole_int(data)? == 1;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Returns whether the value (IPV6_FLOWINFO_MASK: class and label) is none.
fn is_unlabelled(data: &[u8]) -> bool {
    matches!(data, [class, 0, 0, 0, ..] if class & 0xf == 0)
}

/// -1 leaves the value to the socket's option.
fn optional_byte(data: &[u8]) -> Result<Option<u8>, Errno> {
    match whole_int(data)? {
        -1 => Ok(None),
        value => in_range(value, 0).map(Some),
    }
}

fn in_range(value: i32, least: u8) -> Result<u8, Errno> {
    let byte = u8::try_from(value).ok().filter(|value| *value >= least);
    byte.ok_or(Errno::EINVAL)
}

fn whole_int(data: &[u8]) -> Result<i32, Errno> {
    int(data).filter(|_| data.len() == 4).ok_or(Errno::EINVAL)
}

fn int(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|four| i32::from_ne_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let len = HEADER_LEN + data.len();
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(len.next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn several_control_messages_are_combined() {
        let control = [
            message(libc::IPPROTO_IP, libc::IP_TTL, &7i32.to_ne_bytes()),
            message(libc::SOL_UDP, libc::UDP_SEGMENT, &1200u16.to_ne_bytes()),
            message(libc::IPPROTO_IP, libc::IP_TOS, &[0x2e]),
            message(libc::SOL_SOCKET, SO_MARK, &20u32.to_ne_bytes()),
            message(libc::SOL_SOCKET, SO_PRIORITY, &6i32.to_ne_bytes()),
            message(
                libc::IPPROTO_IP,
                libc::IP_PKTINFO,
                &[0, 0, 0, 0, 10, 0, 0, 5, 0, 0, 0, 0],
            ),
        ]
        .concat();
        let expected = Sending {
            stamps: None,
            src: Some("10.0.0.5".parse().unwrap()),
            interface: 0,
            tos: Some(0x2e),
            ttl: Some(7),
            mark: Some(20),
            priority: Some(6),
            is_whole: false,
            segment: Some(1200),
        };
        assert_eq!(parse(&control, Family::V4), Ok(expected));
    }

    #[test]
    fn values_out_of_range_and_wrong_lengths_are_invalid() {
        let int = |level, kind, value: i32| message(level, kind, &value.to_ne_bytes());
        for (family, bad) in [
            (Family::V4, int(libc::IPPROTO_IP, libc::IP_TTL, 0)),
            (Family::V4, int(libc::IPPROTO_IP, libc::IP_TOS, 256)),
            (Family::V4, int(libc::SOL_UDP, libc::UDP_SEGMENT, 1)),
            (
                Family::V4,
                message(libc::IPPROTO_IP, libc::IP_PKTINFO, &[0; 8]),
            ),
            (Family::V6, int(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, -2)),
            (
                Family::V4,
                vec![15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
            (
                Family::V4,
                vec![99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
        ] {
            assert_eq!(parse(&bad, family), Err(Errno::EINVAL), "{bad:?}");
        }
        let flow = |info: &[u8]| {
            parse(
                &message(libc::IPPROTO_IPV6, IPV6_FLOWINFO, info),
                Family::V6,
            )
        };
        assert_eq!(flow(&[0x60, 0, 0, 0]), Ok(Sending::default()));
        for info in [&[0, 0, 0, 1][..], &[0, 8, 0, 0], &[2, 0, 0, 0], &[0, 0, 0]] {
            assert_eq!(flow(info), Err(Errno::EINVAL), "{info:?}");
        }
        let other = int(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, -2);
        assert_eq!(parse(&other, Family::V4), Ok(Sending::default()));
        assert_eq!(parse(&other[..15], Family::V6), Ok(Sending::default()));
    }
}
