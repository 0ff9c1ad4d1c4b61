//! Bodies of neighbour discovery messages (RFC 4861 4), which follow the eight bytes of
//! [`crate::icmpv6`]. An option of length zero invalidates the whole message (4.6).

use core::net::Ipv6Addr;

/// Neighbour discovery is accepted only from the link itself (RFC 4861 7.1).
pub const HOP_LIMIT: u8 = 255;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
/// RFC 4191 2.3.
const ROUTE: u8 = 24;
/// RFC 3971 5.3.2, used by RFC 7527 to recognise own probes that come back.
const NONCE: u8 = 14;

/// A link-layer address option: type, length, address.
const LINK_OPTION_LEN: usize = 8;
const TARGET_LEN: usize = 16;
/// Prefixes of one advertisement that are processed.
pub const PREFIXES_MAX: usize = 8;
/// A solicitation or advertisement of a neighbour with one option.
pub const NEIGHBOUR_LEN: usize = TARGET_LEN + LINK_OPTION_LEN;

/// Flags of a neighbour advertisement, in the first byte after the checksum.
pub mod flag {
    pub const ROUTER: u8 = 0x80;
    pub const SOLICITED: u8 = 0x40;
    pub const OVERRIDE: u8 = 0x20;
}

/// Neighbour solicitation or advertisement: the target, and the sender's or target's link-layer
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub target: Ipv6Addr,
    pub link: Option<[u8; 6]>,
    pub nonce: Option<[u8; 6]>,
}

impl Neighbour {
    pub fn parse_solicitation(body: &[u8]) -> Option<Self> {
        Self::parse(body, SOURCE_LINK)
    }

    pub fn parse_advertisement(body: &[u8]) -> Option<Self> {
        Self::parse(body, TARGET_LINK)
    }

    fn parse(body: &[u8], link_kind: u8) -> Option<Self> {
        let (target, options) = body.split_first_chunk::<TARGET_LEN>()?;
        let target = Ipv6Addr::from(*target);
        if target.is_multicast() {
            return None;
        }
        let mut neighbour = Self {
            target,
            link: None,
            nonce: None,
        };
        for option in Options::check(options)? {
            if option.kind == link_kind {
                neighbour.link = option.mac();
            } else if option.kind == NONCE {
                neighbour.nonce = option.mac();
            }
        }
        Some(neighbour)
    }

    /// The body of a solicitation that comes from `link`.
    pub fn emit_solicitation(&self, out: &mut [u8; NEIGHBOUR_LEN]) -> usize {
        match (self.link, self.nonce) {
            (Some(link), _) => self.emit(SOURCE_LINK, Some(link), out),
            (None, nonce) => self.emit(NONCE, nonce, out),
        }
    }

    pub fn emit_advertisement(&self, out: &mut [u8; NEIGHBOUR_LEN]) -> usize {
        self.emit(TARGET_LINK, self.link, out)
    }

    fn emit(&self, kind: u8, value: Option<[u8; 6]>, out: &mut [u8; NEIGHBOUR_LEN]) -> usize {
        out[..TARGET_LEN].copy_from_slice(&self.target.octets());
        let Some(value) = value else {
            return TARGET_LEN;
        };
        out[TARGET_LEN] = kind;
        out[TARGET_LEN + 1] = 1;
        out[TARGET_LEN + 2..].copy_from_slice(&value);
        NEIGHBOUR_LEN
    }
}

/// The body of a router solicitation from `link`.
pub fn router_solicitation(link: [u8; 6]) -> [u8; LINK_OPTION_LEN] {
    let [a, b, c, d, e, f] = link;
    [SOURCE_LINK, 1, a, b, c, d, e, f]
}

/// A prefix of a router's (RFC 4861 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub prefix: Ipv6Addr,
    pub len: u8,
    pub is_on_link: bool,
    pub is_autonomous: bool,
    /// Seconds; all ones = for ever.
    pub valid_s: u32,
    pub preferred_s: u32,
}

/// Preference of a router (RFC 4191 2.1), the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preference {
    Low,
    #[default]
    Medium,
    High,
}

impl Preference {
    /// Returns the preference in the flags; `None` for the reserved value.
    fn of(flags: u8) -> Option<Preference> {
        match flags >> 3 & 3 {
            0 => Some(Preference::Medium),
            1 => Some(Preference::High),
            3 => Some(Preference::Low),
            _ => None,
        }
    }
}

/// A route in an advertisement, besides the default route in its header (RFC 4191 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteInformation {
    pub prefix_len: u8,
    pub preference: Preference,
    /// Seconds; all ones = for ever.
    pub lifetime_s: u32,
}

/// A router's advertisement (RFC 4861 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterAdvertisement<'a> {
    /// 0 = unspecified, as for all numbers here but the lifetime.
    pub hop_limit: u8,
    pub preference: Preference,
    /// Seconds; 0 = not a default router.
    pub lifetime_s: u16,
    pub reachable_ms: u32,
    pub retrans_ms: u32,
    pub link: Option<[u8; 6]>,
    pub mtu: Option<u32>,
    options: Options<'a>,
}

impl<'a> RouterAdvertisement<'a> {
    /// `rest`: the four bytes of the ICMPv6 header after the checksum.
    pub fn parse(rest: [u8; 4], body: &'a [u8]) -> Option<Self> {
        let (times, options) = body.split_first_chunk::<8>()?;
        let [a, b, c, d, e, f, g, h] = *times;
        let options = Options::check(options)?;
        let mut advertisement = Self {
            hop_limit: rest[0],
            // RFC 4191 2.2: the reserved value counts as the one in the middle.
            preference: Preference::of(rest[1]).unwrap_or_default(),
            lifetime_s: u16::from_be_bytes([rest[2], rest[3]]),
            reachable_ms: u32::from_be_bytes([a, b, c, d]),
            retrans_ms: u32::from_be_bytes([e, f, g, h]),
            link: None,
            mtu: None,
            options,
        };
        for option in options {
            match option.kind {
                SOURCE_LINK => advertisement.link = option.mac(),
                MTU => advertisement.mtu = option.u32_at(2),
                _ => {}
            }
        }
        Some(advertisement)
    }

    /// The first [`PREFIXES_MAX`] prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + 'a {
        self.options.filter_map(|o| o.prefix()).take(PREFIXES_MAX)
    }

    /// Returns the first [`PREFIXES_MAX`] routes.
    pub fn routes(&self) -> impl Iterator<Item = RouteInformation> + 'a {
        self.options.filter_map(|o| o.route()).take(PREFIXES_MAX)
    }
}

/// A better first hop (RFC 4861 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub target: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub link: Option<[u8; 6]>,
}

impl Redirect {
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (target, rest) = body.split_first_chunk::<16>()?;
        let (destination, options) = rest.split_first_chunk::<16>()?;
        let mut options = Options::check(options)?;
        Some(Self {
            target: Ipv6Addr::from(*target),
            destination: Ipv6Addr::from(*destination),
            link: options.find_map(|option| (option.kind == TARGET_LINK).then(|| option.mac())?),
        })
    }
}

/// Options with consistent lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options<'a> {
    bytes: &'a [u8],
}

impl<'a> Options<'a> {
    /// `None`: an option of length zero, or one beyond the end.
    fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = usize::from(*rest.get(1)?) * 8;
            rest = rest.get(len..).filter(|_| len != 0)?;
        }
        Some(Self { bytes })
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = NdpOption<'a>;

    fn next(&mut self) -> Option<NdpOption<'a>> {
        let [kind, units, ..] = *self.bytes else {
            return None;
        };
        let (option, rest) = self.bytes.split_at_checked(usize::from(units) * 8)?;
        self.bytes = rest;
        Some(NdpOption {
            kind,
            bytes: option,
        })
    }
}

/// One option, type and length included.
#[derive(Clone, Copy)]
struct NdpOption<'a> {
    kind: u8,
    bytes: &'a [u8],
}

impl NdpOption<'_> {
    fn mac(&self) -> Option<[u8; 6]> {
        self.bytes.get(2..8)?.try_into().ok()
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at + 2..at + 6)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    /// RFC 4191 2.3: one of a reserved preference is ignored.
    fn route(&self) -> Option<RouteInformation> {
        let (&prefix_len, flags) = (self.bytes.get(2)?, self.bytes.get(3)?);
        let has_room = self.bytes.len() >= 8 + usize::from(prefix_len).div_ceil(64) * 8;
        if self.kind != ROUTE || prefix_len > 128 || !has_room {
            return None;
        }
        Some(RouteInformation {
            prefix_len,
            preference: Preference::of(*flags)?,
            lifetime_s: self.u32_at(2)?,
        })
    }

    fn prefix(&self) -> Option<Prefix> {
        if self.kind != PREFIX || self.bytes.len() != 32 {
            return None;
        }
        let octets: [u8; 16] = self.bytes.get(16..32)?.try_into().ok()?;
        let prefix = Prefix {
            prefix: Ipv6Addr::from(octets),
            len: self.bytes[2],
            is_on_link: self.bytes[3] & 0x80 != 0,
            is_autonomous: self.bytes[3] & 0x40 != 0,
            valid_s: self.u32_at(2)?,
            preferred_s: self.u32_at(6)?,
        };
        (prefix.len <= 128).then_some(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const TARGET: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    #[test]
    fn neighbour_messages_round_trip() {
        for link in [None, Some(MAC)] {
            let neighbour = Neighbour {
                target: TARGET,
                link,
                nonce: None,
            };
            let mut out = [0; NEIGHBOUR_LEN];
            let len = neighbour.emit_solicitation(&mut out);
            assert_eq!(Neighbour::parse_solicitation(&out[..len]), Some(neighbour));
            let len = neighbour.emit_advertisement(&mut out);
            assert_eq!(Neighbour::parse_advertisement(&out[..len]), Some(neighbour));
        }
        let probe = Neighbour {
            target: TARGET,
            link: None,
            nonce: Some([7; 6]),
        };
        let mut out = [0; NEIGHBOUR_LEN];
        let len = probe.emit_solicitation(&mut out);
        assert_eq!(Neighbour::parse_solicitation(&out[..len]), Some(probe));
        // RFC 3971 5.3.2: type 14, length in eights, at least six unpredictable bytes.
        assert_eq!(out[16..len], [14, 1, 7, 7, 7, 7, 7, 7]);
    }

    #[test]
    fn malformed_neighbour_messages_do_not_parse() {
        let target = TARGET.octets();
        let with = |options: &[u8]| [&target[..], options].concat();
        let table: [(&str, Vec<u8>); 6] = [
            ("cut target", target[..15].to_vec()),
            ("option of length 0", with(&[1, 0, 0, 0, 0, 0, 0, 0])),
            ("option beyond the end", with(&[1, 2, 0, 0, 0, 0, 0, 0])),
            ("half an option", with(&[1])),
            (
                "zero after a good one",
                with(&[1, 1, 2, 0, 0, 0, 0, 9, 9, 0]),
            ),
            ("multicast target", [&[0xff, 2][..], &[0; 14]].concat()),
        ];
        for (what, bytes) in table {
            assert_eq!(Neighbour::parse_solicitation(&bytes), None, "{what}");
            assert_eq!(Neighbour::parse_advertisement(&bytes), None, "{what}");
        }
    }

    #[test]
    fn unknown_options_are_skipped() {
        let mut bytes = TARGET.octets().to_vec();
        bytes.extend([200, 2]);
        bytes.extend([0; 14]);
        bytes.extend([1, 1, 2, 0, 0, 0, 0, 9]);
        assert_eq!(
            Neighbour::parse_solicitation(&bytes).unwrap().link,
            Some(MAC)
        );
    }

    /// RFC 4191 2.1, 2.2 and 2.3.
    #[test]
    fn a_router_advertises_its_preference() {
        use Preference::{High, Low, Medium};
        let values = [(0x00, Medium), (0x08, High), (0x10, Medium), (0x18, Low)];
        for (flags, want) in values {
            let mut body = Vec::from([0; 8]);
            body.extend([24, 1, 0, flags, 0, 0, 1, 0]);
            body.extend([24, 1, 64, flags, 0, 0, 1, 0]);
            body.extend([24, 2, 64, flags, 0, 0, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
            let ra = RouterAdvertisement::parse([64, flags, 7, 8], &body).unwrap();
            assert_eq!(ra.preference, want);
            let routes: Vec<_> = ra.routes().collect();
            let route = |prefix_len, lifetime_s| RouteInformation {
                prefix_len,
                preference: want,
                lifetime_s,
            };
            // The second has no room for its prefix; a reserved value is ignored here.
            let known = [route(0, 0x100), route(64, 0x200)];
            assert_eq!(routes, if flags == 0x10 { &known[..0] } else { &known });
        }
    }

    #[test]
    fn a_router_advertisement_lists_its_prefixes() {
        let mut body = Vec::from([0, 0, 0x75, 0x30, 0, 0, 3, 0xe8]);
        body.extend([1, 1, 2, 0, 0, 0, 0, 9]);
        body.extend([5, 1, 0, 0, 0, 0, 5, 0xdc]);
        body.extend([3, 4, 64, 0xc0, 0, 0, 0, 100, 0, 0, 0, 50, 0, 0, 0, 0]);
        body.extend(Ipv6Addr::new(0xfd00, 1, 2, 3, 0, 0, 0, 0).octets());
        let ra = RouterAdvertisement::parse([64, 0x80, 7, 8], &body).unwrap();
        assert_eq!((ra.hop_limit, ra.lifetime_s), (64, 0x708));
        assert_eq!((ra.reachable_ms, ra.retrans_ms), (30_000, 1000));
        assert_eq!((ra.link, ra.mtu), (Some(MAC), Some(1500)));
        let prefixes: Vec<Prefix> = ra.prefixes().collect();
        assert_eq!(prefixes.len(), 1);
        assert_eq!(
            (
                prefixes[0].len,
                prefixes[0].valid_s,
                prefixes[0].preferred_s
            ),
            (64, 100, 50)
        );
        assert!(prefixes[0].is_on_link && prefixes[0].is_autonomous);
        assert_eq!(RouterAdvertisement::parse([0; 4], &body[..7]), None);
        assert_eq!(RouterAdvertisement::parse([0; 4], &body[..20]), None);
    }

    #[test]
    fn prefixes_beyond_the_limit_are_ignored() {
        let mut body = Vec::from([0; 8]);
        for _ in 0..PREFIXES_MAX + 3 {
            body.extend([3, 4, 64, 0xc0]);
            body.extend([0; 28]);
        }
        let ra = RouterAdvertisement::parse([0; 4], &body).unwrap();
        assert_eq!(ra.prefixes().count(), PREFIXES_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Neighbour::parse_solicitation(&bytes);
            let _ = Neighbour::parse_advertisement(&bytes);
            let _ = Redirect::parse(&bytes);
            if let Some(ra) = RouterAdvertisement::parse([1, 2, 3, 4], &bytes) {
                prop_assert!(ra.prefixes().all(|p| p.len <= 128));
            }
        }
    }
}
