//! Frames of one size through a device, without a stack, to measure the device alone.
//! `scripts/frames` compares it with other programs on the same rings.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_device::{Device, DeviceError, RingPosition, RxMeta, Slots, TxOffload};
use slipstack_mem::{Descriptor, RawSlice};

/// Frames of one burst.
const BURST: usize = 64;
const BUDGET: usize = 256;
/// Ethernet's header.
const HEADER: usize = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Sends as fast as the device takes frames.
    Send,
    /// Receives, and prints how many frames arrived.
    Receive,
}

#[derive(Debug, Parser)]
#[command(about = "Sends or receives frames through a device, without a stack")]
struct Options {
    what: What,
    /// As `--device` of `slipstack run`: memif:SOCKET,role=server, xdp, packet.
    #[arg(long)]
    device: String,
    /// The interface, for kinds that have one.
    #[arg(long = "if", default_value = "memif0")]
    interface: String,
    /// Bytes of a frame.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(60..=1514))]
    size: u16,
    /// Ends so long after the first frame.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Ends after so many frames; 0: by the time alone.
    #[arg(long, default_value_t = 0)]
    frames: u64,
    /// The processor to run on.
    #[arg(long)]
    core: Option<usize>,
}

impl Options {
    fn is_over(&self, frames: u64, begin: Option<Instant>) -> bool {
        let is_enough = self.frames != 0 && frames >= self.frames;
        is_enough || begin.is_some_and(|it| it.elapsed().as_secs_f64() >= self.seconds)
    }
}

/// Waits for the other end, then sends bursts until it is over; how many frames left.
fn send(device: &mut dyn Device, options: &Options) -> u64 {
    let mut frame = vec![0u8; usize::from(options.size)];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&device.info().mac);
    // An experimental type, without an answer.
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let (mut sent, mut begin) = (0, None);
    while !options.is_over(sent, begin) {
        let unlinked = device.counters().tx_unlinked;
        sent += burst(device, &frame);
        device.flush();
        if device.counters().tx_unlinked != unlinked {
            // The peer is not there yet: it is looked for.
            sent = 0;
            device.rx(BUDGET, &mut |_: &[u8], _: RxMeta| {});
            std::thread::sleep(Duration::from_millis(1));
        } else {
            begin.get_or_insert_with(Instant::now);
        }
    }
    sent
}

#[inline(never)]
fn burst(device: &mut dyn Device, frame: &[u8]) -> u64 {
    let (header, payload) = frame.split_at(HEADER);
    for sent in 0..BURST as u64 {
        let payload = [RawSlice::of(payload), RawSlice::EMPTY];
        if device.tx(header, payload, TxOffload::NONE).is_err() {
            return sent;
        }
    }
    BURST as u64
}

/// Counts received frames until it is over.
fn receive(device: &mut dyn Device, options: &Options) -> (u64, f64) {
    let (mut frames, mut begin) = (0u64, None);
    while !options.is_over(frames, begin) {
        let before = frames;
        take(device, &mut frames);
        if frames == before && begin.is_none() {
            wait(device);
        } else {
            begin.get_or_insert_with(Instant::now);
        }
    }
    let seconds = begin.map_or(0.0, |it: Instant| it.elapsed().as_secs_f64());
    (frames, seconds)
}

#[inline(never)]
fn take(device: &mut dyn Device, frames: &mut u64) {
    device.rx(BUDGET, &mut |_: &[u8], _: RxMeta| *frames += 1);
}

fn wait(device: &dyn Device) {
    let fd = Descriptor::new(device.poll_fd());
    if let Some(fd) = &fd {
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        let most = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        let _ = poll(&mut fds, Some(&most));
    }
}

fn run(options: &Options) -> Result<(), DeviceError> {
    if let Some(core) = options.core {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        // It runs where it may.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    let slots = Slots::of_kind(&options.device, &options.interface, 1, 0)?;
    let mut device = slots.adopt(0, RingPosition::private())?;
    println!("ready");
    match options.what {
        What::Send => {
            let sent = send(&mut *device, options);
            println!("{sent} frames sent");
        }
        What::Receive => {
            let (frames, seconds) = receive(&mut *device, options);
            let rate = frames as f64 / seconds.max(1e-9);
            println!("{frames} frames received, {rate:.0} a second");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slipstack-frames: {error}");
            ExitCode::FAILURE
        }
    }
}
