//! The engine inside a program: who wakes whom.

mod pair;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_channel::{Driver, Exit};
use slipstack_device::loopback;
use slipstack_engine::InProcess;
use slipstack_engine::custodian::Custodian;
use slipstack_mem::Doorbell;

/// A keeper that never has anything to say.
struct Silent;

impl Custodian for Silent {
    fn control(&self) -> Option<Arc<OwnedFd>> {
        None
    }
    fn on_control(&self) {}
    fn hand_over(&self, _images: u32) {}
    fn goodbye(&self) {}
}

/// Whether the bell is heard within a second.
fn is_woken(bell: &Doorbell) -> bool {
    let mut fds = [PollFd::new(bell, PollFlags::IN)];
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&second)).unwrap() > 0
}

/// The ticker, which stood in while the program was away, hears the same bell.
#[test]
fn a_program_that_came_back_is_woken_though_the_ticker_hears_the_bell_too() {
    let (device, _peer) = loopback::pair(1500).unwrap();
    let bell = Doorbell::new().unwrap();
    let engine = pair::host_with(1, device, None).engine;
    let driver = InProcess::new(engine, bell.clone(), Arc::new(Silent)).unwrap();
    for round in 0..60 {
        std::thread::sleep(Duration::from_millis(10));
        let Some(wait_on) = driver.prepare_wait(false) else {
            driver.turn();
            continue;
        };
        assert_eq!(wait_on.fds[1], bell.raw_fd());
        bell.ring();
        // The machine keeps this thread waiting until the ticker has heard and cleared it.
        std::thread::sleep(Duration::from_millis(2));
        assert!(is_woken(&bell), "round {round}");
        driver.finish_wait([false, true]);
        driver.turn();
    }
    driver.goodbye(Exit::Orderly);
}
