//! The lending state of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use slipstack_mem::Lock;

use crate::lending::abstract_name;
use crate::lending::fork::Fork;
use crate::lending::post;
use crate::socket::borrowed::control::Control;

/// The part of a process that lends and borrows.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    pub(crate) fork: Lock<Option<Fork>>,
    /// Descriptors of the stewards, and numbers of connections that only they use. Children close
    /// them.
    pub(crate) numbers: Lock<Vec<i32>>,
    /// The kernel's parts of datagram sockets that live elsewhere and are used here.
    pub(crate) kernel_parts: Lock<Vec<i32>>,
    /// The kernel's sets that are shared with other processes, beside the program's numbers.
    pub(crate) commons: Lock<Vec<i32>>,
    /// The control sockets to the stewards of others.
    pub(crate) controls: Lock<Vec<Arc<Control>>>,
    pub(crate) post: post::Post,
    /// Connections of others stay there: this process may not drive an engine.
    pub(crate) keeps_out: AtomicBool,
    /// Set if this process has left its connections to a helper and made no others.
    pub(crate) is_confined: AtomicBool,
    pub(crate) abstract_names: abstract_name::AbstractNames,
    /// Connections that have come in messages.
    pub(crate) arrivals: AtomicU32,
}

impl Lending {
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let mut all = self.numbers.lock().clone();
        all.extend(self.kernel_parts.lock().iter());
        all.extend(self.commons.lock().iter());
        all.extend(self.controls.lock().iter().map(|control| control.number()));
        all
    }

    pub(crate) fn is_stewards(&self, number: i32) -> bool {
        self.numbers.lock().contains(&number)
    }

    pub(crate) fn note(&self, number: i32) {
        self.numbers.lock().push(number);
    }

    pub(crate) fn forget(&self, number: i32) {
        self.numbers.lock().retain(|other| *other != number);
    }

    /// Descriptor of the library's that children keep.
    pub(crate) fn note_common(&self, number: Option<i32>) {
        let mut commons = self.commons.lock();
        if let Some(number) = number.filter(|it| !commons.contains(it)) {
            commons.push(number);
        }
    }

    pub(crate) fn forget_common(&self, number: i32) {
        self.commons.lock().retain(|other| *other != number);
    }

    pub(crate) fn hold(&self) {
        self.fork.hold();
        self.numbers.hold();
        self.kernel_parts.hold();
        self.commons.hold();
        self.controls.hold();
        self.post.hold();
    }

    pub(crate) fn release(&self) {
        self.post.release();
        self.controls.release();
        self.commons.release();
        self.kernel_parts.release();
        self.numbers.release();
        self.fork.release();
    }
}
