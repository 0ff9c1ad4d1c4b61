//! Inquiries in progress: the client that asked, and the engines that have answered.

use std::os::fd::OwnedFd;

use slipstack_channel::control::net::{EngineIdentity, Inquiry};

use crate::leases::ClientId;

/// Interval at which an engine whose inbox is full is notified again.
const AGAIN_NS: u64 = 5_000_000;
/// An inquiry under way.
pub(super) struct PendingInquiry {
    pub(super) id: u64,
    /// The connection that gets the answer.
    pub(super) token: u64,
    pub(super) inquiry: Inquiry,
    pub(super) until: u64,
    pub(super) engines: Vec<Engine>,
    pub(super) own: Option<OwnedFd>,
}

pub(super) struct Engine {
    pub(super) client: ClientId,
    pub(super) identity: EngineIdentity,
    pub(super) has_notice: bool,
    /// The engine has fetched the inquiry.
    pub(super) is_at_work: bool,
    pub(super) answer: Option<OwnedFd>,
}

/// All of them.
#[derive(Default)]
pub(super) struct PendingInquiries {
    pub(super) last_id: u64,
    pub(super) all: Vec<PendingInquiry>,
}

impl PendingInquiries {
    /// Returns when the first of them is due.
    pub(super) fn due(&self, now: u64) -> Option<u64> {
        let is_unnotified =
            |it: &PendingInquiry| it.engines.iter().any(|engine| !engine.has_notice);
        let times = self.all.iter();
        times
            .map(|it| {
                if is_unnotified(it) {
                    now + AGAIN_NS
                } else {
                    it.until
                }
            })
            .min()
    }
}
