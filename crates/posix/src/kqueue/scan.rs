//! Events that a kqueue has for the program: kqueue_scan().

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use rustix::event::{Timespec, epoll};
use slipstack_mem::Descriptor;

use crate::epoll::Target;
use crate::kqueue::Kevent;
use crate::kqueue::at::KqueueRef;
use crate::kqueue::members::Look as Member;
use crate::kqueue::others::{ALARM, BELL, FILES, PROCESS, TRACE, tell_others};
use crate::kqueue::queue::Inner;
use crate::ready::{Ask, Look};
use crate::socket::description::Decided;

/// Descriptors of ours that one call checks: as for epoll, the next call is what receives frames.
const MEMBERS_MAX: usize = 64;
const KERNEL_EVENTS_MAX: usize = 64;

/// Numbers of events that a check has returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanned {
    pub(crate) count: usize,
    /// Events of descriptors of the stack's.
    pub(crate) of_stack: usize,
}

impl KqueueRef<'_> {
    /// Returns events by `put`, as far as it has room for them.
    pub(crate) fn scan(self, look: Look, put: &mut dyn FnMut(Kevent) -> bool) -> Scanned {
        let mut inner = self.queue.inner.lock();
        inner.scans += 1;
        self.run_timers(&mut inner);
        let is_kernels_turn = self.is_kernel_due(look);
        if is_kernels_turn {
            self.note_kernel_insides(&mut inner);
        }
        let mut count = tell_others(self.queue, &mut inner, put);
        let of_stack = self.scan_stack(&mut inner, put);
        count += of_stack;
        if is_kernels_turn {
            count += self.scan_kernel(&mut inner, put);
        }
        Scanned { count, of_stack }
    }

    fn is_kernel_due(self, look: Look) -> bool {
        if !self.set.has_kernel_members() || look.kernel == Ask::Nothing {
            return false;
        }
        let mut inner = self.set.inner.lock();
        let is_over = inner.looks.is_over(look.now_ns);
        if look.is_due() {
            inner.looks.begin(look.now_ns);
        }
        is_over || look.is_due()
    }

    /// Signals are counted without the kernel, so that a queue without signal notes pays nothing.
    fn note_kernel_insides(self, inner: &mut Inner) {
        if self.queue.has_signals.load(Ordering::Acquire) {
            self.count_signals(inner);
        }
        // A poll of the queue itself takes a trace's event off its descriptor.
        self.read_traces(inner);
    }

    /// Descriptors of ours.
    fn scan_stack(self, inner: &mut Inner, put: &mut dyn FnMut(Kevent) -> bool) -> usize {
        let mut count = 0;
        let mut left = self.set.ready_len().min(MEMBERS_MAX);
        while let Some(popped) = self.set.pop_ready(&mut left) {
            let look = Member {
                fd: popped.fd,
                ready: popped.ready,
                edges: popped.edges,
                target: Some(&popped.target),
            };
            let reported = self.report_member(inner, look, put);
            count += reported.count;
            self.settle_member(inner, popped.fd, reported);
            if reported.is_level || reported.is_cut {
                self.set.queue_again(popped.item);
            }
            if reported.is_cut {
                break;
            }
        }
        count
    }

    /// Descriptors of the kernel's, and the queue's own.
    fn scan_kernel(self, inner: &mut Inner, put: &mut dyn FnMut(Kevent) -> bool) -> usize {
        let Some(epfd) = Descriptor::new(self.number) else {
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
                TRACE => {
                    self.read_traces(inner);
                    has_others = true;
                }
                data if data & PROCESS != 0 => {
                    self.on_process(inner, (data & !PROCESS) as usize);
                    has_others = true;
                }
                data => {
                    count += self.report_kernels(inner, (data as u32).cast_signed(), ready, put)
                }
            }
        }
        if has_others {
            self.run_timers(inner);
            count += tell_others(self.queue, inner, put);
        }
        count
    }

    fn report_kernels(
        self,
        inner: &mut Inner,
        fd: i32,
        ready: u32,
        put: &mut dyn FnMut(Kevent) -> bool,
    ) -> usize {
        let target = match self.host.target(fd) {
            Some(Target::Socket(socket)) if socket.kernel_speaks() => {
                if let Some(Decided::Listener(listener)) = socket.decided() {
                    listener.on_kernel_ready();
                }
                Some(Target::Socket(socket))
            }
            // Its item reports events of the stack's; those of the kernel's are known here alone.
            Some(Target::Set(set)) if set.has_ready() => return 0,
            Some(Target::Set(set)) => Some(Target::Set(set)),
            _ => None,
        };
        let look = Member {
            fd,
            ready,
            edges: ready,
            target: target.as_ref(),
        };
        let mut reported = self.report_member(inner, look, put);
        if reported.is_cut {
            reported.is_level = true;
        }
        self.settle_member(inner, fd, reported);
        reported.count
    }
}
