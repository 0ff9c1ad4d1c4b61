//! Memory that waiting datagrams take of a receive buffer whose size a program has set,
//! as the kernel counts: a datagram takes more than its bytes (`skb->truesize`).

use std::collections::VecDeque;

/// `sk_buff`.
const SK_BUFF: u64 = 256;
/// The object of the cache of small heads.
const SMALL_HEAD: u64 = 576;
/// `skb_shared_info`, and room before the headers with their alignment.
const BESIDE: u64 = 320 + 31;
const IP_HEADER: u64 = 20;
const UDP_HEADER: u64 = 8;
/// Bytes of a full fragment.
const FRAGMENT: u64 = 1480;
/// SOCK_MIN_RCVBUF.
pub const RCVBUF_MIN: u64 = 2304;

/// Returns the bytes of a receive buffer that a datagram with so many bytes of payload takes.
pub fn charge_of(len: usize) -> u64 {
    let bytes = len as u64 + UDP_HEADER;
    let piece = |bytes: u64| match bytes + IP_HEADER + BESIDE {
        all if all <= SMALL_HEAD => SK_BUFF + SMALL_HEAD,
        all => SK_BUFF + all.next_power_of_two(),
    };
    let rest = bytes % FRAGMENT;
    let last = if rest > 0 { piece(rest) } else { 0 };
    bytes / FRAGMENT * piece(FRAGMENT) + last
}

/// Returns whether a buffer in which `waiting` bytes are taken has room for a further datagram. One
/// that waits alone may be larger than the buffer.
pub fn has_room(waiting: u64, charge: u64, rcvbuf: u64) -> bool {
    waiting == 0 || waiting + charge <= rcvbuf.max(RCVBUF_MIN)
}

/// The waiting datagrams of one socket.
#[derive(Debug, Default)]
pub struct Charges {
    /// The place in the ring after each datagram, with what it takes.
    each: VecDeque<(u64, u64)>,
    sum: u64,
}

impl Charges {
    /// Returns whether there is room for a datagram, if the program has read up to `consumed`.
    pub fn has_room(&mut self, consumed: u64, charge: u64, rcvbuf: u64) -> bool {
        while let Some((end, read)) = self.each.front()
            && *end <= consumed
        {
            self.sum -= read;
            self.each.pop_front();
        }
        has_room(self.sum, charge, rcvbuf)
    }

    /// Counts a datagram that waits before `end`.
    pub fn add(&mut self, end: u64, charge: u64) {
        self.each.push_back((end, charge));
        self.sum += charge;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_take_what_they_take_on_the_kernel() {
        // Payload, and how many of them a buffer of 32768 bytes holds.
        for (len, count) in [
            (1, 39),
            (197, 39),
            (198, 25),
            (645, 25),
            (646, 14),
            (1472, 14),
        ] {
            assert_eq!(32_768 / charge_of(len), count, "{len}");
        }
        assert_eq!(32_768 / charge_of(3000), 6);
        assert_eq!(32_768 / charge_of(8000), 2);
    }

    #[test]
    fn room_comes_back_when_datagrams_are_read() {
        let mut charges = Charges::default();
        let rcvbuf = 2 * charge_of(10);
        assert!(
            charges.has_room(0, charge_of(60_000), rcvbuf),
            "it is alone"
        );
        for end in [100, 200] {
            assert!(charges.has_room(0, charge_of(10), rcvbuf.max(RCVBUF_MIN)));
            charges.add(end, charge_of(10));
        }
        assert!(!charges.has_room(99, charge_of(1000), rcvbuf));
        assert!(charges.has_room(200, charge_of(1000), rcvbuf));
        assert_eq!(charges.sum, 0);
    }
}
