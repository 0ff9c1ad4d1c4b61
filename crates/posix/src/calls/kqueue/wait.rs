//! kevent: applies changes first, then returns events: kqueue_scan().

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use slipstack_mem::Descriptor;

use crate::calls::kqueue::change::At;
use crate::calls::kqueue::members::Look as Member;
use crate::calls::kqueue::others::{ALARM, BELL, FILES, PROCESS, tell_others};
use crate::epoll::Target;
use crate::errno::Errno;
use crate::kqueue::Kevent;
use crate::kqueue::queue::Inner;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::wait::{Ask, Look, Plan};

/// Descriptors of ours that one call checks: as for epoll, the next call is what receives frames.
const MEMBERS_MAX: usize = 64;
const KERNEL_EVENTS_MAX: usize = 64;

impl Process {
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
        let at = At {
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
            self.apply(at, change, &mut counted)?;
        }
        if errors > 0 || !has_room {
            return Ok(());
        }
        self.realize_set(&set);
        let kernel = libc::pollfd {
            fd: number,
            events: libc::POLLIN,
            revents: 0,
        };
        let plan = Plan {
            subject: Subject::Set(&set),
            kernel: std::slice::from_ref(&kernel),
            deadline_ns: self.deadline(timeout),
            mask: None,
            may_restart: false,
        };
        self.wait(&plan, |look| {
            let count = self.scan(at, look, put);
            Ok((count > 0).then_some(()))
        })?;
        Ok(())
    }

    fn scan(&self, at: At<'_>, look: Look, put: &mut dyn FnMut(Kevent) -> bool) -> usize {
        let mut inner = at.queue.inner.lock();
        self.run_timers(at.queue, &mut inner);
        let is_kernels_turn = self.is_kernel_due(at, look);
        if is_kernels_turn {
            self.note_kernel_insides(at, &mut inner);
        }
        let mut count = tell_others(at.queue, &mut inner, put);
        count += self.scan_stack(at, &mut inner, put);
        if is_kernels_turn {
            count += self.scan_kernel(at, &mut inner, put);
        }
        count
    }

    fn is_kernel_due(&self, at: At<'_>, look: Look) -> bool {
        if !at.set.has_kernel_members() || look.kernel == Ask::Nothing {
            return false;
        }
        let mut inner = at.set.inner.lock();
        let is_over = inner.looks.is_over(look.now_ns);
        if look.is_due() {
            inner.looks.begin(look.now_ns);
        }
        is_over || look.is_due()
    }

    /// Signals are counted without the kernel, so that a queue without signal notes pays nothing.
    fn note_kernel_insides(&self, at: At<'_>, inner: &mut Inner) {
        if at.queue.has_signals.load(Ordering::Acquire) {
            self.count_signals(inner);
        }
    }

    /// Descriptors of ours.
    fn scan_stack(
        &self,
        at: At<'_>,
        inner: &mut Inner,
        put: &mut dyn FnMut(Kevent) -> bool,
    ) -> usize {
        let mut count = 0;
        let mut left = at.set.ready_len().min(MEMBERS_MAX);
        while let Some(popped) = at.set.pop_ready(&mut left) {
            let look = Member {
                fd: popped.fd,
                ready: popped.ready,
                edges: popped.edges,
                target: Some(&popped.target),
            };
            let told = self.tell_member(inner, look, put);
            count += told.count;
            self.settle_member(at, inner, popped.fd, told);
            if told.is_level || told.is_cut {
                at.set.queue_again(popped.item, 0);
            }
            if told.is_cut {
                break;
            }
        }
        if count > 0 {
            let thread = self.kernel.thread();
            let station = &self.engines.station;
            station.batch.begin(thread, count);
        }
        count
    }

    /// Descriptors of the kernel's, and the queue's own.
    fn scan_kernel(
        &self,
        at: At<'_>,
        inner: &mut Inner,
        put: &mut dyn FnMut(Kevent) -> bool,
    ) -> usize {
        let Some(epfd) = Descriptor::new(at.number) else {
            return 0;
        };
        let mut room = [const { MaybeUninit::uninit() }; KERNEL_EVENTS_MAX];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok((events, _)) = epoll::wait(epfd.as_fd(), &mut room[..], Some(&now)) else {
            return 0;
        };
        let mut count = 0;
        let mut has_others = false;
        for event in events {
            let ready = { event.flags }.bits();
            match event.data.u64() {
                ALARM => has_others = true,
                BELL => {
                    self.count_signals(inner);
                    has_others = true;
                }
                FILES => {
                    inner.read_files();
                    has_others = true;
                }
                data if data & PROCESS != 0 => {
                    self.on_process(inner, (data & !PROCESS) as usize);
                    has_others = true;
                }
                data => {
                    count += self.tell_kernels(at, inner, (data as u32).cast_signed(), ready, put)
                }
            }
        }
        if has_others {
            self.run_timers(at.queue, inner);
            count += tell_others(at.queue, inner, put);
        }
        count
    }

    fn tell_kernels(
        &self,
        at: At<'_>,
        inner: &mut Inner,
        fd: i32,
        ready: u32,
        put: &mut dyn FnMut(Kevent) -> bool,
    ) -> usize {
        let target = match self.table.find(fd) {
            Some(crate::process::table::Entry::Socket(socket)) if socket.kernel_speaks() => {
                if let Some(crate::socket::description::Decided::Listener(listener)) =
                    socket.decided()
                {
                    listener.on_kernel_ready();
                }
                Some(Target::Socket(socket))
            }
            // Its item reports the event.
            Some(crate::process::table::Entry::Set(_)) => return 0,
            _ => None,
        };
        let look = Member {
            fd,
            ready,
            edges: ready,
            target: target.as_ref(),
        };
        let mut told = self.tell_member(inner, look, put);
        if told.is_cut {
            told.is_level = true;
        }
        self.settle_member(at, inner, fd, told);
        told.count
    }
}
