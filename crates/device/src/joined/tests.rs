use slipstack_mem::{Descriptor, RawSlice};
use slipstack_wire::{LinkId, RxMeta, TxOffload};

use super::slot::JoinedSlot;
use crate::device::Device;
use crate::loopback::{Loopback, pair};

const BROADCAST: u8 = 0xff;

/// A slot of two ports, whose link-layer address is [2, 0, 0, 0, 0, 1] at both, with the other
/// ends.
fn joined() -> (JoinedSlot, [Loopback; 2]) {
    let ((a, far_a), (b, far_b)) = (pair(1500).unwrap(), pair(9000).unwrap());
    let info = a.info();
    let slot = JoinedSlot::new(vec![Box::new(a), Box::new(b)], info).unwrap();
    (slot, [far_a, far_b])
}

fn send(device: &mut dyn Device, to: [u8; 6], link: LinkId) {
    let frame = [&to[..], &[9; 54]].concat();
    let offload = TxOffload::on(link.0);
    device.tx(&frame, [RawSlice::EMPTY; 2], offload).unwrap();
    device.flush();
}

fn received(device: &mut dyn Device, budget: usize) -> Vec<LinkId> {
    let mut links = Vec::new();
    device.rx(budget, &mut |_: &[u8], meta: RxMeta| {
        links.push(LinkId(meta.link))
    });
    links
}

#[test]
fn frames_have_the_number_of_their_port() {
    let (mut slot, [mut far_a, mut far_b]) = joined();
    assert!(!slot.has_rx());
    send(&mut far_a, [BROADCAST; 6], LinkId::new(0, 0));
    send(&mut far_b, [BROADCAST; 6], LinkId::new(0, 0));
    send(&mut far_b, [2, 0, 0, 0, 0, 1], LinkId::new(0, 7));
    assert!(slot.has_rx());
    let links = received(&mut slot, 64);
    let expected = [LinkId::new(0, 0), LinkId::new(1, 0), LinkId::new(1, 7)];
    assert_eq!(links, expected);
    assert!(!slot.has_rx());
    assert_eq!(slot.counters().rx_frames, 3);
}

#[test]
fn frames_leave_by_the_port_of_their_link_alone() {
    let (mut slot, [mut far_a, mut far_b]) = joined();
    send(&mut slot, [2, 0, 0, 0, 0, 2], LinkId::new(1, 7));
    assert_eq!(received(&mut far_b, 64), [LinkId::new(0, 7)]);
    send(&mut slot, [2, 0, 0, 0, 0, 2], LinkId::new(0, 0));
    assert_eq!(received(&mut far_a, 64), [LinkId::new(0, 0)]);
    assert!(!far_b.has_rx());
    send(&mut slot, [2, 0, 0, 0, 0, 2], LinkId::new(2, 0));
    assert_eq!(slot.counters().tx_dropped, 1);
}

#[test]
fn frames_for_another_station_are_counted() {
    let (mut slot, [mut far_a, _far_b]) = joined();
    send(&mut far_a, [2, 0, 0, 0, 0, 3], LinkId::new(0, 0));
    assert_eq!(received(&mut slot, 64), []);
    assert_eq!(slot.counters().rx_foreign, 1);
}

#[test]
fn a_port_with_many_frames_does_not_starve_another() {
    let (mut slot, [mut far_a, mut far_b]) = joined();
    for _ in 0..100 {
        send(&mut far_a, [BROADCAST; 6], LinkId::new(0, 0));
    }
    send(&mut far_b, [BROADCAST; 6], LinkId::new(0, 0));
    assert_eq!(received(&mut slot, 8), [LinkId::new(0, 0); 8]);
    assert_eq!(received(&mut slot, 8)[0], LinkId::new(1, 0));
}

#[test]
fn one_descriptor_is_readable_if_any_port_has_frames() {
    let (mut slot, [_far_a, mut far_b]) = joined();
    let is_readable = |slot: &JoinedSlot| {
        let fd = Descriptor::new(slot.poll_fd()).unwrap();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            fd.as_fd(),
            rustix::event::PollFlags::IN,
        )];
        let none = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&none)).unwrap() == 1
    };
    assert!(!is_readable(&slot));
    send(&mut far_b, [BROADCAST; 6], LinkId::new(0, 0));
    assert!(is_readable(&slot));
    received(&mut slot, 64);
    assert!(!is_readable(&slot));
}
