//! Support for programs that give their loop to a library: the engine's work between its turns, and
//! its sleep.

use std::time::Duration;

use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::wait::Plan;
use crate::process::wait::deadline_of;

impl Process {
    /// Lets the engine work once, if there is one.
    pub fn work(&self) {
        if let Some(attachment) = self.living_attachment() {
            self.engines.station.batch.end(self.kernel.thread());
            attachment.turn(self.kernel.now_ns());
        }
    }

    /// Sleeps until one of the epoll sets has something or, with none named, until something comes
    /// by the wire; for `most` at most.
    pub fn idle(&self, sets: &[i32], most: Duration) {
        if !sets.is_empty() {
            let readable = |fd: &i32| libc::pollfd {
                fd: *fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let mut fds: Vec<libc::pollfd> = sets.iter().map(readable).collect();
            let _ = self.poll(&mut fds, Some(most), None);
            return;
        }
        let plan = Plan {
            subject: Subject::Wire,
            kernel: &[],
            deadline_ns: deadline_of(&*self.kernel, Some(most)),
            mask: None,
            may_restart: false,
            ends_when_stopped: false,
            is_part: false,
        };
        // Two checks before the sleep; a later event ends the sleep.
        let mut looks = 0;
        let _ = self.wait(&plan, |_| {
            looks += 1;
            Ok((looks > 2).then_some(()))
        });
    }
}
