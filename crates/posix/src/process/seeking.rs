//! Seeking an engine while the one that there was is away.

use std::sync::Arc;

use crate::attachment::Attachment;
use crate::epoll::Target;
use crate::process::Process;
use crate::process::wait::Subject;

impl Process {
    /// Whether what is intended may be made real now.
    pub(crate) fn may_realize(&self) -> bool {
        !self.absence.is_now() || self.absence.may_ask(self.now_ns())
    }

    /// In the middle of a wait: what it waits for may have lost its engine meanwhile, and there may
    /// be another.
    pub(crate) fn seek(&self, subject: Subject<'_>) {
        if !self.absence.has_been() {
            return;
        }
        match subject {
            Subject::Socket(socket) => self.realize(socket),
            Subject::Set(set) => self.realize_set(set),
            Subject::Many(targets) => {
                for target in targets {
                    match target {
                        Target::Socket(socket) => self.realize(socket),
                        Target::Set(set) => self.realize_set(set),
                    }
                }
            }
        }
    }

    /// It could not be made real, and is still intended: the engine that was `asked` has ended, or
    /// none was to be had, unless another thread has one meanwhile.
    pub(crate) fn is_put_off(&self, asked: Option<&Arc<Attachment>>) -> bool {
        match asked {
            Some(attachment) => attachment.is_dead(),
            None => self.absence.is_now() || self.attachment().is_some(),
        }
    }
}
