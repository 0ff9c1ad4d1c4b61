//! epoll_wait and its variants.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFlags, Timespec, epoll};
use slipstack_mem::Descriptor;

use crate::epoll::{COMMON_DATA, Set, Target, change_kernel_part};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::wait::Plan;
use crate::process::wait::deadline_of;
use crate::ready::{Ask, Look, bits};
use crate::socket::description::{Decided, Kind};
use crate::socket::kernel_socket::is_ready;

/// Most stack events of one call: the program's work for them should take less than a millisecond,
/// because the next call is what receives frames, and a listener gives one connection a call to
/// programs that accept one at a time.
const STACK_EVENTS_MAX: usize = 64;
/// Kernel events that one check has room for without an allocation.
const KERNEL_EVENTS_FEW: usize = 256;

impl Process {
    /// Implements epoll_wait, epoll_pwait and epoll_pwait2. `timeout` `None` waits for ever. `out`
    /// must not be empty (the caller answers EINVAL).
    pub fn epoll_wait(
        &self,
        epfd: i32,
        out: &mut [libc::epoll_event],
        timeout: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Outcome<usize> {
        let set = self.table.set(epfd).ok_or(Divert::Kernel)?;
        if set.queue.get().is_some() {
            return Err(Errno::EINVAL.into());
        }
        if self.lending.waits_in_kernel() {
            return Err(Divert::Kernel);
        }
        self.engines
            .settle_home(&set, || self.attached_first().is_ok());
        self.engines.move_remote_members(&set);
        self.realize_set(&set);
        let is_attached = self.engines.place.lock().is_some();
        // Only a check without a wait: a sleeping thread must learn of members that other threads
        // add meanwhile.
        let is_look = timeout.is_some_and(|timeout| timeout.is_zero());
        if is_look && !is_attached && set.is_kernel_only() && set.common().is_none() {
            return Err(Divert::Kernel);
        }
        let deadline_ns = deadline_of(&*self.kernel, timeout);
        let epfd = libc::pollfd {
            fd: epfd,
            events: libc::POLLIN,
            revents: 0,
        };
        let plan = Plan {
            subject: Subject::Set(&set),
            kernel: std::slice::from_ref(&epfd),
            deadline_ns,
            mask,
            // signal(7): epoll_wait is never restarted.
            may_restart: false,
            ends_when_stopped: true,
            is_part: false,
        };
        set.ask_for_room_again();
        let count = loop {
            let found = self.wait(&plan, |look| {
                let count = self.collect(&set, epfd.fd, out, look);
                Ok((count > 0).then_some(count))
            })?;
            let count = found.map(|count| self.without_hung_up(&set, &mut out[..count]));
            if count != Some(0) {
                break count;
            }
        };
        // The data that arrived for a foreign connection acknowledged what it had sent, so it can
        // move.
        self.engines.move_remote_members(&set);
        Ok(count.unwrap_or(0))
    }

    /// Takes connections of killed processes over that the kernel says have ended. Returns the
    /// number of events that remain, in front.
    fn without_hung_up(&self, set: &Arc<Set>, out: &mut [libc::epoll_event]) -> usize {
        let are_over = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
        let mut count = out.len();
        if !out.iter().any(|event| event.events & are_over != 0) {
            return count;
        }
        for (item, socket, data) in set.borrowed() {
            // Several members may have the same data: each has one event.
            let is_its = |event: &libc::epoll_event| {
                let (events, its) = (event.events, event.u64);
                events & are_over != 0 && its == data
            };
            let Some(at) = out[..count].iter().position(is_its) else {
                continue;
            };
            if self.take_all_hung_up([&socket].into_iter()) {
                set.fire_again(item);
                out.copy_within(at + 1..count, at);
                count -= 1;
            } else {
                out[at].events |= self.untaken_error(&socket) as u32;
            }
        }
        count
    }

    /// Collects the members ready now on both sides, without one starving the other.
    fn collect(
        &self,
        set: &Arc<Set>,
        epfd: i32,
        out: &mut [libc::epoll_event],
        look: Look,
    ) -> usize {
        let has_kernel_members = set.has_kernel_members();
        let (is_kernel_late, is_stacks_turn) = match has_kernel_members {
            true => is_kernel_late(set, look),
            false => (false, false),
        };
        let mut count = 0;
        if is_kernel_late && !(out.len() == 1 && is_stacks_turn) {
            // Our side keeps the room that it needs, at most half of it.
            let room = out.len() - set.ready_count(out.len() / 2);
            count = self.collect_from_kernel(set, epfd, &mut out[..room]);
        }
        let (from_kernel, rest) = out.split_at_mut(count);
        let found = self.collect_from_stack(set, from_kernel, rest);
        count += found;
        if count == 0 && has_kernel_members && !is_kernel_late && is_kernel_due(set, look) {
            count = self.collect_from_kernel(set, epfd, out);
        }
        count
    }

    fn collect_from_stack(
        &self,
        set: &Arc<Set>,
        from_kernel: &mut [libc::epoll_event],
        out: &mut [libc::epoll_event],
    ) -> usize {
        let lives_in_both = set.lives_in_both();
        let mut count = 0;
        let mut listener = None;
        let mut rests = false;
        let room = out.len().min(STACK_EVENTS_MAX);
        set.collect(room, |found| {
            rests |= found.rests;
            if let Some(fd) = found.kernel_part {
                // One event for a socket that is ready on both sides; other members may have the
                // same data.
                let same = from_kernel.iter_mut().find(|event| event.u64 == found.data);
                let asked = PollFlags::from_bits_retain(found.events as u16);
                if let Some(event) = same.filter(|_| is_ready(Descriptor::new(fd), asked)) {
                    event.events |= found.events;
                    return;
                }
            }
            out[count] = libc::epoll_event {
                events: found.events,
                u64: found.data,
            };
            if found.is_listener {
                listener = Some(count);
            }
            count += 1;
        });
        // Arrivals come last. Nothing is sent for them, so that every answer of this batch waits
        // for the next call that waits, and the end of its connection goes with it.
        if let Some(at) = listener {
            out[at..count].rotate_left(1);
        }
        if lives_in_both && rests {
            rest_kernel_parts(set);
        }
        if count > 0 {
            let station = self.engines.station_of(Subject::Set(set));
            let thread = self.kernel.thread();
            station.batch.begin(thread, count);
        }
        count
    }

    fn collect_from_kernel(
        &self,
        set: &Arc<Set>,
        epfd: i32,
        out: &mut [libc::epoll_event],
    ) -> usize {
        let Some(epfd) = Descriptor::new(epfd) else {
            return 0;
        };
        let members = set.kernel_members.load(Ordering::Relaxed);
        let room = out.len().min(members.max(KERNEL_EVENTS_FEW));
        let mut few = [const { MaybeUninit::uninit() }; KERNEL_EVENTS_FEW];
        let mut many = Vec::new();
        let events = if room <= KERNEL_EVENTS_FEW {
            &mut few[..room]
        } else {
            many.resize_with(room, MaybeUninit::uninit);
            &mut many[..]
        };
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok((events, _)) = epoll::wait(epfd.as_fd(), events, Some(&now)) else {
            return 0;
        };
        set.inner.lock().looks.end(!events.is_empty());
        let lives_in_both = set.lives_in_both();
        let mut count = 0;
        let common = set.common().filter(|common| *common != epfd);
        let mut is_common_ready = false;
        for event in events {
            let data = event.data.u64();
            let mut events = { event.flags }.bits();
            if lives_in_both {
                if events & bits::OUT != 0 {
                    events = set.vet_room(data, events);
                }
                if events != 0 {
                    events = self.on_kernel_event(set, data, events);
                }
                if events == 0 {
                    continue;
                }
            }
            if data == COMMON_DATA && common.is_some() {
                is_common_ready = true;
                continue;
            }
            out[count] = libc::epoll_event { events, u64: data };
            count += 1;
        }
        if let Some(common) = common.filter(|_| is_common_ready) {
            count += self.collect_from_kernel(set, common.number(), &mut out[count..]);
        }
        count
    }

    /// Returns what the program is told of `events` of the kernel's part of a member.
    fn on_kernel_event(&self, set: &Set, data: u64, events: u32) -> u32 {
        let Some((Target::Socket(socket), rests)) = set.on_kernel_event(data, events) else {
            return events;
        };
        match socket.decided() {
            Some(Decided::Listener(listener)) => listener.on_kernel_ready(),
            // A notification about something that another process may have received since.
            Some(Decided::Foreign(it))
                if socket.kind == Kind::Dgram && it.is_taken() && events & bits::IN != 0 =>
            {
                let ready = self.readiness_elsewhere(&socket, it);
                if let Some(ready) = ready.filter(|ready| *ready != 0 || !rests) {
                    return events & bits::OUT | ready & !bits::OUT;
                }
            }
            _ => {}
        }
        events
    }
}

/// Whether the kernel's members are to be looked at before our side's, so that they get their
/// share, and if there is one place only, whether it is our side's turn. Where our side has nothing
/// the sleep to come asks for them.
fn is_kernel_late(set: &Set, look: Look) -> (bool, bool) {
    let mut inner = set.inner.lock();
    if look.kernel == Ask::Nothing {
        inner.looks.on_sleep(look.now_ns);
    }
    let is_late = !inner.ready.is_empty() && inner.looks.is_late(look.now_ns);
    (is_late, inner.looks.is_stacks_turn)
}

/// Whether the kernel's members are to be looked at because our side has nothing.
fn is_kernel_due(set: &Set, look: Look) -> bool {
    let mut inner = set.inner.lock();
    let is_due = match look.kernel {
        Ask::Due => true,
        Ask::Soon => !inner.looks.is_quiet(),
        Ask::Later | Ask::Nothing => false,
    };
    if is_due {
        inner.looks.begin(look.now_ns);
    }
    is_due
}

/// ONESHOT members that fired on our side must not fire in the kernel.
fn rest_kernel_parts(set: &Set) {
    for fd in set.rested_kernel_parts() {
        let _ = change_kernel_part(set, fd, |epfd, fd| {
            let nothing = epoll::EventFlags::ONESHOT;
            epoll::modify(
                epfd.as_fd(),
                fd.as_fd(),
                epoll::EventData::new_u64(0),
                nothing,
            )
        });
    }
}
