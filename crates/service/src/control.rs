//! Control of a service from other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use slipstack_mem::Doorbell;

use crate::counts::Counts;
use crate::outcome::Refused;

/// Ends a service, and queries its state.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    is_stopping: AtomicBool,
    is_ready: AtomicBool,
    is_over: AtomicBool,
    refusal: Mutex<Option<Refused>>,
    bell: Option<Doorbell>,
    pub(crate) counts: Arc<Counts>,
}

impl Control {
    pub(crate) fn new(bell: Option<Doorbell>) -> Control {
        Control {
            shared: Arc::new(Shared {
                is_stopping: AtomicBool::new(false),
                is_ready: AtomicBool::new(false),
                is_over: AtomicBool::new(false),
                refusal: Mutex::new(None),
                bell,
                counts: Arc::default(),
            }),
        }
    }

    /// The service closes its listeners, then each connection in order.
    pub fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        if let Some(bell) = &self.shared.bell {
            bell.ring();
        }
    }

    /// Returns whether the sockets requested in [`crate::Service::on_start`] are there.
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready.load(Ordering::SeqCst)
    }

    /// Returns whether the service has ended ([`crate::Context::end`]), or was stopped and has
    /// closed everything.
    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::SeqCst)
    }

    /// Returns the first refusal of a listener or a UDP socket.
    pub fn refusal(&self) -> Option<Refused> {
        let refusal = self.shared.refusal.lock();
        *refusal.unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Shared {
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_ready(&self) {
        if !self.is_ready.load(Ordering::Relaxed) {
            self.is_ready.store(true, Ordering::SeqCst);
        }
    }

    pub(crate) fn set_over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn note_refusal(&self, refused: Refused) {
        if let Refused::Listen(..) | Refused::Bind(..) = refused {
            let refusal = self.refusal.lock();
            refusal
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(refused);
        }
    }
}
