use super::*;
use crate::GroupChange;

#[test]
fn options_come_back_as_they_were() {
    let keep_alive = KeepAlive {
        enabled: true,
        probes: 3,
        ..KeepAlive::default()
    };
    let ports = PortRange {
        first: 1000,
        last: 2000,
    };
    let group = MulticastOption::Group {
        group: "ff0e::7".parse().unwrap(),
        link: 0x7001,
        change: GroupChange::Unblock("fd00::9".parse().unwrap()),
    };
    for option in [
        SocketOption::NoDelay(true),
        SocketOption::KeepAlive(keep_alive),
        SocketOption::UserTimeout(Some(Duration::from_millis(1500))),
        SocketOption::UserTimeout(Some(Duration::ZERO)),
        SocketOption::Linger2(None),
        SocketOption::RcvBuf(u32::MAX),
        SocketOption::MaxPacingRate(u32::MAX),
        SocketOption::RtoMin(5_000),
        SocketOption::HopsMinV6(255),
        SocketOption::Congestion(Congestion::Bbr),
        SocketOption::MaxSeg(None),
        SocketOption::MaxSeg(Some(536)),
        SocketOption::PortRange(ports),
        SocketOption::MtuDiscovery(MtuDiscovery::Omit),
        SocketOption::Multicast(group),
        SocketOption::ResetsAtEnd(true),
    ] {
        let (number, words) = option.encode();
        assert_eq!(SocketOption::decode(number, words), Some(option));
    }
}

#[test]
fn unusual_spellings_of_numbers_are_refused() {
    let one = |number, word| SocketOption::decode(number, crate::words::one(word));
    assert_eq!(one(0, 0), None);
    assert_eq!(one(u8::MAX, 0), None);
    assert_eq!(one(1, 2), None, "no boolean");
    assert_eq!(one(11, 256), None, "no byte");
    assert_eq!(one(5, (1 << 32) | 1), None, "no time");
    assert_eq!(one(8, Congestion::ALL.len() as u64), None);
    assert_eq!(one(22, MtuDiscovery::ALL.len() as u64), None);
    assert_eq!(one(29, 11), None, "no change of a group");
}

#[test]
fn options_are_recorded_before_there_is_a_connection() {
    let mut options = SocketOptions::default();
    for option in [
        SocketOption::NoDelay(true),
        SocketOption::SndBuf(4096),
        SocketOption::MaxSeg(Some(536)),
        SocketOption::MaxSeg(None),
        SocketOption::Mark(7),
    ] {
        options.set(option);
    }
    let expected = SocketOptions {
        no_delay: true,
        sndbuf: Some(4096),
        mark: 7,
        ..SocketOptions::default()
    };
    assert_eq!(options, expected);
}

#[test]
fn a_size_that_is_set_later_locks_its_buffer_too() {
    let mut options = SocketOptions::default();
    options.set(SocketOption::RcvBuf(4096));
    assert_eq!(options.buf_lock, None);
    options.set(SocketOption::BufLock(0));
    assert_eq!(options.buf_lock, Some(0));
    options.set(SocketOption::RcvBuf(4096));
    options.set(SocketOption::SndBuf(4096));
    assert_eq!(options.buf_lock, Some(3));
}
