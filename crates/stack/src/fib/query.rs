//! The properties of a packet by which its route is looked up.

use core::net::IpAddr;

use slipstack_terms::Carried;

use crate::options::SocketOptions;

/// A socket's choice of the route of its packets, beside their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The mark that rules may match (SO_MARK).
    pub mark: u32,
    /// The table that is looked up after that of our own addresses (SO_SETFIB); 0 = as the rules
    /// say.
    pub table: u16,
    /// The link that it leaves by (SO_BINDTODEVICE), as [`Choice::link_of`]; 0 = any.
    pub link: u16,
    /// The link by which a packet that is passed on has come, as [`Choice::link_of`]; 0 = it is our
    /// own.
    pub input: u16,
    /// The class of its packets (SO_PRIORITY) plus one, which chooses no route but a tag's
    /// priority; 0 = by the type of service.
    pub class: u8,
}

impl Choice {
    #[inline]
    pub(crate) const fn of(options: &SocketOptions) -> Choice {
        Choice {
            mark: options.mark,
            table: options.table,
            link: options.link,
            input: 0,
            class: options.priority,
        }
    }

    /// The choice for a packet that is passed on.
    pub(crate) const fn of_transit(link: u16) -> Choice {
        Choice {
            input: Choice::link_of(link),
            ..Choice::NONE
        }
    }

    /// Nothing has been chosen.
    pub const NONE: Choice = Choice {
        mark: 0,
        table: 0,
        link: 0,
        input: 0,
        class: 0,
    };

    /// All but `input` in two words, zeros if nothing has been chosen, for [`Choice::of_words`].
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        let Choice {
            mark,
            table,
            link,
            input: _,
            class,
        } = self;
        let ways = (mark as u64) << 32 | (table as u64) << 16 | link as u64;
        [ways, class as u64]
    }

    /// The choice in two words; any are possible.
    pub const fn of_words([ways, class]: [u64; 2]) -> Choice {
        Choice {
            mark: (ways >> 32) as u32,
            table: (ways >> 16) as u16,
            link: ways as u16,
            input: 0,
            class: class as u8,
        }
    }

    /// The choice of a link by its number; 0 = the device's own.
    pub const fn link_of(link: u16) -> u16 {
        link + 1
    }

    /// The number of the link that is chosen.
    pub(crate) const fn chosen_link(&self) -> Option<u16> {
        match self.link {
            0 => None,
            link => Some(link - 1),
        }
    }

    /// Returns whether a sender has chosen nothing.
    #[inline]
    pub fn is_none(&self) -> bool {
        let Choice {
            mark,
            table,
            link,
            input: _,
            class,
        } = *self;
        mark == 0 && table == 0 && link == 0 && class == 0
    }

    /// Returns whether the choice admits packets of this link.
    #[inline]
    pub const fn admits(&self, link: u16) -> bool {
        self.link == 0 || self.link == Choice::link_of(link)
    }
}

/// The properties of a packet by which its route is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    pub src: Option<IpAddr>,
    pub dst: IpAddr,
    pub choice: Choice,
    /// Without the ECN bits.
    pub tos: u8,
    pub carried: Carried,
}

impl Query {
    /// By the destination alone.
    pub const fn to(dst: IpAddr) -> Query {
        Query::between(None, dst)
    }

    /// Returns the query of a sender that has chosen its address, or not yet.
    pub const fn between(src: Option<IpAddr>, dst: IpAddr) -> Query {
        Query {
            src,
            dst,
            choice: Choice::NONE,
            tos: 0,
            carried: Carried::NOTHING,
        }
    }

    /// Returns the query of a socket with a choice.
    pub const fn by(self, choice: Choice) -> Query {
        Query { choice, ..self }
    }

    /// Returns the query for packets of a protocol with these ports.
    pub const fn carrying(
        self,
        protocol: u8,
        (source_port, destination_port): (u16, u16),
    ) -> Query {
        let carried = Carried {
            protocol,
            source_port,
            destination_port,
        };
        Query { carried, ..self }
    }
}
