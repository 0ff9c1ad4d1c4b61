//! Frames of one size through a device, without a stack, to measure the device alone.
//! `scripts/frames` compares it with other programs on the same rings.

use std::net::SocketAddrV4;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_device::{
    Device, DeviceError, Port, RingPosition, RxMeta, Slots, Transport, TxOffload,
};
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
    /// The frame to send, in hexadecimal digits, in place of one without a protocol.
    #[arg(long)]
    frame: Option<Frame>,
    /// UDP to this address comes to the slot of an engine, which is used; without it the only slot.
    #[arg(long)]
    to: Option<SocketAddrV4>,
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

/// A frame, given in hexadecimal digits.
#[derive(Clone, Debug)]
struct Frame(Vec<u8>);

impl FromStr for Frame {
    type Err = String;

    fn from_str(text: &str) -> Result<Frame, String> {
        let byte = |at: usize| {
            let digits = text.get(at..at + 2).unwrap_or_default();
            u8::from_str_radix(digits, 16).map_err(|error| error.to_string())
        };
        let bytes = (0..text.len()).step_by(2).map(byte);
        let frame: Vec<u8> = bytes.collect::<Result<_, _>>()?;
        match frame.len() {
            HEADER..=1514 => Ok(Frame(frame)),
            len => Err(format!("a frame has 14 to 1514 bytes, and not {len}")),
        }
    }
}

impl Options {
    fn is_over(&self, frames: u64, begin: Option<Instant>) -> bool {
        let is_enough = self.frames != 0 && frames >= self.frames;
        is_enough || begin.is_some_and(|it| it.elapsed().as_secs_f64() >= self.seconds)
    }
}

/// Waits for the other end, then sends bursts until it is over; how many frames left.
fn send(device: &mut dyn Device, options: &Options) -> u64 {
    let plain = || {
        let mut frame = vec![0u8; usize::from(options.size)];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&device.info().mac);
        // An experimental type, without an answer.
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    };
    let frame = match &options.frame {
        Some(frame) => frame.0.clone(),
        None => plain(),
    };
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
            if !device.has_rx() {
                wait(device);
            }
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

/// Does the work of a device's first slot until the process ends.
fn keep(mut device: Box<dyn Device>) {
    loop {
        if device.rx(BUDGET, &mut |_: &[u8], _: RxMeta| {}) == 0 && !device.has_rx() {
            wait(&*device);
        }
    }
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
        // Without its core the run goes on where the kernel puts it.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    let slot = u16::from(options.to.is_some());
    let mut slots = Slots::of_kind(&options.device, &options.interface, slot + 1)?;
    if let Some(to) = options.to {
        let steering = slots.steering();
        steering.set_own(&[((*to.ip()).into(), 24)])?;
        steering.set_port(Transport::Udp, to.port(), Port::Slot(slot))?;
        steering.set_alive(slot, true)?;
        slots.install_ingress_drop()?;
    }
    let mut device = slots.adopt(slot, RingPosition::private())?;
    if slot != 0 && options.device.starts_with("memif") {
        // The first slot makes the link.
        let keeper = slots.adopt(0, RingPosition::private())?;
        std::thread::spawn(|| keep(keeper));
    }
    let mac = device.info().mac.map(|byte| format!("{byte:02x}"));
    println!("ready {}", mac.join(":"));
    let (frames, seconds, done) = match options.what {
        What::Send => {
            let begin = Instant::now();
            let sent = send(&mut *device, options);
            (sent, begin.elapsed().as_secs_f64(), "sent")
        }
        What::Receive => {
            let (frames, seconds) = receive(&mut *device, options);
            (frames, seconds, "received")
        }
    };
    let rate = frames as f64 / seconds.max(1e-9);
    let each = processor_ns() as f64 / frames.max(1) as f64;
    println!("{frames} frames {done}, {rate:.0} a second, {each:.0} ns each");
    Ok(())
}

/// Time that this process has had a processor.
fn processor_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec.unsigned_abs() * 1_000_000_000 + spent.tv_nsec.unsigned_abs()
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
