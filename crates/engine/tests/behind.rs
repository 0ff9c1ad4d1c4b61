//! An engine that is late: frames that wait at its device are handled before its timers.

mod pair;

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pair::{Gathering, World, bind, host_with, sent_to};
use slipstack_device::loopback;
use slipstack_engine::Instant;

/// Segments that the engine of the first host has sent again, tail probes among them.
fn sent_again(world: &World) -> u64 {
    let rows = world.hosts[0].engine.counter_rows();
    let again = [
        "tx_tcp_resent_fast",
        "tx_tcp_resent_timeout",
        "tx_tcp_tail_probes",
    ];
    let counts = rows
        .iter()
        .filter(|(name, _)| again.iter().any(|it| name.ends_with(it)));
    counts.map(|(_, count)| count).sum()
}

#[test]
fn an_engine_that_was_descheduled_receives_frames_before_it_runs_timers() {
    let mut world = World::new();
    let listener = world.listen(1, 8080);
    let (client, _server) = world.connect(listener, 8080);
    world.settle(10_000_000);
    let program = &mut world.hosts[0].program;
    assert_eq!(program.send(client, &[IoSlice::new(b"x")], false), 1);
    world.hosts[0].engine.commands(Instant(world.now));
    // More than the engine takes in one turn stands before the acknowledgment.
    let noise = bind(&mut world, 1, 1000);
    let to = sent_to("10.9.0.1:53".parse().unwrap());
    for _ in 0..600 {
        let sent = world.hosts[1].program.udp_send(noise, &to, &[]);
        assert_eq!(sent, Ok(0));
    }
    world.hosts[1].engine.commands(Instant(world.now));
    world.hosts[1].engine.turn(Instant(world.now));
    world.hosts[1].engine.turn(Instant(world.now + 50_000_000));
    world.now += 1_000_000_000;
    let before = sent_again(&world);
    world.settle(10_000_000);
    assert_eq!(sent_again(&world) - before, 0);
    assert_eq!(world.hosts[0].program.tx_unacked(client), 0);
}

#[test]
fn timers_that_are_due_since_a_frame_came_wait_for_it() {
    let (device, right) = loopback::pair(1500).unwrap();
    let since_ns = Arc::new(AtomicU64::new(0));
    let left = Gathering::new(device, Arc::clone(&since_ns));
    let hosts = [host_with(1, left, None), host_with(2, right, None)];
    let mut world = World {
        hosts,
        now: 1_000_000,
    };
    let listener = world.listen(1, 8080);
    let (client, _server) = world.connect(listener, 8080);
    world.settle(10_000_000);
    let program = &mut world.hosts[0].program;
    assert_eq!(program.send(client, &[IoSlice::new(b"x")], false), 1);
    let engine = &mut world.hosts[0].engine;
    engine.commands(Instant(world.now));
    since_ns.store(world.now + 1_000_000, Ordering::Relaxed);
    engine.turn(Instant(world.now + 2_000_000_000));
    assert_eq!(sent_again(&world), 0);
    since_ns.store(world.now + 1_999_000_000, Ordering::Relaxed);
    let engine = &mut world.hosts[0].engine;
    engine.turn(Instant(world.now + 2_000_000_000));
    assert_eq!(sent_again(&world), 1, "it was due before");
}
