//! SYN cookies: a half-open connection that is stored in its own SYN-ACK.
//!
//! RFC 4987 3.6. The initial sequence number carries the peer's MSS and a MAC; window scale and
//! SACK are in the low bits of the timestamp that the peer echoes (as in Linux). Keys change every
//! [`EPOCH_NS`], and a cookie is valid for the rest of its epoch and the next one. Unlike Linux's,
//! the MAC covers the options, so that neither a peer nor a man in the middle can change what was
//! negotiated.

use super::flow::FlowKey;
use crate::rng::{Rng, SipKey};
use crate::time::Instant;

/// Time for which one key makes cookies.
pub const EPOCH_NS: u64 = 64_000_000_000;
/// The MSS values that a cookie can encode: the largest that does not exceed the peer's is used.
/// The smallest is the accepted minimum, the others are those of common links with IPv4, IPv6 and
/// tunnels.
const MSS_TABLE: [u16; 8] = [
    super::sizes::MSS_MIN,
    536,
    1220,
    1300,
    1400,
    1440,
    1460,
    8940,
];
const MAC_BITS: u32 = 28;
const MAC_MASK: u32 = (1 << MAC_BITS) - 1;
const INDEX_SHIFT: u32 = MAC_BITS;
const PARITY_SHIFT: u32 = 31;

/// Bits of a timestamp that are options: window scale (4), SACK (1), ECN (1).
const STAMP_BITS: u32 = 6;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
const SCALE_MASK: u32 = 0xf;
const SACK_BIT: u32 = 1 << 4;

/// The options of a SYN as a timestamp's low bits keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedOptions {
    /// `u8::MAX` = not offered.
    pub shift: u8,
    pub has_sack: bool,
}

impl StampedOptions {
    fn bits(self) -> u32 {
        // RFC 7323 2.3: more than 14 means 14; 15 is free for "none".
        let scale = match self.shift {
            u8::MAX => SCALE_MASK,
            shift => u32::from(shift.min(super::sizes::WINDOW_SHIFT_MAX)),
        };
        scale | if self.has_sack { SACK_BIT } else { 0 }
    }

    /// Encodes the options in the timestamp clock: never ahead of the clock, so that later
    /// timestamps are not older.
    pub fn stamp(self, clock: u32) -> u32 {
        let stamp = clock & !STAMP_MASK | self.bits();
        if super::seq::is_older(clock, stamp) {
            stamp.wrapping_sub(1 << STAMP_BITS)
        } else {
            stamp
        }
    }

    /// Reads the options back from the echoed timestamp.
    pub fn of_stamp(stamp: u32) -> StampedOptions {
        let scale = stamp & SCALE_MASK;
        StampedOptions {
            shift: if scale == SCALE_MASK {
                u8::MAX
            } else {
                scale as u8
            },
            has_sack: stamp & SACK_BIT != 0,
        }
    }
}

/// The values that a cookie authenticates besides the MSS.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub key: &'a FlowKey,
    /// Keyed hash of the flow: hides the structure of the cookie.
    pub mask: u32,
    /// The peer's initial sequence number.
    pub irs: u32,
    /// `None` = no timestamps.
    pub stamped: Option<StampedOptions>,
}

/// The keys of this epoch and the last one.
#[derive(Debug)]
pub struct CookieJar {
    /// By the epoch's parity.
    keys: [SipKey; 2],
    epoch: u64,
}

impl CookieJar {
    pub fn new(rng: &mut Rng, now: Instant) -> CookieJar {
        CookieJar {
            keys: [rng.sip_key(), rng.sip_key()],
            epoch: now.0 / EPOCH_NS,
        }
    }

    /// Replaces expired keys.
    fn turn(&mut self, now: Instant, rng: &mut Rng) {
        let epoch = now.0 / EPOCH_NS;
        if epoch <= self.epoch {
            return;
        }
        if epoch > self.epoch + 1 {
            self.keys = [rng.sip_key(), rng.sip_key()];
        } else {
            self.keys[(epoch & 1) as usize] = rng.sip_key();
        }
        self.epoch = epoch;
    }

    /// Returns an initial sequence number for `subject`, and the MSS that it encodes.
    pub fn seal(
        &mut self,
        now: Instant,
        subject: &Subject<'_>,
        mss: u16,
        rng: &mut Rng,
    ) -> (u32, u16) {
        self.turn(now, rng);
        let index = MSS_TABLE.iter().rposition(|&m| m <= mss).unwrap_or(0);
        let parity = (self.epoch & 1) as u32;
        let mac = mac(&self.keys[parity as usize], subject, index as u32);
        let cookie = parity << PARITY_SHIFT | (index as u32) << INDEX_SHIFT | mac;
        (cookie.wrapping_add(subject.mask), MSS_TABLE[index])
    }

    /// The MSS of a cookie of ours that is not too old.
    pub fn open(
        &mut self,
        now: Instant,
        subject: &Subject<'_>,
        iss: u32,
        rng: &mut Rng,
    ) -> Option<u16> {
        self.turn(now, rng);
        let cookie = iss.wrapping_sub(subject.mask);
        let parity = cookie >> PARITY_SHIFT;
        let index = cookie >> INDEX_SHIFT & 7;
        let mac = mac(&self.keys[parity as usize], subject, index);
        (mac == cookie & MAC_MASK).then(|| MSS_TABLE[index as usize])
    }
}

fn mac(key: &SipKey, subject: &Subject<'_>, index: u32) -> u32 {
    let options = subject.stamped.map_or(u32::MAX, StampedOptions::bits);
    let word = u64::from(subject.irs) << 32 | u64::from(options << 3 | index);
    subject.key.mac(key, word) as u32 & MAC_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use core::net::{IpAddr, Ipv4Addr};
    use proptest::prelude::*;

    const STAMPED: Option<StampedOptions> = Some(StampedOptions {
        shift: 7,
        has_sack: true,
    });

    fn key() -> FlowKey {
        let ip = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        FlowKey::new(ip(1), 80, ip(2), 40_000)
    }

    fn subject(key: &FlowKey, stamped: Option<StampedOptions>) -> Subject<'_> {
        Subject {
            key,
            mask: 0x1234_5678,
            irs: 99,
            stamped,
        }
    }

    #[test]
    fn a_cookie_encodes_the_largest_mss_that_fits() {
        let (mut rng, key) = (Rng::new(&[3; 32]), key());
        let mut jar = CookieJar::new(&mut rng, Instant::ZERO);
        for (theirs, said) in [
            (88, 88),
            (535, 88),
            (536, 536),
            (1459, 1440),
            (1460, 1460),
            (65_535, 8940),
        ] {
            let (iss, mss) = jar.seal(Instant::ZERO, &subject(&key, STAMPED), theirs, &mut rng);
            assert_eq!(mss, said);
            assert_eq!(
                jar.open(Instant::ZERO, &subject(&key, STAMPED), iss, &mut rng),
                Some(said)
            );
        }
    }

    #[test]
    fn a_cookie_lives_for_the_rest_of_its_epoch_and_the_next_one() {
        let (mut rng, key) = (Rng::new(&[3; 32]), key());
        let subject = subject(&key, STAMPED);
        for (age, is_good) in [
            (0, true),
            (EPOCH_NS, true),
            (2 * EPOCH_NS - 1, true),
            (2 * EPOCH_NS, false),
            (900 * EPOCH_NS, false),
        ] {
            let mut jar = CookieJar::new(&mut rng, Instant::ZERO);
            let (iss, _) = jar.seal(Instant::ZERO, &subject, 1460, &mut rng);
            assert_eq!(
                jar.open(Instant(age), &subject, iss, &mut rng).is_some(),
                is_good,
                "{age}"
            );
        }
    }

    #[test]
    fn a_guessed_cookie_is_valid_with_probability_2_to_the_minus_28() {
        // A million random guesses hit no cookie, except once in 268 runs.
        let (mut rng, key) = (Rng::new(&[4; 32]), key());
        let mut jar = CookieJar::new(&mut rng, Instant::ZERO);
        let hits = (0..1_000_000)
            .filter(|_| {
                let guess = rng.next_u32();
                jar.open(Instant::ZERO, &subject(&key, None), guess, &mut rng)
                    .is_some()
            })
            .count();
        assert!(hits <= 1, "{hits}");
    }

    proptest! {
        #[test]
        fn options_are_kept_in_a_timestamp_that_is_not_in_the_future(
            clock: u32,
            shift in 0u8..16,
            has_sack: bool,
        ) {
            let shift = if shift == 15 { u8::MAX } else { shift };
            let options = StampedOptions { shift, has_sack };
            let stamp = options.stamp(clock);
            prop_assert_eq!(StampedOptions::of_stamp(stamp), options);
            prop_assert!(clock.wrapping_sub(stamp) < 2 << STAMP_BITS);
        }

        #[test]
        fn a_cookie_with_a_changed_field_is_invalid(irs: u32, flip in 0u32..32, shift in 0u8..14) {
            let (mut rng, key) = (Rng::new(&[5; 32]), key());
            let mut jar = CookieJar::new(&mut rng, Instant::ZERO);
            let stamped = Some(StampedOptions { shift, has_sack: false });
            let ours = Subject { key: &key, mask: 7, irs, stamped };
            let (iss, _) = jar.seal(Instant::ZERO, &ours, 1460, &mut rng);
            prop_assert_eq!(jar.open(Instant::ZERO, &ours, iss ^ 1 << flip, &mut rng), None);
            let other = Subject { irs: irs ^ 1 << flip, ..ours };
            prop_assert_eq!(jar.open(Instant::ZERO, &other, iss, &mut rng), None);
            let stamped = Some(StampedOptions { shift: shift + 1, has_sack: false });
            let other = Subject { stamped, ..ours };
            prop_assert_eq!(jar.open(Instant::ZERO, &other, iss, &mut rng), None);
            let other = Subject { stamped: None, ..ours };
            prop_assert_eq!(jar.open(Instant::ZERO, &other, iss, &mut rng), None);
        }
    }
}
