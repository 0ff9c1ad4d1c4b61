//! kqueue and kevent.

use std::time::Duration;

use slipstack_mem::{Descriptor, PrivateFd};

use crate::epoll::Target;
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::kqueue::{Host, Kevent, KqueueRef, Queue};
use crate::outcome::Outcome;
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::table::Entry;
use crate::process::wait::Plan;
use crate::process::wait::deadline_of;

impl Host for Process {
    fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    fn is_ours(&self, fd: i32) -> bool {
        self.table.is_ours(fd)
    }

    fn target(&self, fd: i32) -> Option<Target> {
        match self.table.find(fd)? {
            Entry::Socket(socket) => Some(Target::Socket(socket)),
            Entry::Set(set) => Some(Target::Set(set)),
            Entry::Routes(_) => None,
        }
    }

    fn set_ctl(
        &self,
        number: i32,
        operation: i32,
        fd: i32,
        event: Option<libc::epoll_event>,
    ) -> Outcome<()> {
        Process::set_ctl(self, number, operation, fd, event)
    }

    fn signal_bell(&self) -> Result<&PrivateFd, Errno> {
        self.kqueues.signal_bell()
    }
}

impl Process {
    /// `kqueue`.
    pub fn kqueue(&self) -> Outcome<i32> {
        let number = self.epoll_create1(0)?;
        // Numbers that are too high for the table have no place for notes.
        let Some(set) = self.table.set(number) else {
            if let Some(number) = Descriptor::new(number) {
                number.close();
            }
            return Err(Errno::EMFILE.into());
        };
        let _ = set.queue.set(Queue::new());
        self.kqueues.add(&set);
        Ok(number)
    }

    /// Whether the number is a kqueue.
    #[must_use]
    pub fn is_kqueue(&self, number: i32) -> bool {
        let set = self.table.set(number);
        set.is_some_and(|set| set.queue.get().is_some())
    }

    /// `kevent`. `put` takes an event if there is room for it. With no room nothing is waited for.
    pub fn kevent(
        &self,
        number: i32,
        changes: &[Kevent],
        timeout: Option<Duration>,
        has_room: bool,
        put: &mut dyn FnMut(Kevent) -> bool,
    ) -> Outcome<()> {
        let set = self.table.set(number).ok_or(Errno::EBADF)?;
        let queue = set.queue.get().ok_or(Errno::EBADF)?;
        let at = KqueueRef {
            host: self,
            number,
            set: &set,
            queue,
        };
        let mut errors = 0;
        for change in changes {
            let mut counted = |event| {
                let is_put = put(event);
                errors += usize::from(is_put);
                is_put
            };
            at.apply(change, &mut counted)?;
        }
        if errors > 0 || !has_room {
            return Ok(());
        }
        self.engines
            .settle_home(&set, || self.attached_first().is_ok());
        self.engines.move_remote_members(&set);
        self.realize_set(&set);
        let kernel = libc::pollfd {
            fd: number,
            events: libc::POLLIN,
            revents: 0,
        };
        let plan = Plan {
            subject: Subject::Set(&set),
            kernel: std::slice::from_ref(&kernel),
            deadline_ns: deadline_of(&*self.kernel, timeout),
            mask: None,
            may_restart: false,
            ends_when_stopped: false,
            is_part: false,
        };
        self.wait(&plan, |look| {
            let scanned = at.scan(look, put);
            if scanned.of_stack > 0 {
                let station = self.engines.station_of(Subject::Set(&set));
                station.batch.begin(self.kernel.thread(), scanned.of_stack);
            }
            Ok((scanned.count > 0).then_some(()))
        })?;
        // As for epoll: what arrived has acknowledged what was sent.
        self.engines.move_remote_members(&set);
        Ok(())
    }
}
