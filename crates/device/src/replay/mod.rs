//! A device that receives the frames of a capture file, for benchmarks and bug reports.
//!
//! `replay:FILE` delivers each frame at its recorded time after the first, `replay:FILE,fast` as
//! fast as frames are taken. Frames that the capture marks as sent are left out. Slot 1, the first
//! engine's, receives TCP and UDP, the keeper's slot all other frames; further engines receive
//! nothing. Sent frames are discarded, except ARP requests and neighbour solicitations, which are
//! answered.

mod reader;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde::{Deserialize, Serialize};
use slipstack_mem::{PrivateFd, RawSlice, now_ns};
use slipstack_wire::{RxMeta, TxOffload};

use crate::backend::{Backend, Capabilities, Description, DeviceKind, NO_INTERFACE, Opened};
use crate::device::{Device, DeviceCounters, DeviceInfo, LinkNotice, Sink, TxFull};
use crate::error::DeviceError;
use crate::null::{Answers, MAC, unlinked};
use crate::parts::{SlotParts, own_value};
use crate::position::RingPosition;
use crate::steering::Steering;
use reader::{Part, Recording};

/// The suffix that selects frames without their pauses.
const FAST: &str = ",fast";
/// The engine's slot that the frames go to.
const ENGINE_SLOT: u16 = 1;

/// Time from the opening of a slot to the first frame: the program that opens it binds its
/// sockets by then.
const START_NS: u64 = 50_000_000;

/// The row of the table.
pub(crate) struct Replay;

/// The back end's own part of a slot's parameters.
#[derive(Debug, Serialize, Deserialize)]
struct ReplayParams {
    /// `None`: the slot receives nothing.
    part: Option<Part>,
    is_fast: bool,
}

impl Backend for Replay {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "replay",
            title: "replay",
            usage: "replay:FILE[,fast] (delivers the frames of a pcapng or pcap capture)",
            takes_path: true,
            default_interface: Some("replay0"),
            capabilities: Capabilities::NONE,
        }
    }

    fn open(
        &self,
        description: &Description<'_>,
        _steering: &Steering,
    ) -> Result<Opened, DeviceError> {
        let path = description.argument.unwrap_or_default();
        let (path, is_fast) = match path.strip_suffix(FAST) {
            Some(path) => (path, true),
            None => (path, false),
        };
        let unusable =
            |why: String| DeviceError::Unsuitable(format!("replay of \"{path}\": {why}"));
        if path.is_empty() {
            let needed = "the device \"replay\" needs a capture: replay:FILE";
            return Err(DeviceError::Unsuitable(needed.to_owned()));
        }
        let file = File::open(path).map_err(|error| unusable(error.to_string()))?;
        let mac = reader::destination(&file).map_err(unusable)?;
        let mut slots = Vec::new();
        for slot in 0..description.slots {
            let params = ReplayParams {
                part: match slot {
                    0 => Some(Part::Control),
                    ENGINE_SLOT => Some(Part::Data),
                    _ => None,
                },
                is_fast,
            };
            let copy = file
                .try_clone()
                .map_err(|error| unusable(error.to_string()))?;
            slots.push((vec![timer()?, copy.into()], own_value(&params)));
        }
        Ok(Opened {
            index: NO_INTERFACE,
            name: description.interface.to_owned(),
            link: unlinked(mac.unwrap_or(MAC)),
            slots,
            held: Vec::new(),
            needs_ingress_drop: false,
            mode: Some(if is_fast { "fast" } else { "timed" }.to_owned()),
            delivery: None,
        })
    }

    fn adopt(
        &self,
        parts: SlotParts,
        position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let params: ReplayParams = parts.params.own()?;
        let [timer, file] = SlotParts::descriptors(parts.fds)?;
        let recording = params
            .part
            .map(|part| Recording::open(&file.into(), part, position.load()));
        let mut slot = ReplaySlot {
            timer: timer.into(),
            info: parts.params.link.info(),
            recording,
            is_fast: params.is_fast,
            starts_ns: now_ns() + START_NS,
            began: None,
            position,
            answers: Answers::default(),
            counters: DeviceCounters::default(),
            has_complained: false,
        };
        slot.arm();
        Ok(Box::new(slot))
    }
}

fn timer() -> Result<OwnedFd, DeviceError> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|errno| DeviceError::System {
        doing: "creating a timer",
        source: errno.into(),
    })
}

struct ReplaySlot {
    /// Readable when a frame or an answer is due.
    timer: PrivateFd,
    info: DeviceInfo,
    /// `None`: there is nothing (more) to receive.
    recording: Option<Recording>,
    is_fast: bool,
    /// Nothing is given before.
    starts_ns: u64,
    /// Monotonic time, and time in the capture, of the first frame that was given.
    began: Option<(u64, u64)>,
    /// Number of frames that have been given.
    position: RingPosition,
    answers: Answers,
    counters: DeviceCounters,
    /// The operator has been told what is wrong with the capture.
    has_complained: bool,
}

impl ReplaySlot {
    /// Time at which the next frame is to be given; `None`: there is none.
    fn due_ns(&self, now: u64) -> Option<u64> {
        let next = self.recording.as_ref()?.next_at_ns()?;
        let now = now.max(self.starts_ns);
        if self.is_fast {
            return Some(now);
        }
        let (began, first) = self.began.unwrap_or((now, next));
        Some(began.saturating_add(next.saturating_sub(first)))
    }

    /// Has the timer wake a sleeper when something is due.
    fn arm(&mut self) {
        let now = now_ns();
        let due = match self.answers.is_empty() {
            true => self.due_ns(now),
            false => Some(now),
        };
        // Zero would disarm it.
        let at = due.map_or(0, |at| at.max(1));
        let timing = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: (at / 1_000_000_000).cast_signed(),
                tv_nsec: (at % 1_000_000_000).cast_signed(),
            },
        };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timing);
    }

    fn give(&mut self, now: u64, sink: &mut dyn Sink) -> bool {
        if let Some(answer) = self.answers.next() {
            sink.frame(&answer, RxMeta::UNKNOWN);
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += answer.len() as u64;
            return true;
        }
        if self.due_ns(now).is_none_or(|due| due > now) {
            return false;
        }
        let Some(recording) = &mut self.recording else {
            return false;
        };
        if let Some(first) = recording.next_at_ns() {
            self.began.get_or_insert((now, first));
        }
        sink.frame(recording.frame(), RxMeta::UNKNOWN);
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += recording.frame().len() as u64;
        self.position.store(self.position.load().wrapping_add(1));
        recording.advance();
        true
    }
}

impl Device for ReplaySlot {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let now = now_ns();
        let done = (0..budget).take_while(|_| self.give(now, sink)).count();
        if done > 0 {
            self.arm();
        }
        done
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        _offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.counters.tx_frames += 1;
        let len = header.len() + payload[0].len() + payload[1].len();
        self.counters.tx_bytes += len as u64;
        if self.answers.hear(header, payload) {
            self.arm();
        }
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    fn take_notice(&mut self) -> Option<LinkNotice> {
        let recording = self.recording.as_ref().filter(|_| !self.has_complained);
        let complaint = recording.and_then(Recording::complaint);
        self.has_complained |= complaint.is_some();
        complaint.map(LinkNotice::from)
    }

    fn has_rx(&self) -> bool {
        let now = now_ns();
        !self.answers.is_empty() || self.due_ns(now).is_some_and(|due| due <= now)
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
