//! Control messages of a received datagram, in Linux's order.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slipstack_channel::control::net::zone;
use slipstack_channel::{Envelope, Returned};

use crate::addr::{AddrBytes, Family};
use crate::errno::Errno;
use crate::socket::QueuedMessage;
use crate::socket::ancillary::{
    HEADER_LEN, IP_ORIGDSTADDR, IPV6_ORIGDSTADDR, RequestedControl, TIMESTAMP_NEW,
    TIMESTAMPING_NEW, TIMESTAMPNS_NEW,
};

/// Writes into a program's place for control messages, as put_cmsg().
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    place: &'a mut [u8],
    used: usize,
    is_cut: bool,
}

/// The settings of socket and machine that add to a datagram's control data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) family: Family,
    /// The interface's number in the kernel, 0 = it has none.
    pub(crate) interface: u32,
    /// CLOCK_MONOTONIC.
    pub(crate) now_ns: u64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(place: &'a mut [u8]) -> Writer<'a> {
        Writer {
            place,
            used: 0,
            is_cut: false,
        }
    }

    /// Bytes written, padding included, and whether something had to be cut off.
    pub(crate) fn finish(self) -> (usize, bool) {
        (self.used, self.is_cut)
    }

    pub(crate) fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let place = &mut self.place[self.used..];
        if place.len() < HEADER_LEN {
            self.is_cut = true;
            return;
        }
        let whole = HEADER_LEN + data.len();
        let len = whole.min(place.len());
        self.is_cut |= len < whole;
        place[..8].copy_from_slice(&len.to_ne_bytes());
        place[8..12].copy_from_slice(&level.to_ne_bytes());
        place[12..16].copy_from_slice(&kind.to_ne_bytes());
        place[HEADER_LEN..len].copy_from_slice(&data[..len - HEADER_LEN]);
        self.used += len.next_multiple_of(8).min(place.len());
    }

    fn put_int(&mut self, level: i32, kind: i32, value: i32) {
        self.put(level, kind, &value.to_ne_bytes());
    }

    /// Writes all requested control messages of a datagram.
    pub(crate) fn put_all(&mut self, requested: RequestedControl, it: &Envelope, setting: Setting) {
        let local = it.local.map(|local| local.ip().to_canonical());
        self.put_each(requested, it, setting, local);
    }

    /// `source`: the source address of an answer, which IP_PKTINFO returns too.
    fn put_each(
        &mut self,
        requested: RequestedControl,
        it: &Envelope,
        setting: Setting,
        source: Option<IpAddr>,
    ) {
        self.put_socket(requested, it, setting.now_ns);
        if requested.has(RequestedControl::SEGMENT)
            && let Some(size) = it.segment
        {
            self.put_int(libc::SOL_UDP, libc::UDP_GRO, size.get().into());
        }
        let is_v4 = it
            .local
            .is_some_and(|local| local.ip().to_canonical().is_ipv4());
        if requested.has(RequestedControl::PACKET_INFO_V6) && setting.family == Family::V6 {
            self.put_packet_info_v6(it, setting.interface);
        }
        if is_v4 {
            self.put_v4(requested, it, setting.interface, source);
        } else {
            self.put_v6(requested, it);
        }
    }

    /// Writes IP_RECVERR or IPV6_RECVERR: `struct sock_extended_err` and the offender's address,
    /// after the messages requested for any datagram.
    pub(crate) fn put_returned(
        &mut self,
        requested: RequestedControl,
        it: &Returned,
        setting: Setting,
    ) {
        let envelope = Envelope {
            local: Some(SocketAddr::new(it.local, 0)),
            tos: Some(it.tos),
            ttl: Some(it.ttl),
            time_ns: it.time_ns,
            ..Envelope::default()
        };
        // Nothing is answered: Linux leaves the source address empty.
        self.put_each(requested.of_error(), &envelope, setting, None);
        const ORIGIN_ICMP: u8 = 2;
        const ORIGIN_ICMP6: u8 = 3;
        let origin = if it.offender.is_ipv4() {
            ORIGIN_ICMP
        } else {
            ORIGIN_ICMP6
        };
        let offender = SocketAddr::new(it.offender, 0);
        let offender = AddrBytes::on_stack(offender, setting.family, setting.interface);
        let mut data = Vec::with_capacity(16 + offender.as_bytes().len());
        data.extend(Errno::from(it.reason).0.to_ne_bytes());
        data.extend([origin, it.kind, it.code, 0]);
        data.extend(it.info.to_ne_bytes());
        data.extend(0u32.to_ne_bytes());
        data.extend(offender.as_bytes());
        match setting.family {
            Family::V4 => self.put(libc::IPPROTO_IP, libc::IP_RECVERR, &data),
            Family::V6 => self.put(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, &data),
        }
    }

    fn put_socket(&mut self, requested: RequestedControl, it: &Envelope, now_ns: u64) {
        self.put_times(requested, it.time_ns, now_ns);
        // Linux is silent while nothing was lost.
        if requested.has(RequestedControl::LOST) && it.lost != 0 {
            self.put(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &it.lost.to_ne_bytes());
        }
        // Datagrams that arrive by the stack have no mark and no priority.
        for (request, kind) in [
            (RequestedControl::MARK, libc::SO_MARK),
            (RequestedControl::PRIORITY, libc::SO_PRIORITY),
        ] {
            if requested.has(request) {
                self.put_int(libc::SOL_SOCKET, kind, 0);
            }
        }
    }

    /// Writes when data arrived, by CLOCK_MONOTONIC, as requested.
    pub(crate) fn put_times(&mut self, requested: RequestedControl, then_ns: u64, now_ns: u64) {
        let is_coarse =
            requested.has(RequestedControl::TIME) || requested.has(RequestedControl::TIME_NEW);
        if is_coarse
            || requested.has(RequestedControl::TIME_NS)
            || requested.has(RequestedControl::TIME_NS_NEW)
        {
            let at = wall_time(then_ns, now_ns);
            let kind = match requested {
                requested if requested.has(RequestedControl::TIME) => libc::SO_TIMESTAMP,
                requested if requested.has(RequestedControl::TIME_NS) => libc::SO_TIMESTAMPNS,
                requested if requested.has(RequestedControl::TIME_NEW) => TIMESTAMP_NEW,
                _ => TIMESTAMPNS_NEW,
            };
            let part = if is_coarse {
                u64::from(at.subsec_micros())
            } else {
                u64::from(at.subsec_nanos())
            };
            let mut data = [0; 16];
            data[..8].copy_from_slice(&at.as_secs().to_ne_bytes());
            data[8..].copy_from_slice(&part.to_ne_bytes());
            self.put(libc::SOL_SOCKET, kind, &data);
        }
        if requested.has(RequestedControl::STAMP) || requested.has(RequestedControl::STAMP_NEW) {
            let at = wall_time(then_ns, now_ns);
            self.put_stamp(at, requested.has(RequestedControl::STAMP_NEW));
        }
    }

    /// SCM_TIMESTAMPING: the system's time, one that is no longer in use, and the hardware's.
    fn put_stamp(&mut self, at: Duration, is_new: bool) {
        let mut data = [0; 48];
        data[..8].copy_from_slice(&at.as_secs().to_ne_bytes());
        data[8..16].copy_from_slice(&u64::from(at.subsec_nanos()).to_ne_bytes());
        let kind = if is_new {
            TIMESTAMPING_NEW
        } else {
            libc::SO_TIMESTAMPING
        };
        self.put(libc::SOL_SOCKET, kind, &data);
    }

    /// Writes a message of the error queue that no packet caused: `struct sock_extended_err`, and
    /// no offender.
    pub(crate) fn put_queued(&mut self, message: &QueuedMessage, family: Family) {
        const ORIGIN_LOCAL: u8 = 1;
        const ORIGIN_TIMESTAMPING: u8 = 4;
        const ORIGIN_ZEROCOPY: u8 = 5;
        const CODE_COPIED: u8 = 1;
        let (errno, origin, code, info, data) = match *message {
            QueuedMessage::TooLong { mtu, .. } => (Errno::EMSGSIZE.0, ORIGIN_LOCAL, 0, mtu, 0),
            QueuedMessage::Copied { first, last } => (0, ORIGIN_ZEROCOPY, CODE_COPIED, first, last),
            QueuedMessage::Left { id, kind, at } => {
                if at != Duration::ZERO {
                    self.put_stamp(at, false);
                }
                (libc::ENOMSG, ORIGIN_TIMESTAMPING, 0, kind, id)
            }
        };
        let (level, name, offender_len) = match family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVERR, 16),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 28),
        };
        let mut bytes = Vec::with_capacity(16 + offender_len);
        bytes.extend(errno.to_ne_bytes());
        bytes.extend([origin, 0, code, 0]);
        bytes.extend(info.to_ne_bytes());
        bytes.extend(data.to_ne_bytes());
        bytes.resize(16 + offender_len, 0);
        self.put(level, name, &bytes);
    }

    fn put_v4(
        &mut self,
        requested: RequestedControl,
        it: &Envelope,
        interface: u32,
        source: Option<IpAddr>,
    ) {
        const LEVEL: i32 = libc::IPPROTO_IP;
        let Some(local) = it.local else { return };
        if requested.has(RequestedControl::PACKET_INFO)
            && let IpAddr::V4(ip) = local.ip().to_canonical()
        {
            let mut data = [0; 12];
            data[..4].copy_from_slice(&interface.to_ne_bytes());
            if let Some(IpAddr::V4(source)) = source {
                data[4..8].copy_from_slice(&source.octets());
            }
            data[8..].copy_from_slice(&ip.octets());
            self.put(LEVEL, libc::IP_PKTINFO, &data);
        }
        if requested.has(RequestedControl::TTL) {
            self.put_int(LEVEL, libc::IP_TTL, it.ttl.unwrap_or(0).into());
        }
        if requested.has(RequestedControl::TOS) {
            self.put(LEVEL, libc::IP_TOS, &[it.tos.unwrap_or(0)]);
        }
        if requested.has(RequestedControl::DESTINATION) {
            let address = AddrBytes::new(local, Family::V4);
            self.put(LEVEL, IP_ORIGDSTADDR, address.as_bytes());
        }
    }

    fn put_packet_info_v6(&mut self, it: &Envelope, interface: u32) {
        let Some(local) = it.local else { return };
        let ip = match local.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => zone::plain(ip),
        };
        let mut data = [0; 20];
        data[..16].copy_from_slice(&ip.octets());
        data[16..].copy_from_slice(&interface.to_ne_bytes());
        self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
    }

    fn put_v6(&mut self, requested: RequestedControl, it: &Envelope) {
        const LEVEL: i32 = libc::IPPROTO_IPV6;
        if requested.has(RequestedControl::HOP_LIMIT) {
            self.put_int(LEVEL, libc::IPV6_HOPLIMIT, it.ttl.unwrap_or(0).into());
        }
        if requested.has(RequestedControl::TRAFFIC_CLASS) {
            self.put_int(LEVEL, libc::IPV6_TCLASS, it.tos.unwrap_or(0).into());
        }
        if requested.has(RequestedControl::DESTINATION_V6)
            && let Some(local) = it.local
        {
            let address = AddrBytes::new(local, Family::V6);
            self.put(LEVEL, IPV6_ORIGDSTADDR, address.as_bytes());
        }
    }
}

/// The engine's clock has no date: how long ago it was is the same on both.
fn wall_time(then_ns: u64, now_ns: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let age = Duration::from_nanos(now_ns.saturating_sub(then_ns));
    now.unwrap_or_default().saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting {
        family: Family::V4,
        interface: 3,
        now_ns: 0,
    };

    fn envelope() -> Envelope {
        Envelope {
            local: Some("10.0.0.5:53".parse().unwrap()),
            ..Envelope::default()
        }
    }

    #[test]
    fn packet_info_has_linuxs_layout() {
        let mut place = [0u8; 64];
        let mut writer = Writer::new(&mut place);
        writer.put_all(RequestedControl::PACKET_INFO, &envelope(), SETTING);
        assert_eq!(writer.finish(), (32, false));
        assert_eq!(place[..8], 28usize.to_ne_bytes());
        assert_eq!(place[16..28], [3, 0, 0, 0, 10, 0, 0, 5, 10, 0, 0, 5]);
    }

    #[test]
    fn a_short_control_buffer_gets_a_truncated_message() {
        for (len, expected) in [(8, (0, true)), (20, (20, true)), (28, (28, false))] {
            let mut place = vec![0; len];
            let mut writer = Writer::new(&mut place);
            writer.put_all(RequestedControl::PACKET_INFO, &envelope(), SETTING);
            assert_eq!(writer.finish(), expected);
        }
    }
}
