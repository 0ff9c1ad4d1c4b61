//! libc's own functions behind the interposed ones.

mod abi;
mod sys;

pub use abi::*;

use core::ffi::{CStr, c_void};
use core::marker::PhantomData;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// One function of the next library in the search order. `F` is its type.
pub struct Next<F> {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    pub const fn new(name: &'static CStr) -> Next<F> {
        Next {
            name,
            at: AtomicPtr::new(core::ptr::null_mut()),
            kind: PhantomData,
        }
    }

    /// The function; looked up at the first call at the latest. A successful look-up
    /// does not allocate, so that allocators may get here while they initialise.
    #[inline(always)]
    pub fn get(&self) -> F {
        let mut at = self.at.load(Relaxed);
        if at.is_null() {
            at = self.resolve();
        }
        sys::as_function(at)
    }

    #[cold]
    pub fn resolve(&self) -> *mut c_void {
        let at = sys::find(self.name);
        self.at.store(at, Relaxed);
        at
    }
}
