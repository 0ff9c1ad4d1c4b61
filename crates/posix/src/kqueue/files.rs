//! The open files that a kqueue watches.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// State of a file at the last look.
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
