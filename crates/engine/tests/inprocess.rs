//! The engine inside a program: who wakes whom.

mod pair;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_channel::{Command, Driver, Exit, Kind};
use slipstack_device::{Device, RxMeta, loopback};
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
    fn hand_over(&self, _images: u32) -> bool {
        true
    }
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

/// What the program does while the ticker sleeps in its place gives the ticker a deadline that it did not know.
#[test]
fn a_program_that_asks_for_something_and_goes_away_again_has_it_repeated() {
    let (device, mut peer) = loopback::pair(1500).unwrap();
    let bell = Doorbell::new().unwrap();
    let host = pair::host_with(1, device, None);
    let (program, engine) = (host.program, host.engine);
    let driver = InProcess::new(engine, bell, Arc::new(Silent)).unwrap();
    // Nothing is due, so that the ticker sleeps without end.
    std::thread::sleep(Duration::from_millis(50));
    let sock = program.open_socket(Kind::Tcp).unwrap();
    let remote = "10.9.0.2:80".parse().unwrap();
    program.request(Command::Connect { sock, remote });
    driver.commands();
    // The neighbour does not answer; it is asked for again after a second.
    let end = std::time::Instant::now() + Duration::from_secs(5);
    let mut frames = 0;
    while frames < 2 && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        frames += peer.rx(16, &mut |_: &[u8], _: RxMeta| {});
    }
    assert_eq!(frames, 2);
    driver.goodbye(Exit::Orderly);
}
