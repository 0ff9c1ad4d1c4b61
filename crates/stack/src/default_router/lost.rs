//! Routers that do not answer, and the times at which they are tried again.

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;

use crate::time::Instant;

/// RFC 4191 3.2: interval at which a preferred router that is unreachable is probed.
pub(super) const PROBE_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Lost {
    router: Ipv6Addr,
    probe_at: Instant,
}

/// Routers that do not answer, the one that has been silent longest first.
#[derive(Debug, Default)]
pub(crate) struct LostRouters(Vec<Lost>);

impl LostRouters {
    /// The routers, those to use first in front.
    pub fn rank(&self, routers: &[Ipv6Addr]) -> Vec<Ipv6Addr> {
        let answering = routers.iter().copied().filter(|ip| !self.contains(*ip));
        let silent = self.0.iter().map(|lost| lost.router);
        answering
            .chain(silent.filter(|ip| routers.contains(ip)))
            .collect()
    }

    /// Keeps the entries of present routers only.
    pub fn retain(&mut self, routers: &[Ipv6Addr]) {
        self.0.retain(|lost| routers.contains(&lost.router));
    }

    pub(super) fn contains(&self, router: Ipv6Addr) -> bool {
        self.0.iter().any(|lost| lost.router == router)
    }

    pub(super) fn note(&mut self, now: Instant, router: Ipv6Addr) {
        self.0.retain(|lost| lost.router != router);
        let probe_at = now + PROBE_EVERY;
        self.0.push(Lost { router, probe_at });
    }

    /// `true`: it was lost.
    pub(super) fn forget(&mut self, router: Ipv6Addr) -> bool {
        let before = self.0.len();
        self.0.retain(|lost| lost.router != router);
        self.0.len() != before
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the routers to be probed now; they are due again after [`PROBE_EVERY`].
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Ipv6Addr> {
        let mut due = Vec::new();
        for lost in self.0.iter_mut().filter(|lost| lost.probe_at <= now) {
            lost.probe_at = now + PROBE_EVERY;
            due.push(lost.router);
        }
        due
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|lost| lost.probe_at).min()
    }
}
