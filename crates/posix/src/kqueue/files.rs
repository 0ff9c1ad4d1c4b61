//! The open files that a kqueue watches.

use std::collections::HashMap;

use slipstack_mem::PrivateFd;

/// State of a file at the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) watch: i32,
    pub(crate) size: i64,
    pub(crate) attachments: u64,
}

/// The files of one queue.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) inotify: Option<PrivateFd>,
    pub(crate) open: HashMap<i32, File>,
}
