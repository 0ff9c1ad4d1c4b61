//! One sleep in `ppoll`.

use std::time::Duration;

use slipstack_channel::WaitOn;

use crate::kernel::Kernel;
use crate::process::wait::{Plan, least};
use crate::ready::{Ask, BLIND_SLEEP_NS, Waiter};

/// The outcome of one sleep.
pub(super) struct Slept {
    /// The waiter's own doorbell ended it, or may have been rung.
    pub(super) rang: bool,
    /// Which of the driver's descriptors had something.
    pub(super) driver: [bool; 2],
    pub(super) kernel: Ask,
    /// The clock at its end; `None`: there was no sleep.
    pub(super) woke_ns: Option<u64>,
}

impl Slept {
    pub(super) const NOT_AT_ALL: Slept = Slept {
        rang: false,
        driver: [false; 2],
        // A thread that never sleeps has to poll the kernel's descriptors itself.
        kernel: Ask::Due,
        woke_ns: None,
    };
}

impl Plan<'_> {
    /// Sleeps until the waiter is rung, or one of the descriptors of the plan or the driver has
    /// something, for `left_ns` at most.
    pub(super) fn sleep_in_ppoll(
        &self,
        kernel: &dyn Kernel,
        waiter: &Waiter,
        wait_on: Option<&WaitOn>,
        left_ns: Option<u64>,
    ) -> Slept {
        const ON_STACK: usize = 16;
        let readable = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let driver = wait_on.map_or(&[][..], |wait_on| &wait_on.fds);
        let mine = std::iter::once(waiter.doorbell()).chain(driver.iter().copied());
        let all = mine.map(readable).chain(self.kernel.iter().copied());
        let count = 1 + driver.len() + self.kernel.len();
        let mut few = [readable(-1); ON_STACK];
        let mut many = Vec::new();
        let fds = if count <= ON_STACK {
            for (place, fd) in few.iter_mut().zip(all) {
                *place = fd;
            }
            &mut few[..count]
        } else {
            many.extend(all);
            &mut many[..]
        };
        let left_ns = match waiter.has_doorbell() {
            true => left_ns,
            false => least(left_ns, Some(BLIND_SLEEP_NS)),
        };
        let timeout = left_ns.map(Duration::from_nanos);
        let outcome = kernel.ppoll(fds, timeout, self.mask);
        let woke_ns = Some(kernel.now_ns());
        let kernel = &fds[1 + driver.len()..];
        Slept {
            // A handler that ended the sleep has rung as well, unheard.
            rang: fds[0].revents != 0 || outcome.is_err(),
            driver: [1, 2].map(|at| at <= driver.len() && fds[at].revents != 0),
            kernel: match outcome {
                Ok(_) if kernel.iter().all(|fd| fd.revents == 0) => Ask::Nothing,
                _ => Ask::Due,
            },
            woke_ns,
        }
    }
}
