//! `sendmsg` and `recvmsg`: buffers, addresses and control messages in one call.

pub mod abi;
mod rights;

use slipstack_posix::AddrBytes;

/// One control message: header, then data; `cmsg_len` counts both.
const HEADER_LEN: usize = size_of::<libc::cmsghdr>();

/// The control message that tells where a datagram was sent to, without its padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Control {
    bytes: [u8; Control::LEN_MAX],
    len: usize,
}

impl Control {
    const LEN_MAX: usize = HEADER_LEN + 24;

    /// IP_PKTINFO for a `sockaddr_in`, IPV6_PKTINFO for a `sockaddr_in6`. The stack's
    /// interface has no number in the kernel: 0.
    fn packet_info(to: AddrBytes) -> Option<Control> {
        let address = to.as_bytes();
        match address.len() {
            16 => {
                let ip: [u8; 4] = address[4..8].try_into().ok()?;
                let mut data = [0; 12];
                data[4..8].copy_from_slice(&ip);
                data[8..12].copy_from_slice(&ip);
                Some(Control::new(libc::IPPROTO_IP, libc::IP_PKTINFO, &data))
            }
            28 => {
                let mut data = [0; 20];
                data[..16].copy_from_slice(&address[8..24]);
                Some(Control::new(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data))
            }
            _ => None,
        }
    }

    fn new(level: i32, kind: i32, data: &[u8]) -> Control {
        let len = HEADER_LEN + data.len();
        let mut bytes = [0; Control::LEN_MAX];
        bytes[..8].copy_from_slice(&len.to_ne_bytes());
        bytes[8..12].copy_from_slice(&level.to_ne_bytes());
        bytes[12..16].copy_from_slice(&kind.to_ne_bytes());
        bytes[HEADER_LEN..len].copy_from_slice(data);
        Control { bytes, len }
    }

    /// Copies it to the program's `place` as the kernel does: how much of the place is
    /// used (with padding), and whether something had to be cut off.
    fn give(&self, place: &mut [u8]) -> (usize, bool) {
        if place.len() < HEADER_LEN {
            return (0, true);
        }
        let copied = self.len.min(place.len());
        place[..copied].copy_from_slice(&self.bytes[..copied]);
        place[..8].copy_from_slice(&copied.to_ne_bytes());
        let padded = copied.next_multiple_of(8).min(place.len());
        (padded, copied < self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_posix::addr::Family;

    fn control() -> Control {
        let to = AddrBytes::new("10.0.0.5:53".parse().unwrap(), Family::V4);
        Control::packet_info(to).unwrap()
    }

    #[test]
    fn packet_info_has_linuxs_layout() {
        let mut place = [0u8; 64];
        let (used, is_cut) = control().give(&mut place);
        assert_eq!((used, is_cut), (32, false));
        assert_eq!(place[..8], 28usize.to_ne_bytes());
        assert_eq!(place[24..28], [10, 0, 0, 5]);
    }

    #[test]
    fn a_short_place_gets_a_cut_message() {
        assert_eq!(control().give(&mut [0; 8]), (0, true));
        assert_eq!(control().give(&mut [0; 20]), (20, true));
    }
}
