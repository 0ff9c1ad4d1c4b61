//! Who gets SIGURG: the owner of a socket (F_SETOWN), when a peer announces urgent data; and SIGIO (O_ASYNC).
//!
//! On the kernel the signal comes whatever the program does. Here somebody has to look: with the first owner a thread
//! begins that waits on them as any thread of the program would, and ends with the last. Programs without owners
//! have none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::process::{Pid, Signal};
use slipstack_mem::Lock;
use slipstack_mem::thread::spawn_quiet;

use crate::description::{Decided, Description};
use crate::epoll::Target;
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::wait::{Plan, Subject};

/// The sockets that have an owner.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    owned: Lock<Vec<Weak<Description>>>,
    /// Changes with the list.
    version: AtomicU64,
    is_served: AtomicBool,
}

impl Owners {
    fn add(&self, socket: &Arc<Description>) {
        let mut owned = self.owned.lock();
        owned.retain(|it| it.strong_count() > 0 && !std::ptr::eq(it.as_ptr(), &**socket));
        owned.push(Arc::downgrade(socket));
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn living(&self) -> Vec<Arc<Description>> {
        let mut owned = self.owned.lock();
        let is_owned = |it: &Weak<Description>| {
            it.upgrade()
                .is_some_and(|socket| !socket.is_over() && socket.cold.lock().owner != 0)
        };
        owned.retain(is_owned);
        owned.iter().filter_map(Weak::upgrade).collect()
    }

    /// Over a fork. Before any socket: who looks at the list looks at its sockets.
    pub(crate) fn hold(&self) {
        self.owned.hold();
    }

    pub(crate) fn release(&self) {
        self.owned.release();
    }

    /// In a forked child, which has no such thread.
    pub(crate) fn reset(&self) {
        self.owned.lock().clear();
        self.is_served.store(false, Ordering::Release);
    }
}

impl Process {
    /// F_SETOWN: a process, minus a process group, or 0 for nobody.
    pub(crate) fn set_owner(&self, socket: &Arc<Description>, owner: i32) -> Outcome<()> {
        exists(owner)?;
        socket.cold.lock().owner = owner;
        if let Some(Decided::Stream(stream)) = socket.decided() {
            stream.set_owned(owner != 0);
        }
        self.owners.add(socket);
        // Who waits for marks looks at the list again.
        self.wake_all();
        Ok(())
    }

    /// F_GETOWN.
    pub(crate) fn owner(socket: &Description) -> i32 {
        socket.cold.lock().owner
    }

    /// Sees to it that owners get their signals. Called after a call that may have made one.
    pub fn serve_owners(&'static self) {
        if self.owners.living().is_empty() || self.owners.is_served.swap(true, Ordering::AcqRel) {
            return;
        }
        if spawn_quiet("slipstack-urg", move || self.watch_marks()).is_err() {
            self.owners.is_served.store(false, Ordering::Release);
        }
    }

    fn watch_marks(&'static self) {
        let mut is_able = true;
        while is_able {
            let version = self.owners.version.load(Ordering::Acquire);
            let sockets = self.owners.living();
            if sockets.is_empty() {
                break;
            }
            let targets: Vec<Target> = sockets.iter().cloned().map(Target::Socket).collect();
            let plan = Plan {
                subject: Subject::Many(&targets),
                kernel: &[],
                deadline_ns: None,
                mask: None,
                may_restart: true,
            };
            let outcome = self.wait(&plan, |_| {
                for socket in &sockets {
                    signal_owner(socket);
                    let owner = socket.cold.lock().owner;
                    socket.sigio.tell(&*self.kernel, owner);
                }
                let is_stale = self.owners.version.load(Ordering::Acquire) != version
                    || sockets.iter().any(|socket| socket.is_over());
                Ok(is_stale.then_some(()))
            });
            is_able = outcome.is_ok();
        }
        self.owners.is_served.store(false, Ordering::Release);
        // One may have come since the look at the list.
        if is_able {
            self.serve_owners();
        }
    }
}

impl Description {
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

fn signal_owner(socket: &Description) {
    if let Some(Decided::Stream(stream)) = socket.decided()
        && let Some(mark) = stream.unsignalled_mark()
    {
        let owner = socket.cold.lock().owner;
        // An owner that has gone gets nothing.
        let _ = match Pid::from_raw(owner.wrapping_abs()) {
            Some(pid) if owner > 0 => rustix::process::kill_process(pid, Signal::URG),
            Some(group) => rustix::process::kill_process_group(group, Signal::URG),
            None => Ok(()),
        };
        stream.note_signalled(mark);
    }
}

/// f_setown(): ESRCH if there is nobody of this number.
fn exists(owner: i32) -> Result<(), Errno> {
    if owner == i32::MIN {
        return Err(Errno::EINVAL);
    }
    let tested = match Pid::from_raw(owner.abs()) {
        Some(pid) if owner > 0 => rustix::process::test_kill_process(pid),
        Some(group) => rustix::process::test_kill_process_group(group),
        None => Ok(()),
    };
    match tested {
        Err(rustix::io::Errno::SRCH) => Err(Errno::ESRCH),
        _ => Ok(()),
    }
}
