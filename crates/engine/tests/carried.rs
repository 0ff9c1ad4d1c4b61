//! Connections that go to another process have an entry in the directory until they have arrived.

mod pair;

use std::sync::Arc;

use slipstack_channel::{Driver, FlowEntry, SockId, flows};
use slipstack_engine::InProcess;
use slipstack_mem::{Doorbell, Region, now_ns};

use pair::Silent;

/// The server's engine of a connection, with its socket and its directory.
fn server() -> (InProcess, SockId, Region) {
    let mut world = pair::World::new();
    world.now = now_ns();
    let listener = world.listen(1, 80);
    let (_, sock) = world.connect(listener, 80);
    world.settle(1_000_000);
    let [_, host] = world.hosts;
    let region = host.program.region().clone();
    let bell = Doorbell::new().unwrap();
    let driver = InProcess::new(host.engine, bell, Arc::new(Silent)).unwrap();
    (driver, sock, region)
}

fn entries(region: &Region) -> Vec<(bool, bool)> {
    let shown = |it: FlowEntry| (it.is_leaving, it.opened.is_some());
    flows(region).into_iter().map(shown).collect()
}

#[test]
fn a_connection_is_leaving_until_it_has_arrived() {
    let (driver, sock, region) = server();
    assert_eq!(entries(&region), [(false, true)]);
    let bytes = driver.carry_out(sock, 0).unwrap();
    assert_eq!(entries(&region), [(true, true)]);
    driver.carried(&bytes, 3);
    assert_eq!(entries(&region), []);
    driver.end_session(now_ns());
}

#[test]
fn a_connection_that_comes_back_is_leaving_no_more() {
    let (driver, sock, region) = server();
    let bytes = driver.carry_out(sock, 0).unwrap();
    assert!(driver.carry_in(sock, &bytes));
    assert_eq!(entries(&region), [(false, true)]);
    driver.end_session(now_ns());
}
