//! Connections that only one thread waits for, in calls such as `recv` and `poll`, as in a server
//! with a thread for each connection.
//!
//! The thread of such a connection gets an engine of its own, or a channel of its own to the
//! instance, as long as there are any, and the connection moves there: received data wakes that
//! thread and no other one. The listener's thread keeps the first engine. If there are too few
//! engines they are shared ([`super::crowd`]).

use std::sync::Arc;

use crate::attachment::Attachment;
use crate::epoll::Target;
use crate::process::engines::Engines;
use crate::process::engines::remote_members::move_to;
use crate::process::subject::Subject;
use crate::socket::Stream;
use crate::socket::description::{Decided, Description};

impl Engines {
    /// A wait of the calling thread has found something.
    #[inline]
    pub(crate) fn on_waited(&self, subject: Subject<'_>) {
        let (Subject::Socket(socket) | Subject::Many([Target::Socket(socket)])) = subject else {
            return;
        };
        match socket.decided() {
            Some(Decided::Stream(stream)) if stream.may_move() => {
                self.on_waited_alone(socket, stream);
            }
            Some(Decided::Stream(stream)) if self.homes.is_crowded() => {
                self.on_waited_in_crowd(socket, stream);
            }
            Some(Decided::Listener(_)) => _ = self.homes.is_first(self.kernel.thread()),
            _ => {}
        }
    }

    #[cold]
    fn on_waited_alone(&self, socket: &Arc<Description>, stream: &Stream) {
        let thread = self.kernel.thread();
        if !stream.is_waited_for_by(thread) || self.homes.is_first(thread) || stream.queued() > 0 {
            return;
        }
        if stream.is_counted() && self.homes.is_crowded() {
            return stream.wait_longer();
        }
        let Some(home) = self.engine_for(thread) else {
            if !stream.is_counted() {
                stream.count_user();
                self.homes.enter(stream.attachment());
            }
            return stream.wait_longer();
        };
        self.move_user(socket, stream, &home);
    }

    /// Moves a connection to `home`, where [`Homes::enter`] has counted it. Returns false if it
    /// stays for now.
    ///
    /// [`Homes::enter`]: super::homes::Homes::enter
    pub(super) fn move_user(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        home: &Arc<Attachment>,
    ) -> bool {
        let before = Arc::clone(stream.attachment());
        move_to(socket, stream, home);
        let is_there = Arc::ptr_eq(stream.attachment(), home);
        if !is_there {
            self.homes.exit(home);
        } else if stream.is_counted() {
            self.homes.exit(&before);
        } else {
            stream.count_user();
        }
        is_there
    }

    /// Returns this thread's engine, an unused one, a new one, or one to share. The connection
    /// counts as its user already, so that no other thread takes it as unused.
    fn engine_for(&self, thread: usize) -> Option<Arc<Attachment>> {
        let _turn = self.attaching.lock();
        if let Some(attachment) = self.homes.of_thread(thread) {
            self.homes.enter(&attachment);
            return Some(attachment);
        }
        let own = match self.homes.is_crowded() {
            true => None,
            false => self.find_engine(),
        };
        let number = own.or_else(|| self.share_engines())?;
        self.homes.remember(thread, number);
        let attachment = self.homes.of_thread(thread)?;
        self.homes.enter(&attachment);
        Some(attachment)
    }

    /// A connection has ended.
    pub(crate) fn note_end(&self, stream: &Stream) {
        self.homes.note_life(stream.reads());
        if stream.is_counted() {
            self.homes.exit(stream.attachment());
        }
    }
}
