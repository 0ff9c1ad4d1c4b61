//! A slot changes hands while frames arrive at speed: its holder is killed, a successor adopts the
//! ring, and every frame was seen. Only the one that a holder had in hand when it was killed may be
//! seen again.

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::net::{self, PEER, Pair, STACK};
use slipstack_device::{Device, RingPosition, RxMeta, SlotParams, SlotParts, Slots, open_slot};
use slipstack_mem::Region;

const FRAMES_MAX: usize = 1 << 20;
/// The region: the position of the ring, then a count for each frame.
const COUNTS: usize = 4096;
const REGION_LEN: usize = COUNTS + 4 * FRAMES_MAX;
/// Frames in the receive ring of a packet socket.
const RING: u32 = 2048;
/// Lead of the sender over the holder: the ring never overflows, however busy the machine.
const AHEAD_MAX: u32 = RING / 2;
const KILLS: u64 = 20;
const ENVIRONMENT: &str = "SLIPSTACK_TEST_HANDOVER";

/// Holder of the slot, run by the test below as a process of its own; not a test itself.
#[test]
fn child_process_that_holds_a_slot() {
    let Ok(text) = std::env::var(ENVIRONMENT) else {
        return;
    };
    let (numbers, params) = text.split_once(" {").unwrap();
    let params = &format!("{{{params}");
    let mut numbers = numbers.split(' ').map(|word| word.parse::<u32>().unwrap());
    let mut next = || numbers.next().unwrap();
    let (slot, region) = (net::sys::inherited(next()), net::sys::inherited(next()));
    let params = SlotParams::from_text(params).unwrap();
    let region = Region::open(region, REGION_LEN).unwrap();
    let counts = Region::open(region.try_clone_fd().unwrap(), REGION_LEN).unwrap();
    let position = RingPosition::new(region, 0).unwrap();
    let mut device = open_slot(parts(params, slot), position).unwrap();
    loop {
        device.rx(64, &mut |frame: &[u8], _: RxMeta| count(&counts, frame));
    }
}

fn count(region: &Region, frame: &[u8]) {
    if !net::is_udp(frame) {
        return;
    }
    let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
    let word = region.u32(COUNTS + 4 * number as usize).unwrap();
    word.fetch_add(1, Ordering::Relaxed);
}

/// A slot of one descriptor.
pub fn parts(params: SlotParams, fd: OwnedFd) -> SlotParts {
    SlotParts {
        params,
        fds: vec![fd],
    }
}

fn spawn_holder(slot: &OwnedFd, region: &OwnedFd, params: &SlotParams) -> Child {
    let params = params.to_text();
    let text = format!("{} {} {params}", slot.as_raw_fd(), region.as_raw_fd());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "handover::child_process_that_holds_a_slot"])
        .env(ENVIRONMENT, text)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// A copy that survives exec.
pub fn inheritable(fd: impl AsFd) -> OwnedFd {
    let fd = fd.as_fd().try_clone_to_owned().unwrap();
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).unwrap();
    fd
}

#[test]
fn a_killed_holder_loses_nothing_and_duplicates_at_most_one_batch() {
    if !net::may_run("handover") {
        return;
    }
    let pair = Pair::new("lease");
    let slots = Slots::of_kind("packet", "slip-v", 2).unwrap();
    pair.announce(slots.link().mac);
    slots.steering().set_own(&[(STACK.into(), 24)]).unwrap();
    let region = Region::create("handover", REGION_LEN).unwrap();
    let (slot, shared) = (
        inheritable(slots.slot_fds(0).next().unwrap()),
        inheritable(region.fd()),
    );

    let is_over = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU32::new(0));
    let sender = pair.peer.spawn({
        let (is_over, sent) = (Arc::clone(&is_over), Arc::clone(&sent));
        let counts = Region::open(region.try_clone_fd().unwrap(), REGION_LEN).unwrap();
        move || send_numbered(&is_over, &sent, &counts)
    });
    let started = Instant::now();
    for round in 0..KILLS {
        let mut holder = spawn_holder(&slot, &shared, &slots.params(0).unwrap());
        std::thread::sleep(Duration::from_millis(40 + round * 7 % 40));
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    let rate = f64::from(sent.load(Ordering::Relaxed)) / started.elapsed().as_secs_f64();

    // The last successor empties the ring.
    let counts = Region::open(region.try_clone_fd().unwrap(), REGION_LEN).unwrap();
    let position = RingPosition::new(region, 0).unwrap();
    let mut device = slots.adopt(0, position).unwrap();
    while device.rx(64, &mut |frame: &[u8], _: RxMeta| count(&counts, frame)) != 0 {}
    assert_eq!(
        device.counters().rx_overrun,
        0,
        "the test's ring was too small"
    );

    let sent = sent.load(Ordering::Relaxed);
    let lost = (0..sent).filter(|&n| times(&counts, n) == 0).count();
    let extra = |n| u64::from(times(&counts, n).saturating_sub(1));
    let doubled: u64 = (0..sent).map(extra).sum();
    println!("{sent} frames at {rate:.0}/s: {lost} lost, {doubled} doubled");
    assert_eq!(lost, 0);
    // A holder that is killed between taking a frame and saying so leaves it to its successor.
    assert!(doubled <= KILLS);
}

/// Sends 100,000 numbered frames a second, as far as the holders keep up.
fn send_numbered(is_over: &AtomicBool, sent: &AtomicU32, counts: &Region) {
    let socket = UdpSocket::bind((PEER, 0)).unwrap();
    socket.connect((STACK, 7)).unwrap();
    let mut number = 0u32;
    let begin = Instant::now();
    while !is_over.load(Ordering::Relaxed) && (number as usize) < FRAMES_MAX {
        let is_early = f64::from(number) > begin.elapsed().as_secs_f64() * 100_000.0;
        let is_ahead = number
            .checked_sub(AHEAD_MAX)
            .is_some_and(|n| times(counts, n) == 0);
        if is_early || is_ahead {
            std::thread::yield_now();
            continue;
        }
        socket.send(&number.to_be_bytes()).unwrap();
        number += 1;
        sent.store(number, Ordering::Relaxed);
    }
}

fn times(counts: &Region, number: u32) -> u32 {
    let word = counts.u32(COUNTS + 4 * number as usize).unwrap();
    word.load(Ordering::Relaxed)
}
