//! The engine inside a program: which thread wakes which.

mod pair;

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_channel::control::TimeWaitEntry;
use slipstack_channel::{CloseMode, Command, Driver, Transport};
use slipstack_device::{Device, RxMeta, loopback};
use slipstack_engine::InProcess;
use slipstack_engine::supervisor::Supervisor;
use slipstack_mem::{Doorbell, Lock, PrivateFd, now_ns};

/// A keeper that never has anything to say.
struct Silent;

impl Supervisor for Silent {
    fn control(&self) -> Option<Arc<PrivateFd>> {
        None
    }
    fn on_control(&self) {}
    fn hand_over(&self, _images: u32) -> bool {
        true
    }
    fn pass_on_time_waits(&self, _told: &[TimeWaitEntry]) {}
    fn end_session(&self) {}
}

/// Returns whether the doorbell is seen within a second.
fn is_woken(bell: &Doorbell) -> bool {
    let mut fds = [PollFd::new(bell, PollFlags::IN)];
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&second)).unwrap() > 0
}

/// The ticker, which stood in while the program was away, waits on the same doorbell.
#[test]
fn the_doorbell_wakes_a_returned_program_and_not_only_the_ticker() {
    let (device, _peer) = loopback::pair(1500).unwrap();
    let bell = Doorbell::new().unwrap();
    let engine = pair::host_with(1, device, None).engine;
    let driver = InProcess::new(engine, bell.clone(), Arc::new(Silent)).unwrap();
    for round in 0..60 {
        std::thread::sleep(Duration::from_millis(10));
        let Some(wait_on) = driver.prepare_wait(now_ns(), 0) else {
            driver.turn(now_ns());
            continue;
        };
        assert_eq!(wait_on.fds[1], bell.raw_fd());
        bell.ring();
        // The machine delays this thread until the ticker has seen and cleared it.
        std::thread::sleep(Duration::from_millis(2));
        assert!(is_woken(&bell), "round {round}");
        driver.finish_wait([false, true], now_ns());
        driver.turn(now_ns());
    }
    driver.end_session(now_ns());
}

/// A call of the program while the ticker sleeps in its place gives the ticker a deadline that it
/// did not know.
#[test]
fn a_command_given_while_the_ticker_sleeps_gets_its_timers() {
    let (device, mut peer) = loopback::pair(1500).unwrap();
    let bell = Doorbell::new().unwrap();
    let host = pair::host_with(1, device, None);
    let (program, engine) = (host.program, host.engine);
    let driver = InProcess::new(engine, bell, Arc::new(Silent)).unwrap();
    // Nothing is due, so that the ticker sleeps without end.
    std::thread::sleep(Duration::from_millis(50));
    let sock = program.open_socket(Transport::Tcp).unwrap();
    let remote = "10.9.0.2:80".parse().unwrap();
    program.request(Command::Connect { sock, remote });
    driver.commands();
    // The neighbour does not answer; the request is repeated after a second.
    let end = std::time::Instant::now() + Duration::from_secs(5);
    let mut frames = 0;
    while frames < 2 && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        frames += peer.rx(16, &mut |_: &[u8], _: RxMeta| {});
    }
    assert_eq!(frames, 2);
    driver.end_session(now_ns());
}

/// The messages to a keeper at the end, in order.
#[derive(Default)]
struct Listening(Lock<Vec<String>>);

impl Listening {
    fn note(&self, what: String) {
        self.0.lock().push(what);
    }
}

impl Supervisor for Listening {
    fn control(&self) -> Option<Arc<PrivateFd>> {
        None
    }
    fn on_control(&self) {}
    fn hand_over(&self, images: u32) -> bool {
        self.note(format!("{images} connections"));
        true
    }
    fn pass_on_time_waits(&self, entries: &[TimeWaitEntry]) {
        for entry in entries {
            self.note(format!("{} in TIME-WAIT", entry.local));
        }
    }
    fn end_session(&self) {
        self.note("goodbye".to_owned());
    }
}

#[test]
fn an_ending_engine_hands_over_connections_before_time_wait_entries() {
    for (is_closed, is_open, want) in [
        (false, false, &["goodbye"][..]),
        (true, false, &["10.9.0.2:80 in TIME-WAIT", "goodbye"]),
        (
            true,
            true,
            &["1 connections", "10.9.0.2:80 in TIME-WAIT", "goodbye"],
        ),
    ] {
        let mut world = pair::World::new();
        world.now = now_ns();
        let listener = world.listen(1, 80);
        if is_closed {
            let (client, server) = world.connect(listener, 80);
            world.hosts[1].program.close(server, CloseMode::Orderly);
            world.settle(1_000_000);
            world.hosts[0].program.close(client, CloseMode::Orderly);
            world.settle(1_000_000);
        }
        if is_open {
            world.connect(listener, 80);
        }
        let [_, host] = world.hosts;
        let keeper = Arc::new(Listening::default());
        let bell = Doorbell::new().unwrap();
        let driver = InProcess::new(host.engine, bell, keeper.clone()).unwrap();
        driver.end_session(now_ns());
        assert_eq!(*keeper.0.lock(), want);
    }
}

/// Frames for a neighbour that does not answer hold up the ends of all engines of a program until
/// one and the same time.
#[test]
fn the_ends_of_several_engines_wait_until_one_time() {
    let made: Vec<_> = (0..3)
        .map(|_| {
            let (device, peer) = loopback::pair(1500).unwrap();
            let host = pair::host_with(1, device, None);
            let bell = Doorbell::new().unwrap();
            let driver = InProcess::new(host.engine, bell, Arc::new(Silent)).unwrap();
            let sock = host.program.open_socket(Transport::Tcp).unwrap();
            let remote = "10.9.0.2:80".parse().unwrap();
            host.program.request(Command::Connect { sock, remote });
            driver.commands();
            (driver, host.program, peer)
        })
        .collect();
    let begun = now_ns();
    let until = begun + 300_000_000;
    for (driver, ..) in &made {
        driver.end_session(until);
    }
    let took = now_ns() - begun;
    assert!((300_000_000..600_000_000).contains(&took), "{took} ns");
}
