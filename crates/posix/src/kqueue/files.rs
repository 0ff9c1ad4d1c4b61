//! The open files that a kqueue watches.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// What was known of a file when it was looked at last.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) watch: i32,
    pub(super) size: i64,
    pub(super) links: u64,
}

/// The files of one queue.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) inotify: Option<OwnedFd>,
    pub(super) open: HashMap<i32, File>,
}
