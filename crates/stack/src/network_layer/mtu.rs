//! MTUs of links and paths.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{LINK_MTU_MIN, NetworkLayer};
use crate::fib::Query;
use crate::path_mtu::MTU_MIN_V4;
use crate::route::Found;
use crate::time::Instant;

impl NetworkLayer {
    pub(super) fn renew_mtu_max(&mut self) {
        let others = self.link_mtus.iter().map(|(_, mtu)| *mtu).max();
        self.mtu_max = self.mtu.max(others.unwrap_or(0));
    }

    pub(crate) fn mtu(&self) -> u16 {
        self.mtu
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu.max(LINK_MTU_MIN);
        self.renew_mtu_max();
    }

    /// The largest packets that the links take, in the order of their numbers.
    pub(crate) fn mtus(&self) -> Vec<(u16, u16)> {
        let own = [(0, self.mtu)].into_iter();
        own.chain(self.link_mtus.iter().copied()).collect()
    }

    pub(super) fn mtu_of(&self, now: Instant, dst: IpAddr, found: &Found) -> u16 {
        let mtu = match found.link {
            0 => self.mtu_for(dst.is_ipv6()),
            link => self.mtu_on(link, dst.is_ipv6()),
        };
        let learnt = self.path_mtus.as_ref().and_then(|all| all.find(now, dst));
        let mtu = learnt.map_or(mtu, |learnt| learnt.min(mtu));
        found.mtu.map_or(mtu, |route| route.min(mtu))
    }

    /// Returns the link's MTU; routers may lower it on the device's own.
    pub(crate) fn mtu_of_link(&self, link: u16) -> u16 {
        let others = &self.link_mtus;
        let at = others.binary_search_by_key(&link, |(link, _)| *link);
        at.map_or(self.mtu, |at| others[at].1)
    }

    /// The largest packet that the link of one of our addresses takes.
    #[inline]
    pub(crate) fn mtu_of_own(&self, own: IpAddr) -> u16 {
        if self.link_mtus.is_empty() {
            return self.mtu_for(own.is_ipv6());
        }
        match self.link_of_own(own) {
            0 => self.mtu_for(own.is_ipv6()),
            link => self.mtu_on(link, own.is_ipv6()),
        }
    }

    /// The largest packet of a family that a link beside the first takes.
    fn mtu_on(&self, link: u16, is_v6: bool) -> u16 {
        let mut further = self.learnt.further_mtus.iter();
        let further = further.find(|(of, _)| is_v6 && *of == link);
        further.map_or_else(|| self.mtu_of_link(link), |(_, mtu)| *mtu)
    }

    /// Returns the MTU of the link by which a packet leaves, whatever the path MTU.
    pub(crate) fn mtu_of_way(&self, query: &Query) -> u16 {
        let found = match self.link_mtus.is_empty() {
            true => None,
            false => self.find_route(query),
        };
        match found {
            Some(Found { link, .. }) if link != 0 => self.mtu_on(link, query.dst.is_ipv6()),
            _ => self.mtu_for(query.dst.is_ipv6()),
        }
    }

    /// Returns whether a packet that may not be fragmented would never arrive on a path of `mtu`
    /// bytes: the path MTU is below the accepted minimum (Linux's locked MTU).
    #[inline]
    pub(crate) fn is_beneath_belief(&self, now: Instant, dst: IpAddr, mtu: u16) -> bool {
        let all = self.path_mtus.as_ref();
        mtu == MTU_MIN_V4 && dst.is_ipv4() && all.is_some_and(|all| all.is_beneath(now, dst))
    }

    /// Returns the link's MTU for a family: routers may lower the device's.
    #[inline]
    pub(crate) fn mtu_for(&self, is_v6: bool) -> u16 {
        if is_v6 {
            self.learnt.mtu.unwrap_or(self.mtu)
        } else {
            self.mtu
        }
    }
}
