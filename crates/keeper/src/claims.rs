//! Detection of engines that still send on a device whose keeper was killed together with its
//! standby.
//!
//! Each slot has a file in the runtime directory. An engine that leases the slot gets an open file
//! description of it with a shared lock, which ends with the last process that holds the slot's
//! descriptors. A keeper that starts tries to take each file's lock exclusively: where it cannot,
//! an engine is running that it knows nothing of, and whose connections its stack would reset.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, unlink};
use rustix::io::Errno;

use crate::runtime::RuntimeDir;

const PREFIX: &str = "slot-";
/// Programs that are named.
const NAMED_MAX: usize = 8;

/// A program whose engine is still running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    pub pid: u32,
    pub program: String,
}

/// Returns the file that a new lease of `slot` holds. Locks that the former one may have left on it
/// have no effect.
pub fn claim(dir: &RuntimeDir, slot: u16) -> rustix::io::Result<OwnedFd> {
    let path = dir.path().join(format!("{PREFIX}{slot}"));
    let fd = open_file(&path)?;
    match flock(&fd, FlockOperation::NonBlockingLockShared) {
        Ok(()) => return Ok(fd),
        Err(Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error),
    }
    // Its program has made the lock exclusive; a new file is not affected.
    unlink(&path)?;
    let fd = open_file(&path)?;
    flock(&fd, FlockOperation::NonBlockingLockShared)?;
    Ok(fd)
}

fn open_file(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(
        path,
        OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::from_raw_mode(0o600),
    )
}

/// Returns whether engines of a former keeper run; the caller holds the directory's lock.
pub fn are_held(dir: &RuntimeDir) -> bool {
    files(dir).iter().any(|path| is_held(path))
}

/// The programs that have a slot, as far as they can be seen from here.
///
/// Looks at no lock: to try one is to hold it for a moment, and a keeper that starts just then
/// would take that for an engine's.
pub fn find_remaining(dir: &RuntimeDir) -> Vec<Remaining> {
    let held: Vec<(u64, u64)> = files(dir)
        .iter()
        .filter_map(|path| fs::metadata(path).ok())
        .map(|file| (file.dev(), file.ino()))
        .collect();
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| has_open(*pid, &held))
        .collect();
    pids.sort_unstable();
    let named = pids.into_iter().take(NAMED_MAX);
    named
        .map(|pid| Remaining {
            pid,
            program: name_of(pid),
        })
        .collect()
}

fn files(dir: &RuntimeDir) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir.path()) else {
        return Vec::new();
    };
    let is_claim = |name: &str| name.starts_with(PREFIX);
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_claim))
        .map(|entry| entry.path())
        .collect()
}

fn is_held(path: &Path) -> bool {
    let locked =
        open_file(path).and_then(|fd| flock(&fd, FlockOperation::NonBlockingLockExclusive));
    locked == Err(Errno::WOULDBLOCK)
}

fn has_open(pid: u32, files: &[(u64, u64)]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|entry| {
        // The link's text differs between mount namespaces; the file it leads to does not.
        let is_likely = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().contains(PREFIX));
        is_likely
            && fs::metadata(entry.path())
                .is_ok_and(|file| files.contains(&(file.dev(), file.ino())))
    })
}

fn name_of(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    name.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn dir(&self) -> RuntimeDir {
            let dir = RuntimeDir::below(&self.0, 7, "slip0").expect("name");
            dir.create().expect("create");
            dir
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn scratch(topic: &str) -> Scratch {
        let name = format!("ss-claims-{topic}-{}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    #[test]
    fn a_slot_is_held_until_the_last_copy_of_its_claim_is_closed() {
        let scratch = scratch("held");
        let dir = scratch.dir();
        assert!(!are_held(&dir));
        let claim = claim(&dir, 3).expect("claim");
        let copy = claim.try_clone().expect("copy");
        drop(claim);
        assert!(are_held(&dir));
        let remaining = find_remaining(&dir);
        assert_eq!(remaining.len(), 1);
        assert_eq!(remaining[0].pid, std::process::id());
        drop(copy);
        assert!(!are_held(&dir) && find_remaining(&dir).is_empty());
    }

    #[test]
    fn a_program_that_changes_its_lock_does_not_change_others() {
        let scratch = scratch("own");
        let dir = scratch.dir();
        let first = claim(&dir, 1).expect("claim");
        let other = claim(&dir, 2).expect("claim");
        flock(&first, FlockOperation::Unlock).expect("unlock");
        assert!(are_held(&dir));
        drop(other);
        assert!(!are_held(&dir));
        flock(&first, FlockOperation::NonBlockingLockExclusive).expect("lock");
        let next = claim(&dir, 1).expect("the slot's next lease");
        flock(&first, FlockOperation::Unlock).expect("unlock");
        assert!(are_held(&dir));
        drop(next);
        assert!(!are_held(&dir));
    }
}
