//! Next hops: resolved ones, and those that wait for a neighbour's link-layer address.

use core::net::IpAddr;

use slipstack_wire::TxOffload;

use crate::time::Instant;

/// A resolved next hop, cached by frequent senders. It is valid for the link's epoch and a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    pub(super) mac: [u8; 6],
    pub(super) local: bool,
    /// Largest IP packet that the path takes, as far as is known.
    pub(super) mtu: u16,
    /// The link that it is reached by ([`slipstack_wire::LinkId`]); 0 = the device's own.
    pub(super) link: u16,
    /// The class of the sender's packets ([`crate::fib::Choice::class`]).
    pub(super) class: u8,
    pub(super) epoch: u32,
    pub(super) valid_until: Instant,
}

impl NextHop {
    /// The work of a device that every frame has.
    #[inline]
    pub(super) const fn offload(&self) -> TxOffload {
        TxOffload {
            class: self.class,
            ..TxOffload::on(self.link)
        }
    }

    pub const fn is_local(&self) -> bool {
        self.local
    }

    #[inline]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    #[inline]
    pub const fn link(&self) -> u16 {
        self.link
    }
}

/// The result of looking for a next hop.
pub(super) enum Hop {
    Known(NextHop),
    Asking(IpAddr, NextHop),
    TableFull,
    NoRoute,
}

/// Destination of the frames of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Out(NextHop),
    /// Packets wait for this neighbour's address.
    Wait(IpAddr, NextHop),
}

impl Way {
    /// Returns the next hop in the frame.
    pub(crate) fn hop(&self) -> &NextHop {
        match self {
            Way::Out(hop) | Way::Wait(_, hop) => hop,
        }
    }
}
