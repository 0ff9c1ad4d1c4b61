//! The table in which a process describes its sockets, for `slipstack why`.
//!
//! One row per descriptor, written when a socket is placed and cleared when it is closed. Nothing
//! on the data path touches it.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_channel::report::{Place, ReportTable, Row, Why};
use slipstack_mem::Lock;

use crate::description::{Description, Kind};
use crate::process::Process;
use crate::socket::{Dgram, Listener, Side, Stream};
use crate::verbosity::placement;

pub(crate) use slipstack_channel::report::Why as Reason;

/// The address that decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    Local(SocketAddr),
    Remote(SocketAddr),
    Nothing,
}

/// This process's rows; the region comes into being with the first.
#[derive(Debug, Default)]
pub(crate) struct Report {
    table: Lock<Option<Arc<ReportTable>>>,
    /// Whoever answers `why` has been told of it, or will be with the first engine.
    is_told: AtomicBool,
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

    pub(crate) fn number(&self) -> Option<i32> {
        let place = self.table.lock();
        place.as_ref().map(|table| table.fd().as_raw_fd())
    }

    fn write(&self, fd: i32, row: Row) {
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
        self.is_told.store(false, Ordering::Relaxed);
    }

    /// A socket that is the kernel's; `given` is what it was bound or connected to.
    pub(crate) fn on_kernel(&self, fd: i32, socket: &Description, why: Reason, given: Given) {
        self.write(fd, row(Place::Kernel, why, socket, given));
    }

    /// A socket that `--strict` keeps from the kernel; `given` as in [`Report::on_kernel`].
    pub(crate) fn on_refusal(&self, fd: i32, socket: &Description, given: Given) {
        self.write(fd, row(Place::Undecided, Why::Strict, socket, given));
    }

    pub(crate) fn on_stream(
        &self,
        socket: &Description,
        stream: &Stream,
        remote: Option<SocketAddr>,
    ) {
        let row = Row {
            place: Place::Stack,
            why: Why::Stack,
            is_udp: false,
            local: stream.local(),
            remote,
        };
        self.write_all(socket, row);
    }

    /// A connection that another process drives for this one.
    pub(crate) fn on_borrowed(
        &self,
        socket: &Description,
        local: Option<SocketAddr>,
        remote: Option<SocketAddr>,
    ) {
        let row = Row {
            place: Place::Stack,
            why: Why::Foreign,
            is_udp: socket.kind == Kind::Dgram,
            local,
            remote,
        };
        self.write_all(socket, row);
    }

    pub(crate) fn on_listener(&self, socket: &Description, listener: &Listener, why: Reason) {
        let row = Row {
            place: match listener.addr.ip().is_unspecified() {
                true => Place::Both,
                false => Place::Stack,
            },
            why,
            is_udp: false,
            local: Some(listener.addr),
            remote: None,
        };
        self.write_all(socket, row);
    }

    pub(crate) fn on_dgram(&self, socket: &Description, dgram: &Dgram) {
        let why = match dgram.side() {
            Side::Kernel => Why::Route,
            Side::Both | Side::Stack => Why::Stack,
        };
        self.write_dgram(socket, dgram, why);
    }

    /// The same while there is no engine for it.
    pub(crate) fn on_absence(&self, socket: &Description, dgram: &Dgram) {
        self.write_dgram(socket, dgram, Why::Away);
    }

    fn write_dgram(&self, socket: &Description, dgram: &Dgram, why: Why) {
        let remote = *dgram.remote.lock();
        let bound = socket.cold.lock().bound;
        let row = Row {
            place: match dgram.side() {
                Side::Both => Place::Both,
                Side::Stack => Place::Stack,
                Side::Kernel => Place::Kernel,
            },
            why,
            is_udp: true,
            local: dgram.local().or(bound.map(|bound| bound.addr)),
            remote,
        };
        self.write_all(socket, row);
    }

    fn write_all(&self, socket: &Description, row: Row) {
        let numbers = socket.cold.lock();
        for number in &numbers.numbers {
            self.write(*number, row);
        }
    }
}

impl Process {
    /// Whoever was told may know this process no more: an engine that is not to be had ends the connection.
    pub(crate) fn tell_report_again(&self) {
        self.report.is_told.store(false, Ordering::Relaxed);
    }

    /// Sockets that never need an engine are described all the same.
    pub(crate) fn tell_report(&self) {
        if self.link().is_none()
            && !self.report.is_told.swap(true, Ordering::Relaxed)
            && let Some(table) = self.report.table()
        {
            self.attach.report(table.fd());
        }
    }
}

fn row(place: Place, why: Reason, socket: &Description, given: Given) -> Row {
    let bound = socket.cold.lock().bound.map(|bound| bound.addr);
    let (local, remote) = match given {
        Given::Local(addr) => (Some(addr), None),
        Given::Remote(addr) => (bound, Some(addr)),
        Given::Nothing => (bound, None),
    };
    Row {
        place,
        why,
        is_udp: socket.kind == Kind::Dgram,
        local,
        remote,
    }
}
