//! Multicast options: what programs ask of their engine.

use std::net::IpAddr;

use crate::addr::{ip_of, ip_words};

/// A change to what a socket hears of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// All sources.
    Join,
    Leave,
    Include(IpAddr),
    Forgo(IpAddr),
    Block(IpAddr),
    Unblock(IpAddr),
}

/// An option that concerns groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastOption {
    Ttl {
        is_v6: bool,
        ttl: u8,
    },
    Loop {
        is_v6: bool,
        on: bool,
    },
    All {
        is_v6: bool,
        on: bool,
    },
    /// Where it comes from; unspecified: as routes say.
    Source(IpAddr),
    Group {
        group: IpAddr,
        change: GroupChange,
    },
}

/// The first code of these options.
const CODES: u8 = 32;

impl MulticastOption {
    pub(crate) fn encode(self) -> (u8, [u64; 4]) {
        let flag = |code: u8, is_v6: bool, value: u64| (code, [u64::from(is_v6), value, 0, 0]);
        let (code, args) = match self {
            Self::Ttl { is_v6, ttl } => flag(0, is_v6, ttl.into()),
            Self::Loop { is_v6, on } => flag(1, is_v6, on.into()),
            Self::All { is_v6, on } => flag(2, is_v6, on.into()),
            Self::Source(ip) => {
                let [a, b] = ip_words(ip);
                (3, [a, b, 0, 0])
            }
            Self::Group { group, change } => {
                let (code, source) = match change {
                    GroupChange::Join => (4, None),
                    GroupChange::Leave => (5, None),
                    GroupChange::Include(source) => (6, Some(source)),
                    GroupChange::Forgo(source) => (7, Some(source)),
                    GroupChange::Block(source) => (8, Some(source)),
                    GroupChange::Unblock(source) => (9, Some(source)),
                };
                let [a, b] = ip_words(group);
                let [c, d] = source.map_or([0; 2], ip_words);
                (code, [a, b, c, d])
            }
        };
        (CODES + code, args)
    }

    /// `None` for what no program of this version sends.
    pub(crate) fn decode(code: u8, [a, b, c, d]: [u64; 4]) -> Option<Self> {
        let is_v6 = a != 0;
        let group = |change| {
            Some(Self::Group {
                group: ip_of([a, b]),
                change,
            })
        };
        let source = ip_of([c, d]);
        match code.checked_sub(CODES)? {
            0 => Some(Self::Ttl {
                is_v6,
                ttl: b as u8,
            }),
            1 => Some(Self::Loop { is_v6, on: b != 0 }),
            2 => Some(Self::All { is_v6, on: b != 0 }),
            3 => Some(Self::Source(ip_of([a, b]))),
            4 => group(GroupChange::Join),
            5 => group(GroupChange::Leave),
            6 => group(GroupChange::Include(source)),
            7 => group(GroupChange::Forgo(source)),
            8 => group(GroupChange::Block(source)),
            9 => group(GroupChange::Unblock(source)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn options_come_back_as_they_were() {
        let group = |change| MulticastOption::Group {
            group: ip("239.1.2.3"),
            change,
        };
        for option in [
            MulticastOption::Ttl {
                is_v6: true,
                ttl: 7,
            },
            MulticastOption::Loop {
                is_v6: false,
                on: true,
            },
            MulticastOption::All {
                is_v6: true,
                on: false,
            },
            MulticastOption::Source(ip("10.0.0.2")),
            group(GroupChange::Join),
            group(GroupChange::Leave),
            group(GroupChange::Include(ip("10.0.0.9"))),
            group(GroupChange::Forgo(ip("10.0.0.9"))),
            group(GroupChange::Block(ip("10.0.0.9"))),
            MulticastOption::Group {
                group: ip("ff0e::7"),
                change: GroupChange::Unblock(ip("fd00::9")),
            },
        ] {
            let (code, args) = option.encode();
            assert_eq!(MulticastOption::decode(code, args), Some(option));
        }
        assert_eq!(MulticastOption::decode(CODES + 10, [0; 4]), None);
    }
}
