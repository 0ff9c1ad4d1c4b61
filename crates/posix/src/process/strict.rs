//! `--strict`: a socket that would fall back to the kernel fails instead, with an error.
//!
//! Sockets of the loopback networks and unix sockets are no fallback: they are the kernel's by
//! design. An engine for a listener or a bound datagram socket, which is otherwise obtained at the
//! first wait, is obtained at once, so that the call can fail. A failure that can only show later,
//! in a forked worker, is reported once by its next accept or receive.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::addr::any;
use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::process::Process;
use crate::process::report::{Given, Reason};
use crate::process::settings::Settings;
use crate::socket::description::{Decided, Description, Kind};

impl Process {
    /// Whether a socket may go to the kernel because of `why`.
    ///
    /// # Errors
    /// `refusal`, under `--strict` and for any address but a loopback one.
    pub(crate) fn permit_kernel(
        &self,
        socket: &Description,
        given: Given,
        why: Reason,
        refusal: Errno,
    ) -> Result<(), Errno> {
        let addr = addr_of(given, socket);
        let ip = addr.ip().to_canonical();
        if socket.is_alone() {
            return Err(refusal);
        }
        if !self.settings.strict || ip.is_loopback() || why == Reason::Loopback {
            return Ok(());
        }
        let trouble = self.engines.trouble();
        let because = match trouble {
            Some(trouble)
                if matches!(why, Reason::NoStack | Reason::NoAddresses | Reason::NoSlot) =>
            {
                trouble
            }
            _ => why.sentence().to_owned(),
        };
        self.refuse(socket, given, &because);
        Err(refusal)
    }

    /// Whether a socket may be of a type or have a number that only the kernel serves.
    ///
    /// # Errors
    /// `refusal`, under `--strict`.
    pub(crate) fn permit_odd(&self, what: &str, refusal: Errno) -> Result<(), Errno> {
        if !self.settings.strict {
            return Ok(());
        }
        self.log.warn_once(&format!(
            "--strict: a socket {what} is refused instead of left to the kernel"
        ));
        Err(refusal)
    }

    /// Returns the attachment for a socket of the stack. Under `--strict` a missing one is
    /// reported.
    pub(crate) fn attached_for(
        &self,
        socket: &Description,
        given: Given,
    ) -> Result<Arc<Attachment>, Errno> {
        let attached = self.attached();
        // A socket that waits for an instance to return is not refused.
        if attached.is_err() && self.settings.strict && !self.engines.absence.is_now() {
            let because = self.engines.trouble().unwrap_or_default();
            self.refuse(socket, given, &because);
        }
        attached
    }

    /// Checks, before a socket becomes the kernel's, that under `--strict` there is an engine for
    /// the other.
    pub(crate) fn insist_on_engine(&self, socket: &Description, given: Given) -> Result<(), Errno> {
        if !self.settings.strict {
            return Ok(());
        }
        let attached = self.attached_for(socket, given);
        if attached.is_err() && self.engines.absence.is_now() {
            let because = self.engines.trouble().unwrap_or_default();
            self.refuse(socket, given, &because);
        }
        attached.map(drop)
    }

    /// Handles an intent that the stack has refused; a missing engine has been reported already.
    pub(crate) fn refuse_late(&self, socket: &Description, error: Errno) {
        if self.engines.first().is_some() {
            self.refuse(
                socket,
                Given::Nothing,
                &format!("the stack answers: {error}"),
            );
        }
    }

    fn refuse(&self, socket: &Description, given: Given, because: &str) {
        let addr = addr_of(given, socket);
        let kind = match socket.kind {
            Kind::Stream => "TCP",
            Kind::Dgram => "UDP",
        };
        self.log.warn_once(&format!(
            "--strict: a {kind} socket for {addr} is refused instead of left to the kernel: \
             {because}"
        ));
        let numbers = socket.cold.lock().numbers.clone();
        for number in numbers {
            self.report.on_refusal(number, socket, given);
        }
        self.report.tell(&self.engines);
    }
}

fn addr_of(given: Given, socket: &Description) -> SocketAddr {
    match given {
        Given::Local(addr) | Given::Remote(addr) => addr,
        Given::Nothing => {
            let bound = socket.cold.lock().bound;
            bound.map_or(any(socket.family), |bound| bound.addr)
        }
    }
}

/// Makes an intent take effect at once under `--strict`; the call fails if it cannot.
pub(crate) fn insist(settings: &Settings, socket: &Description) -> Result<(), Errno> {
    if !settings.strict {
        return Ok(());
    }
    let refused = match socket.decided() {
        Some(Decided::Listener(listener)) => listener.take_refusal(),
        Some(Decided::Dgram(dgram)) => dgram.take_refusal(),
        _ => None,
    };
    refused.map_or(Ok(()), Err)
}
