//! Changes of multicast memberships.

use core::net::IpAddr;

use crate::words::{WORDS, Words, ip_of, ip_words, one};

/// A change of a socket's multicast memberships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// All sources.
    Join,
    Leave,
    /// One more source; the first one is a membership.
    Include(IpAddr),
    /// No more; the last one ends the membership.
    Forgo(IpAddr),
    /// Excludes this source from a membership for all sources.
    Block(IpAddr),
    Unblock(IpAddr),
}

/// An option that concerns groups, by family where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastOption {
    Ttl {
        is_v6: bool,
        ttl: u8,
    },
    /// Our own sockets receive it too.
    Loop {
        is_v6: bool,
        on: bool,
    },
    /// The socket receives groups that others have joined, if it has not joined them itself.
    All {
        is_v6: bool,
        on: bool,
    },
    /// The address that it comes from; the unspecified one ends that.
    Source(IpAddr),
    /// The link by which datagrams to groups leave, or all others.
    Leaves {
        is_v6: bool,
        is_to_group: bool,
        link: Option<u16>,
    },
    /// A membership on one link.
    Group {
        group: IpAddr,
        link: u16,
        change: GroupChange,
    },
}

/// Position of a membership's link in the first word.
const LINK_SHIFT: u32 = 8;

impl Words for MulticastOption {
    fn to_words(self) -> [u64; WORDS] {
        let flag = |kind, is_v6: bool, value| [kind, is_v6.into(), value, 0, 0];
        match self {
            Self::Ttl { is_v6, ttl } => flag(0, is_v6, ttl.into()),
            Self::Loop { is_v6, on } => flag(1, is_v6, on.into()),
            Self::All { is_v6, on } => flag(2, is_v6, on.into()),
            Self::Source(ip) => {
                let [a, b] = ip_words(ip);
                [3, a, b, 0, 0]
            }
            Self::Leaves {
                is_v6,
                is_to_group,
                link,
            } => {
                let link = link.map_or(0, |link| u64::from(link) + 1);
                [10, is_v6.into(), is_to_group.into(), link, 0]
            }
            Self::Group {
                group,
                link,
                change,
            } => {
                let (kind, source) = match change {
                    GroupChange::Join => (4, None),
                    GroupChange::Leave => (5, None),
                    GroupChange::Include(source) => (6, Some(source)),
                    GroupChange::Forgo(source) => (7, Some(source)),
                    GroupChange::Block(source) => (8, Some(source)),
                    GroupChange::Unblock(source) => (9, Some(source)),
                };
                let [a, b] = ip_words(group);
                let [c, d] = source.map_or([0; 2], ip_words);
                // The other words are full.
                [kind | u64::from(link) << LINK_SHIFT, a, b, c, d]
            }
        }
    }

    fn from_words([first, a, b, c, d]: [u64; WORDS]) -> Option<Self> {
        let kind = first & ((1 << LINK_SHIFT) - 1);
        let link = u16::try_from(first >> LINK_SHIFT).ok()?;
        let group = |change| {
            let group = ip_of([a, b]);
            Some(Self::Group {
                group,
                link,
                change,
            })
        };
        let is_v6 = || bool::from_words(one(a));
        let on = || bool::from_words(one(b));
        let source = ip_of([c, d]);
        match kind {
            0 => Some(Self::Ttl {
                is_v6: is_v6()?,
                ttl: u8::from_words(one(b))?,
            }),
            1 => Some(Self::Loop {
                is_v6: is_v6()?,
                on: on()?,
            }),
            2 => Some(Self::All {
                is_v6: is_v6()?,
                on: on()?,
            }),
            3 => Some(Self::Source(ip_of([a, b]))),
            4 => group(GroupChange::Join),
            5 => group(GroupChange::Leave),
            6 => group(GroupChange::Include(source)),
            7 => group(GroupChange::Forgo(source)),
            8 => group(GroupChange::Block(source)),
            9 => group(GroupChange::Unblock(source)),
            10 => Some(Self::Leaves {
                is_v6: is_v6()?,
                is_to_group: on()?,
                link: match c {
                    0 => None,
                    link => Some(u16::try_from(link - 1).ok()?),
                },
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_as_they_were() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let group = |change| MulticastOption::Group {
            group: ip("239.1.2.3"),
            link: 0x7001,
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
            MulticastOption::Leaves {
                is_v6: true,
                is_to_group: false,
                link: Some(0),
            },
            MulticastOption::Leaves {
                is_v6: false,
                is_to_group: true,
                link: None,
            },
            group(GroupChange::Join),
            group(GroupChange::Leave),
            group(GroupChange::Include(ip("10.0.0.9"))),
            group(GroupChange::Forgo(ip("10.0.0.9"))),
            group(GroupChange::Block(ip("fd00::9"))),
        ] {
            assert_eq!(MulticastOption::from_words(option.to_words()), Some(option));
        }
    }
}
