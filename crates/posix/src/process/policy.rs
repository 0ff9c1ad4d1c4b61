//! The policy as this process knows it: asked for once, and again when the engine says that the
//! network has changed. Before there is an engine it is asked for again now and then.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::sync::{Arc, OnceLock};

use slipstack_channel::Policy;
use slipstack_mem::Lock;

#[derive(Default)]
pub(crate) struct Known {
    /// The first answer.
    pub(crate) first: OnceLock<Option<Policy>>,
    /// Taken while that is asked for.
    pub(crate) asking: Lock<()>,
    pub(crate) now: Lock<Option<Fresh>>,
    /// `now` has something.
    pub(crate) has_other: AtomicBool,
    /// The link's MTU, once that was asked for again; 0 = it was not.
    pub(crate) mtu: AtomicU16,
    pub(crate) mtu_asked_ns: AtomicU64,
}

pub(crate) struct Fresh {
    pub(crate) policy: Arc<Policy>,
    pub(crate) asked_ns: u64,
}

impl Known {
    /// Over a fork. After the sockets: who looks at one asks.
    pub(crate) fn hold(&self) {
        self.asking.hold();
        self.now.hold();
    }

    pub(crate) fn release(&self) {
        self.now.release();
        self.asking.release();
    }
}

/// A policy at hand.
pub(crate) enum Current<'a> {
    Fixed(&'a Policy),
    Fresh(Arc<Policy>),
}

impl Deref for Current<'_> {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        match self {
            Current::Fixed(policy) => policy,
            Current::Fresh(policy) => policy,
        }
    }
}
