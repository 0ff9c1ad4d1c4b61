//! The rows that describe sockets in the report.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use slipstack_channel::report::{Place, Row, Why};

use crate::process::engines::Engines;
use crate::process::report::{Given, Reason, Report};
use crate::socket::description::{Description, Kind};
use crate::socket::{Dgram, Listener, Side, Stream};

impl Report {
    /// Reports a socket that is the kernel's; `given` is its bound or connected address.
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

    /// Reports a datagram socket while there is no engine for it.
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

impl Report {
    /// Reports all rows again: the keeper may have forgotten this process, because a failed
    /// attachment ends the connection.
    pub(crate) fn tell_again(&self) {
        self.is_reported.store(false, Ordering::Relaxed);
    }

    /// Tells the keeper of rows while there is no engine: sockets that never need one are described
    /// all the same.
    pub(crate) fn tell(&self, engines: &Engines) {
        if engines.first().is_none()
            && !self.is_reported.swap(true, Ordering::Relaxed)
            && let Some(table) = self.table()
        {
            engines.attach.report(table.fd());
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
