//! The standby: the process that takes over when the keeper is killed.
//!
//! The standby is a fork of the keeper and so holds every descriptor; it sleeps on a socket whose
//! other end only the keeper has, and wakes when that end is closed. State that the keeper gains
//! later and that must survive it, such as the regions of its clients, is sent over that socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use serde::{Deserialize, Serialize};
use slipstack_channel::control::{ControlError, ControlSocket, pair};
use slipstack_mem::Region;
use slipstack_mem::process::{Forked, fork};

use crate::regions::RegionKey;
use crate::resources::Resources;

/// A message of the keeper to its standby.
#[derive(Serialize, Deserialize)]
enum Note {
    /// Carries the region of a client.
    Region(RegionKey),
    Forget(RegionKey),
    /// Connections of this client's region are being completed from now on.
    Handover(RegionKey),
    /// All of them have been completed.
    Settled(RegionKey),
}

/// The keeper's handle of its standby.
#[derive(Debug)]
pub struct Standby {
    pid: Pid,
    pidfd: OwnedFd,
    notes: ControlSocket,
}

/// The standby's handle of its keeper.
#[derive(Debug)]
pub struct Keeper {
    notes: ControlSocket,
}

/// Which of the two this process is after the fork.
#[derive(Debug)]
pub enum Side {
    Keeper(Standby),
    Standby(Keeper),
}

/// Forks a standby.
pub fn split() -> io::Result<Side> {
    let (ours, theirs) = pair().map_err(io::Error::other)?;
    match fork()? {
        Forked::Child => {
            drop(ours);
            Ok(Side::Standby(Keeper { notes: theirs }))
        }
        Forked::Parent(pid) => {
            let pid =
                Pid::from_raw(pid as i32).ok_or_else(|| io::Error::other("no process number"))?;
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| discard(pid))?;
            Ok(Side::Keeper(Standby {
                pid,
                pidfd,
                notes: ours,
            }))
        }
    }
}

/// Ends a standby that cannot be kept, before its socket is closed: it would take that for our end,
/// and there would be two keepers.
fn discard(pid: Pid) {
    let _ = kill_process(pid, Signal::KILL);
    let _ = waitpid(Some(pid), WaitOptions::empty());
}

impl Standby {
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Readable when the standby has died.
    pub fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Takes the dead standby off the process table.
    pub fn reap(&self) {
        let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
    }

    /// Waits until the standby has ended, after the state was marked as finished and the socket
    /// closed.
    pub fn dismiss(self) {
        let Standby {
            pid,
            pidfd: _,
            notes,
        } = self;
        drop(notes);
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }

    /// Ends it: another one is to be forked, of what this process holds by now.
    pub fn end(self) {
        discard(self.pid);
    }

    /// Losing a note costs a reset that is not sent if both the keeper and the client die.
    pub fn note_region(&self, key: RegionKey, region: &Region) {
        let _ = self.notes.send(&Note::Region(key), &[region.fd()]);
    }

    pub fn note_forget(&self, key: RegionKey) {
        let _ = self.notes.send(&Note::Forget(key), &[]);
    }

    pub fn note_handover(&self, key: RegionKey) {
        let _ = self.notes.send(&Note::Handover(key), &[]);
    }

    pub fn note_settled(&self, key: RegionKey) {
        let _ = self.notes.send(&Note::Settled(key), &[]);
    }
}

impl Keeper {
    /// Sleeps until the keeper is gone, and updates the tables of regions meanwhile.
    pub fn outlive(self, resources: &mut Resources, region_len_max: usize) {
        loop {
            let _ = poll(&mut [PollFd::new(&self.notes.as_fd(), PollFlags::IN)], None);
            match self.notes.try_receive::<Note>() {
                Ok(None)
                | Err(
                    ControlError::Malformed
                    | ControlError::TooLong
                    | ControlError::NoNumbers
                    | ControlError::TimedOut,
                ) => {}
                Ok(Some((note, fds))) => take_note(resources, note, fds, region_len_max),
                Err(ControlError::Closed | ControlError::Io(_)) => return,
            }
        }
    }
}

fn take_note(resources: &mut Resources, note: Note, fds: Vec<OwnedFd>, region_len_max: usize) {
    match note {
        Note::Region(key) => {
            let opened = fds
                .into_iter()
                .next()
                .and_then(|fd| Region::open(fd, region_len_max).ok());
            if let Some(region) = opened {
                resources.regions.insert(key, region);
            }
        }
        Note::Forget(key) => {
            resources.regions.remove(&key);
        }
        Note::Handover(key) => {
            if let Some(region) = resources.regions.get(&key) {
                resources.handovers.insert(key, region.clone());
            }
        }
        Note::Settled(key) => {
            resources.handovers.remove(&key);
        }
    }
}
