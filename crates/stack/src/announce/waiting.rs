//! Announcements still to be made, and their times.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::time::Instant;

/// RFC 5227 1.1. RFC 4861 10 allows three advertisements, and a second between them.
const ANNOUNCE_NUM: u8 = 2;
const ANNOUNCE_INTERVAL_NS: u64 = 2_000_000_000;

#[derive(Debug)]
struct Announcement {
    ip: IpAddr,
    left: u8,
    next_at: Instant,
}

/// Announcements still to be made.
#[derive(Debug, Default)]
pub struct Announcements {
    waiting: Vec<Announcement>,
}

impl Announcements {
    /// Adds an address, whose first announcement is due at once. An address that was removed and
    /// returns starts again.
    pub(super) fn add(&mut self, ip: IpAddr) {
        self.waiting.retain(|announcement| announcement.ip != ip);
        self.waiting.push(Announcement {
            ip,
            left: ANNOUNCE_NUM,
            next_at: Instant::ZERO,
        });
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Vec<IpAddr> {
        let mut due = Vec::new();
        for announcement in self
            .waiting
            .iter_mut()
            .filter(|announcement| announcement.next_at <= now)
        {
            due.push(announcement.ip);
            announcement.left -= 1;
            announcement.next_at = now.plus_nanos(ANNOUNCE_INTERVAL_NS);
        }
        self.waiting.retain(|announcement| announcement.left > 0);
        due
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting
            .iter()
            .map(|announcement| announcement.next_at)
            .min()
    }
}
