//! Network namespaces of threads, and the one that the stack of this program is in.

use std::fmt;
use std::os::linux::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use slipstack_device::ethtool;

/// The stack's namespace; 0: that number of it is not known.
static HOME: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The numbers of a network namespace, each 0 if it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkNamespace {
    /// One that no other gets until the machine is restarted. Not before Linux 5.14, nor in a
    /// process that may have no further descriptor or socket.
    cookie: u64,
    /// One that another may get once this one has ended.
    inode: u64,
}

impl NetworkNamespace {
    /// The calling thread's. `None` if nothing is known about it.
    #[must_use]
    pub fn of_this_thread() -> Option<NetworkNamespace> {
        NetworkNamespace::known(cookie(), inode())
    }

    fn known(cookie: u64, inode: u64) -> Option<NetworkNamespace> {
        (cookie != 0 || inode != 0).then_some(NetworkNamespace { cookie, inode })
    }

    /// Reads what [`fmt::Display`] has written.
    #[must_use]
    pub fn parse(text: &str) -> Option<NetworkNamespace> {
        let (cookie, inode) = text.split_once('.')?;
        NetworkNamespace::known(cookie.parse().ok()?, inode.parse().ok()?)
    }

    /// The stack of this program is there.
    pub fn make_home(self) {
        HOME[0].store(self.cookie, Ordering::Relaxed);
        HOME[1].store(self.inode, Ordering::Relaxed);
    }

    /// Whether it is the namespace with these numbers, of which only those are requested that are
    /// compared. `None` if that cannot be told.
    fn is(self, cookie: impl FnOnce() -> u64, inode: impl FnOnce() -> u64) -> Option<bool> {
        let is = |own: u64, other: u64| (other != 0).then_some(own == other);
        let by_cookie = (self.cookie != 0).then(|| is(self.cookie, cookie()));
        by_cookie.flatten().or_else(|| {
            let by_inode = (self.inode != 0).then(|| is(self.inode, inode()));
            by_inode.flatten()
        })
    }
}

impl fmt::Display for NetworkNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.cookie, self.inode)
    }
}

fn home() -> Option<NetworkNamespace> {
    let [cookie, inode] = HOME.each_ref().map(|number| number.load(Ordering::Relaxed));
    NetworkNamespace::known(cookie, inode)
}

/// Whether the stack's namespace is known.
#[must_use]
pub fn has_home() -> bool {
    home().is_some()
}

/// Whether the calling thread is in the stack's namespace. `None` if that cannot be told.
#[must_use]
pub fn is_at_home() -> Option<bool> {
    home()?.is(cookie, inode)
}

fn cookie() -> u64 {
    ethtool::namespace_of_this_thread().unwrap_or(0)
}

fn inode() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.st_ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_compared_by_the_numbers_that_both_have() {
        let is = |own: [u64; 2], other: [u64; 2]| {
            let own = NetworkNamespace::known(own[0], own[1]).unwrap();
            own.is(|| other[0], || other[1])
        };
        assert_eq!(is([7, 40], [7, 40]), Some(true));
        assert_eq!(
            is([7, 40], [8, 40]),
            Some(false),
            "the inode is another's now"
        );
        assert_eq!(is([7, 40], [0, 40]), Some(true));
        assert_eq!(is([7, 40], [0, 41]), Some(false));
        assert_eq!(is([0, 40], [7, 40]), Some(true));
        assert_eq!(is([0, 40], [7, 0]), None);
        assert_eq!(is([7, 0], [0, 40]), None);
    }

    #[test]
    fn this_thread_has_both_numbers_and_can_be_told_to_others() {
        let own = NetworkNamespace::of_this_thread().unwrap();
        assert!(own.cookie != 0 && own.inode != 0, "{own}");
        assert_eq!(NetworkNamespace::parse(&own.to_string()), Some(own));
        assert_eq!(NetworkNamespace::parse("0.0"), None);
        assert_eq!(NetworkNamespace::parse("12"), None);
        assert_eq!(own.is(cookie, inode), Some(true));
    }
}
