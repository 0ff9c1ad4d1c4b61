//! An engine whose neighbours' answers another process receives and publishes.

mod pair;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use pair::{Host, host_with};
use slipstack_channel::{Command, Transport};
use slipstack_device::{Device, RxMeta, loopback};
use slipstack_engine::{Instant, NeighbourTable};

const NOW: Instant = Instant(1_000_000);
const PEER: &str = "10.9.0.2";
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

#[derive(Clone, Debug, Default)]
struct Published(Arc<Mutex<Option<[u8; 6]>>>);

impl NeighbourTable for Published {
    fn find(&self, address: IpAddr) -> Option<[u8; 6]> {
        let known = *self.0.lock().unwrap();
        known.filter(|_| address.to_string() == PEER)
    }
}

/// Ethertypes of the frames that have come.
fn ethertypes(device: &mut impl Device) -> Vec<[u8; 2]> {
    let mut found = Vec::new();
    device.rx(64, &mut |frame: &[u8], _: RxMeta| {
        found.push([frame[12], frame[13]])
    });
    found
}

const ARP: [u8; 2] = [8, 6];
const IPV4: [u8; 2] = [8, 0];

fn connect(host: &mut Host) {
    let sock = host.program.open_socket(Transport::Tcp).unwrap();
    let remote = format!("{PEER}:80").parse().unwrap();
    host.program.request(Command::Connect { sock, remote });
    host.engine.commands(NOW);
}

#[test]
fn a_published_neighbour_is_not_asked_for() {
    let (left, mut right) = loopback::pair(1500).unwrap();
    let published = Published::default();
    *published.0.lock().unwrap() = Some(PEER_MAC);
    let mut host = host_with(1, left, Some(Box::new(published)));
    connect(&mut host);
    assert_eq!(ethertypes(&mut right), [IPV4]);
}

#[test]
fn a_thread_checks_for_the_answer_before_it_sleeps() {
    let (left, mut right) = loopback::pair(1500).unwrap();
    let published = Published::default();
    let mut host = host_with(1, left, Some(Box::new(published.clone())));
    connect(&mut host);
    assert_eq!(ethertypes(&mut right), [ARP]);
    let next = host.engine.next_deadline().expect("an answer is awaited");
    assert!(next.0 <= NOW.0 + 1_000_000, "{next:?}");
    *published.0.lock().unwrap() = Some(PEER_MAC);
    host.engine.turn(next);
    assert_eq!(ethertypes(&mut right), [IPV4]);
}
