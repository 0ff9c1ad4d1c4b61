//! EVFILT_PROC: the end of a process by a descriptor of it, its forks and new programs by the
//! kernel's performance events.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use slipstack_mem::{Happened, PrivateFd, Trace, raised};

use crate::errno::Errno;
use crate::kqueue::at::KqueueRef;
use crate::kqueue::others::{PROCESS, TRACE};
use crate::kqueue::queue::{Inner, OTHERS_MAX};
use crate::kqueue::watched::Watched;
use crate::kqueue::{
    EV_EOF, EV_ONESHOT, EVFILT_PROC, Kevent, NOTE_EXEC, NOTE_EXIT, NOTE_FORK, NOTE_TRACK,
    NOTE_TRACKERR,
};

/// Requests that only a trace can answer.
const BY_TRACE: u32 = NOTE_FORK | NOTE_EXEC | NOTE_TRACK;

impl KqueueRef<'_> {
    /// Watches a process for a new note.
    pub(super) fn watch_process(self, inner: &mut Inner, change: &Kevent) -> Result<(), Errno> {
        if change.fflags & !(NOTE_EXIT | BY_TRACE) != 0 {
            return Err(Errno::EINVAL);
        }
        let process = self.open(change.ident)?;
        let trace = match change.fflags & BY_TRACE {
            0 => None,
            _ => Some(self.begin_trace(inner, change.ident)?),
        };
        let watched = Watched {
            end: Some(process),
            trace,
        };
        inner.processes.watched.insert(change.ident, watched);
        Ok(())
    }

    /// Applies a change to a note that exists.
    pub(super) fn change_process(self, inner: &mut Inner, change: &Kevent) -> Result<(), Errno> {
        let key = (EVFILT_PROC, change.ident);
        let has_trace = |inner: &Inner| {
            let watched = inner.processes.watched.get(&change.ident);
            watched.is_none_or(|it| it.trace.is_some())
        };
        if change.fflags & BY_TRACE != 0 && !has_trace(inner) {
            let trace = self.begin_trace(inner, change.ident)?;
            if let Some(watched) = inner.processes.watched.get_mut(&change.ident) {
                watched.trace = Some(trace);
            }
        }
        if let Some(note) = inner.others.get_mut(&key) {
            note.change(change);
            note.fflags = change.fflags;
        }
        Ok(())
    }

    fn open(self, ident: usize) -> Result<PrivateFd, Errno> {
        let number = i32::try_from(ident).map_err(|_| Errno::ESRCH)?;
        let pid = Pid::from_raw(number).ok_or(Errno::ESRCH)?;
        let process = raised(pidfd_open(pid, PidfdFlags::empty())?);
        let data = PROCESS | u64::from(number.cast_unsigned());
        self.watch_inside(process.as_fd(), data)?;
        Ok(process)
    }

    fn begin_trace(self, inner: &mut Inner, ident: usize) -> Result<Arc<Trace>, Errno> {
        let number = u32::try_from(ident).map_err(|_| Errno::ESRCH)?;
        let trace = Trace::of(number)
            .map_err(|error| error.raw_os_error().map_or(Errno::EOPNOTSUPP, Errno))?;
        for descriptor in trace.descriptors() {
            self.watch_inside(descriptor, TRACE)?;
        }
        let trace = Arc::new(trace);
        inner.processes.traces.push(Arc::clone(&trace));
        Ok(trace)
    }

    /// Reads the traces: what has happened to processes with notes.
    pub(super) fn read_traces(self, inner: &mut Inner) {
        if inner.processes.traces.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for trace in &inner.processes.traces {
            trace.take(&mut found);
        }
        found.sort_by_key(|(time, _)| *time);
        for (_, happened) in found {
            match happened {
                Happened::Forked { parent, child } => self.on_fork(inner, parent, child),
                Happened::Executed(process) => inner.note_process(process as usize, NOTE_EXEC),
                Happened::Ended(process) => self.on_unseen_end(inner, process as usize),
                Happened::Lost => inner.on_lost(),
            }
        }
    }

    fn on_fork(self, inner: &mut Inner, parent: u32, child: u32) {
        let (parent, child) = (parent as usize, child as usize);
        inner.note_process(parent, NOTE_FORK);
        let key = (EVFILT_PROC, child);
        let Some(of_parent) = inner.others.get(&(EVFILT_PROC, parent)).copied() else {
            return;
        };
        if of_parent.fflags & NOTE_TRACK == 0 || inner.others.contains_key(&key) {
            return;
        }
        if inner.others.len() >= OTHERS_MAX {
            inner.note_process(parent, NOTE_TRACKERR);
            return;
        }
        let watched = inner.processes.watched.get(&parent);
        let trace = watched.and_then(|it| it.trace.clone());
        let end = self.open(child).ok();
        inner
            .processes
            .watched
            .insert(child, Watched { end, trace });
        let note = of_parent.for_child(child);
        inner.others.insert(key, note);
        inner.activate(key);
    }

    /// A process has ended: only of one that could not be opened the trace has to tell.
    fn on_unseen_end(self, inner: &mut Inner, ident: usize) {
        let watched = inner.processes.watched.get(&ident);
        if watched.is_some_and(|it| it.end.is_none()) {
            inner.end_process(ident, 0);
        }
    }

    /// The descriptor of a process says that it has ended. Its status is known of children alone.
    pub(super) fn on_process(self, inner: &mut Inner, ident: usize) {
        // Events of its forks and programs come before its end.
        self.read_traces(inner);
        let watched = inner.processes.watched.get(&ident);
        let Some(process) = watched.and_then(|it| it.end.as_ref()) else {
            return;
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(process.as_fd()), options);
        let status = status.ok().flatten().map_or(0, |status| {
            let exit = status.exit_status().map(|code| (code & 0xff) << 8);
            exit.or(status.terminating_signal()).unwrap_or(0)
        });
        inner.end_process(ident, status);
    }
}

impl Inner {
    /// Something has happened to a process: an event, if its note asks for it.
    fn note_process(&mut self, ident: usize, what: u32) {
        let key = (EVFILT_PROC, ident);
        let Some(note) = self.others.get_mut(&key) else {
            return;
        };
        let asked = match what {
            NOTE_TRACKERR => note.fflags & NOTE_TRACK != 0,
            what => note.fflags & what != 0,
        };
        if asked {
            note.fired |= what;
            self.activate(key);
        }
    }

    /// Children may have been missed.
    fn on_lost(&mut self) {
        let tracking: Vec<usize> = self.processes.watched.keys().copied().collect();
        for ident in tracking {
            self.note_process(ident, NOTE_TRACKERR);
        }
    }

    /// filt_proc(): with the end of its process a note ends too, silently if nothing is to be told.
    fn end_process(&mut self, ident: usize, status: i32) {
        self.forget_process(ident);
        let key = (EVFILT_PROC, ident);
        let Some(note) = self.others.get_mut(&key) else {
            return;
        };
        note.flags |= EV_EOF | EV_ONESHOT;
        note.count = i64::from(status);
        note.fired |= note.fflags & NOTE_EXIT;
        match note.fired {
            0 => _ = self.forget(key),
            _ => self.activate(key),
        }
    }

    /// Nothing more is to be known of a process. Closing its descriptor takes it out of the set.
    pub(super) fn forget_process(&mut self, ident: usize) {
        self.processes.watched.remove(&ident);
        self.processes
            .traces
            .retain(|trace| Arc::strong_count(trace) > 1);
    }
}
