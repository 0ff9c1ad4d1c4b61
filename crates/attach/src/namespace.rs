//! The network namespace of the calling thread.

use std::os::linux::fs::MetadataExt;

use slipstack_device::ethtool::Ethtool;

/// Returns the number of the calling thread's network namespace: one that no other gets until the
/// machine is restarted; before Linux 5.14 its inode, which another may get once it has ended.
/// `None` if the process may have no further descriptor.
#[must_use]
pub fn network_namespace() -> Option<u64> {
    let any = Ethtool::new().ok()?;
    let inode = || Some(std::fs::metadata("/proc/thread-self/ns/net").ok()?.st_ino());
    any.namespace().ok().or_else(inode)
}
