//! The table in which a process describes its sockets, for `slipstack why`.
//!
//! One row per descriptor, written when a socket is placed and cleared when it is closed. Nothing
//! on the data path touches it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_channel::report::{ReportTable, Row};
use slipstack_mem::Lock;

use crate::process::verbosity::placement;

pub(crate) use slipstack_channel::report::Why as Reason;

/// The address that decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    Local(SocketAddr),
    Remote(SocketAddr),
    Nothing,
}

/// The rows of the process; the region comes into being with the first.
#[derive(Debug, Default)]
pub(crate) struct Report {
    table: Lock<Option<Arc<ReportTable>>>,
    /// The keeper, which answers `why`, has the table, or will get it with the first engine.
    pub(crate) is_reported: AtomicBool,
    /// Hears of each socket that is placed.
    journal: Option<fn(&str)>,
}

impl Report {
    pub(crate) fn new(journal: Option<fn(&str)>) -> Report {
        Report {
            journal,
            ..Report::default()
        }
    }

    /// The table. Without memory for one, nothing is described.
    pub(crate) fn table(&self) -> Option<Arc<ReportTable>> {
        let mut place = self.table.lock();
        if place.is_none() {
            *place = ReportTable::create().ok().map(Arc::new);
        }
        place.clone()
    }

    pub(crate) fn write(&self, fd: i32, row: Row) {
        if let Some(journal) = self.journal {
            journal(&placement(fd, &row));
        }
        if let Some(table) = self.table() {
            table.write(fd, row);
        }
    }

    pub(crate) fn on_close(&self, fd: i32) {
        if let Some(table) = &*self.table.lock() {
            table.clear(fd);
        }
    }

    /// A copy of a descriptor has a row of its own.
    pub(crate) fn on_dup(&self, fd: i32, from: i32) {
        if let Some(table) = &*self.table.lock()
            && let Some(row) = table.read(from)
        {
            table.write(fd, row);
        }
    }

    pub(crate) fn hold(&self) {
        self.table.hold();
    }

    pub(crate) fn release(&self) {
        self.table.release();
    }

    /// A forked child describes its sockets in a region of its own.
    pub(crate) fn after_fork_child(&self) {
        *self.table.lock() = None;
        self.is_reported.store(false, Ordering::Relaxed);
    }
}
