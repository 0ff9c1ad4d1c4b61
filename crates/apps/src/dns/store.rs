//! The current zones, shared by all engines: replaced as a whole, never changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::zone::Zones;

/// See the [module documentation](self). An engine keeps its own reference and reads one number to
/// detect a newer value.
#[derive(Debug, Default)]
pub struct Store {
    version: AtomicU64,
    current: Mutex<Arc<Zones>>,
}

impl Store {
    pub fn new(zones: Zones) -> Store {
        Store {
            version: AtomicU64::new(0),
            current: Mutex::new(Arc::new(zones)),
        }
    }

    /// Grows with every change.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn current(&self) -> Arc<Zones> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the zones by the result of `change`.
    pub fn change(&self, change: impl FnOnce(&mut Zones)) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut zones = Zones::clone(&current);
        change(&mut zones);
        *current = Arc::new(zones);
        self.version.fetch_add(1, Ordering::Release);
    }
}
