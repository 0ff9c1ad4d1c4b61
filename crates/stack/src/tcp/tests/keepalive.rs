//! RFC 9293 3.8.4.
//!
//! RFC 1122 4.2.3.6.

use super::harness::*;
use crate::{KeepAlive, Reason, SocketOption};
use core::time::Duration;

fn watch(world: &mut World) {
    let keep = KeepAlive {
        enabled: true,
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(2),
        probes: 3,
    };
    world
        .stack
        .tcp_set_option(
            world.now,
            world.conn.unwrap(),
            SocketOption::KeepAlive(keep),
            &mut world.fx,
        )
        .unwrap();
    world.flush();
}

#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let mut world = established();
    watch(&mut world);
    world.sleep(9 * SECOND);
    world.none();
    world.sleep(6 * SECOND);
    let probes = world.take_sent();
    assert_eq!(probes.len(), 3);
    assert!(
        probes
            .iter()
            .all(|p| p.header.seq == world.ack.wrapping_sub(1) && p.data.is_none())
    );
    world.sleep(3 * SECOND);
    assert_eq!(world.failed(), Some(Reason::TimedOut));
}

#[test]
fn an_answer_restarts_the_silence_timer() {
    let mut world = established();
    watch(&mut world);
    world.sleep(11 * SECOND);
    assert_eq!(world.take_sent().len(), 1);
    world.peer(ACK, &[]);
    world.sleep(8 * SECOND);
    world.none();
    world.sleep(3 * SECOND);
    assert_eq!(world.take_sent().len(), 1);
}

#[test]
fn a_probe_of_the_peer_is_answered() {
    let mut world = established();
    world.seq -= 1;
    world.peer_at(0, ACK, &[]);
    world.seq += 1;
    world.flush();
    assert_eq!(world.only().header.ack, world.seq);
}
