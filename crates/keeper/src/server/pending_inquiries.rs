//! Inquiries in progress: the client that asked, and the engines that have answered.

use std::os::fd::OwnedFd;

use slipstack_channel::control::Viewer;
use slipstack_channel::control::net::{EngineIdentity, Inquiry};

use crate::leases::ClientId;

/// Interval at which an engine whose inbox is full is notified again.
const AGAIN_NS: u64 = 5_000_000;
/// Inquiries in progress, and those of them that are not of the device's user.
const INQUIRIES_MAX: usize = 64;
const OF_OTHERS_MAX: usize = 8;
/// Interval between inquiries of other users: an engine answers in its own time, of which they
/// shall not take much.
const OF_OTHERS_NS: u64 = 50_000_000;

/// An inquiry under way.
pub(super) struct PendingInquiry {
    pub(super) id: u64,
    /// The connection that gets the answer.
    pub(super) token: u64,
    pub(super) viewer: Viewer,
    pub(super) inquiry: Inquiry,
    /// The engines are asked from this time on, and answer until that.
    pub(super) starts_at: u64,
    pub(super) until: u64,
    pub(super) engines: Vec<Engine>,
    pub(super) own: Option<OwnedFd>,
}

pub(super) struct Engine {
    pub(super) client: ClientId,
    pub(super) uid: u32,
    pub(super) identity: EngineIdentity,
    pub(super) has_notice: bool,
    /// The engine has fetched the inquiry.
    pub(super) is_at_work: bool,
    pub(super) answer: Option<OwnedFd>,
}

/// All inquiries in progress.
#[derive(Default)]
pub(super) struct PendingInquiries {
    pub(super) last_id: u64,
    pub(super) all: Vec<PendingInquiry>,
    /// Start of the last one of another user than the device's.
    of_others_at: Option<u64>,
}

impl PendingInquiries {
    /// Returns the time at which a further one may start; `None`: too many are in progress.
    pub(super) fn admit(&mut self, viewer: Viewer, now: u64) -> Option<u64> {
        if self.all.len() >= INQUIRIES_MAX {
            return None;
        }
        if viewer.is_operator() {
            return Some(now);
        }
        let of_others = self.all.iter().filter(|it| !it.viewer.is_operator());
        if of_others.count() >= OF_OTHERS_MAX {
            return None;
        }
        let next = self.of_others_at.map_or(0, |last| last + OF_OTHERS_NS);
        self.of_others_at = Some(now.max(next));
        self.of_others_at
    }

    /// Returns when the first inquiry is due.
    pub(super) fn due(&self, now: u64) -> Option<u64> {
        let is_unnotified =
            |it: &PendingInquiry| it.engines.iter().any(|engine| !engine.has_notice);
        let times = self.all.iter();
        times
            .map(|it| match is_unnotified(it) {
                true => it.starts_at.max(now + AGAIN_NS),
                false => it.until,
            })
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(viewer: Viewer) -> PendingInquiry {
        PendingInquiry {
            id: 0,
            token: 0,
            viewer,
            inquiry: Inquiry::Counters,
            starts_at: 0,
            until: 0,
            engines: Vec::new(),
            own: None,
        }
    }

    #[test]
    fn inquiries_of_other_users_wait_for_each_other_and_for_nobody_else() {
        let mut inquiries = PendingInquiries::default();
        let user = Viewer::User { uid: 33 };
        for at in 0..OF_OTHERS_MAX as u64 {
            assert_eq!(inquiries.admit(user, 7), Some(7 + at * OF_OTHERS_NS));
            inquiries.all.push(pending(user));
        }
        assert_eq!(inquiries.admit(user, 7), None);
        while inquiries.all.len() < INQUIRIES_MAX {
            assert_eq!(inquiries.admit(Viewer::Operator, 7), Some(7));
            inquiries.all.push(pending(Viewer::Operator));
        }
        assert_eq!(inquiries.admit(Viewer::Operator, 7), None);
    }
}
