//! The last bytes of a pair: its users wrote them before somebody shut the direction down, and its
//! end awaits them.

use std::sync::Arc;

use rustix::net::Shutdown;

use super::{Pump, Way, has_hung_up};
use crate::lending::giving::stream_of;
use crate::socket::Stream;
use crate::socket::description::Description;

impl Pump {
    /// Whether the direction is shut down and ends only behind the pair's bytes. Writes fail from
    /// now on, of users that can ask why; those of others are not passed on.
    pub(super) fn passes_last(&mut self, stream: &Stream) -> bool {
        if self.to_peer.is_done || !stream.awaits_others() || stream.has_error() {
            return false;
        }
        if self.last.is_none() {
            if self.is_heard() || self.users_end.is_some() {
                let has_user = !has_hung_up(&self.child);
                let _ = rustix::net::shutdown(&self.child, Shutdown::Read);
                self.refuse(has_user);
            }
            self.childs.gives = true;
            self.last = Some(self.unread());
        }
        true
    }

    /// The connection, if its end awaits bytes.
    pub(crate) fn ending(&self) -> Option<Arc<Description>> {
        let is_ending = stream_of(&self.socket).is_some_and(Stream::awaits_others);
        is_ending.then(|| Arc::clone(&self.socket))
    }

    /// Whether no end awaits bytes, except those of the pair's user that has asked for it.
    pub(crate) fn may_take_end(&self, stream: &Stream) -> bool {
        !stream.awaits_others() || self.is_shut && !self.to_peer.is_done
    }

    /// Whether an end has to wait for bytes of this pair, or that are on their way elsewhere.
    pub(crate) fn has_last(&self) -> bool {
        let in_pair = || self.unread().min(self.last.unwrap_or(usize::MAX));
        let Way { is_done, .. } = self.to_peer;
        !is_done && (self.is_paused || !self.to_peer.is_empty() || in_pair() > 0)
    }

    /// Whether all of them have left, and the pair takes no more.
    pub(super) fn has_had_last(&self) -> bool {
        self.last.is_some() && !self.to_peer.is_done && !self.has_last()
    }

    /// Returns as much of `room` as may be read.
    pub(super) fn last_of<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        let len = self.last.map_or(room.len(), |last| last.min(room.len()));
        &mut room[..len]
    }

    pub(super) fn note_last_read(&mut self, count: usize) {
        if let Some(last) = &mut self.last {
            *last = last.saturating_sub(count);
        }
    }

    /// The bytes that users have written and the steward has not read.
    fn unread(&self) -> usize {
        rustix::io::ioctl_fionread(&self.child).map_or(0, |count| count as usize)
    }
}
