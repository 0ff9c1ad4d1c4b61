//! A device wrapper that shows frames to the program before the stack.

use slipstack_mem::RawSlice;
use slipstack_terms::LinkTags;
pub use slipstack_wire::LinkId;
use slipstack_wire::{PartialChecksum, RxChecksum, RxMeta, TxOffload};

use crate::device::{Device, DeviceCounters, DeviceInfo, Sink, TxFull, pass_on};

/// The decision about a frame that the program has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The stack gets it, as the program has left it.
    Pass,
    Drop,
    /// The frame goes back out.
    Answer,
}

/// Takes a frame that the program had kept.
pub type TakeDone<'a> = dyn FnMut(&[u8], LinkId, Verdict) + 'a;

/// The program that sees frames. Each device has its own.
pub trait FrameHook: Send {
    /// Returns whether it wants to.
    fn is_on(&mut self) -> bool;

    /// Returns whether it may be called on this thread; frames wait otherwise.
    fn may_run_here(&self) -> bool;

    /// Handles a frame from its Ethernet header on, with its checksums filled in, and its link, to
    /// which an answer goes. The program may change the frame.
    fn on_frame(&mut self, frame: &mut Vec<u8>, link: LinkId) -> Verdict;

    /// All frames of a run have been shown.
    fn on_run_end(&mut self) {}

    /// Returns whether frames that the program has kept are done with.
    fn has_done(&self) -> bool {
        false
    }

    /// Passes up to `most` finished frames to `take`, with their links and verdicts; returns how
    /// many.
    fn take_done(&mut self, _most: usize, _take: &mut TakeDone<'_>) -> usize {
        0
    }

    /// The next frame that the program wants sent, and by which link.
    fn next_outgoing(&mut self) -> Option<(LinkId, Vec<u8>)>;

    /// Reports the device's counters.
    fn on_counters(&mut self, counters: &DeviceCounters);
}

/// Answers of one run that wait for it to end, at most; others are dropped.
const ANSWERS_MAX: usize = 1024;
/// Bytes of a frame that are sent as its header; the length does not matter otherwise.
const HEADER_LEN: usize = 60;
/// Turns with traffic after which the system is asked for losses: that is a call.
const ASKED_EVERY: u32 = 64;
/// Frames that the program had kept, of one run.
const DONE_MAX: usize = 256;

/// A device with such a program.
pub struct Hooked<D: Device> {
    device: D,
    hook: Box<dyn FrameHook>,
    scratch: Vec<u8>,
    answers: Vec<(LinkId, Vec<u8>)>,
    /// Frames that were answers, to be filled again.
    spare: Vec<Vec<u8>>,
    /// Frames received and sent when the hook was last given the counters.
    reported: (u64, u64),
    reports: u32,
}

impl<D: Device> Hooked<D> {
    pub fn new(device: D, hook: Box<dyn FrameHook>) -> Self {
        Hooked {
            device,
            hook,
            scratch: Vec::new(),
            answers: Vec::new(),
            spare: Vec::new(),
            reported: (0, 0),
            reports: 0,
        }
    }

    fn send_own(&mut self) {
        for (link, answer) in self.answers.drain(..) {
            let _ = send(&mut self.device, &answer, link);
            self.spare.push(answer);
        }
        while let Some((link, frame)) = self.hook.next_outgoing() {
            let _ = send(&mut self.device, &frame, link);
        }
    }

    fn report(&mut self, at_hand: &DeviceCounters) {
        self.reports = self.reports.wrapping_add(1);
        match self.reports.is_multiple_of(ASKED_EVERY) {
            true => self.hook.on_counters(&self.device.counters()),
            false => self.hook.on_counters(at_hand),
        }
    }

    /// Sends, or passes to the stack, frames that the program had kept.
    fn take_done(&mut self, sink: &mut dyn Sink) -> usize {
        let device = &mut self.device;
        let mut take = |frame: &[u8], link: LinkId, verdict| match verdict {
            Verdict::Pass => {
                let link = link.0;
                sink.frame(
                    frame,
                    RxMeta {
                        link,
                        ..RxMeta::UNKNOWN
                    },
                );
            }
            Verdict::Answer => _ = send(device, frame, link),
            Verdict::Drop => {}
        };
        self.hook.take_done(DONE_MAX, &mut take)
    }
}

fn send(device: &mut impl Device, frame: &[u8], link: LinkId) -> Result<(), TxFull> {
    // Devices that put a tag in have room for it in a short header.
    let (header, rest) = frame.split_at(frame.len().min(HEADER_LEN));
    let payload = [RawSlice::of(rest), RawSlice::EMPTY];
    let sent = device.tx(header, payload, TxOffload::on(link.0));
    if sent.is_ok() {
        return sent;
    }
    device.flush();
    device.tx(header, payload, TxOffload::on(link.0))
}

/// Shows frames on their way to the stack; large ones come as a whole.
struct Shown<'a> {
    hook: &'a mut dyn FrameHook,
    sink: &'a mut dyn Sink,
    scratch: &'a mut Vec<u8>,
    answers: &'a mut Vec<(LinkId, Vec<u8>)>,
    spare: &'a mut Vec<Vec<u8>>,
}

impl Sink for Shown<'_> {
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        self.scratch.clear();
        self.scratch.extend_from_slice(frame);
        let mut meta = meta;
        if meta.checksum == RxChecksum::Partial
            && let Some(partial) = PartialChecksum::of_frame(frame)
        {
            partial.complete(self.scratch, []);
            meta.checksum = RxChecksum::Unknown;
        }
        let link = LinkId(meta.link);
        match self.hook.on_frame(self.scratch, link) {
            Verdict::Pass => self.sink.frame(self.scratch, meta),
            Verdict::Answer if self.answers.len() < ANSWERS_MAX => {
                let next = self.spare.pop().unwrap_or_default();
                let answer = std::mem::replace(self.scratch, next);
                self.answers.push((link, answer));
            }
            Verdict::Answer | Verdict::Drop => {}
        }
    }

    fn clock_ns(&self) -> Option<u64> {
        self.sink.clock_ns()
    }
}

impl<D: Device> Device for Hooked<D> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        if !self.hook.is_on() {
            let count = self.device.rx(budget, sink);
            return match self.hook.has_done() {
                true => count + self.take_done(sink),
                false => count,
            };
        }
        if !self.hook.may_run_here() {
            return 0;
        }
        let mut shown = Shown {
            hook: &mut *self.hook,
            sink: &mut *sink,
            scratch: &mut self.scratch,
            answers: &mut self.answers,
            spare: &mut self.spare,
        };
        let count = self.device.rx(budget, &mut shown);
        self.hook.on_run_end();
        self.send_own();
        count + self.take_done(sink)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.device.tx(header, payload, offload)
    }

    fn interfaces(&self) -> Vec<u32> {
        self.device.interfaces()
    }

    fn replace(&mut self, device: Box<dyn Device>) -> Option<Box<dyn Device>> {
        self.device.replace(device)
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.device.set_vlans(vlans);
    }

    fn flush(&mut self) {
        self.send_own();
        self.device.flush();
        let counters = self.device.counters_at_hand();
        // A thread that polls runs turns without traffic.
        let frames = (counters.rx_frames, counters.tx_frames);
        if frames != self.reported {
            self.reported = frames;
            self.report(&counters);
        }
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx() || self.hook.has_done()
    }

    pass_on!(device);
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::loopback::pair;
    use crate::swap::Swap;

    type Frames = Vec<(LinkId, Vec<u8>)>;

    /// Answers frames that begin with 1, drops those with 2, keeps those with 4 and 5 for a run:
    /// the first is an answer then, the other the stack's.
    #[derive(Default)]
    struct Program {
        outgoing: Arc<Mutex<Frames>>,
        kept: Frames,
        reports: Arc<Mutex<u32>>,
    }

    impl FrameHook for Program {
        fn is_on(&mut self) -> bool {
            true
        }

        fn may_run_here(&self) -> bool {
            true
        }

        fn on_frame(&mut self, frame: &mut Vec<u8>, link: LinkId) -> Verdict {
            match frame[0] {
                1 => {
                    frame[0] = 9;
                    Verdict::Answer
                }
                2 => Verdict::Drop,
                4 | 5 => {
                    self.kept.push((link, frame.clone()));
                    Verdict::Drop
                }
                _ => Verdict::Pass,
            }
        }

        fn take_done(&mut self, most: usize, take: &mut TakeDone<'_>) -> usize {
            let kept: Frames = self.kept.drain(..).take(most).collect();
            for (link, frame) in &kept {
                let is_answer = frame[0] == 4;
                take(
                    frame,
                    *link,
                    [Verdict::Pass, Verdict::Answer][usize::from(is_answer)],
                );
            }
            kept.len()
        }

        fn next_outgoing(&mut self) -> Option<(LinkId, Vec<u8>)> {
            self.outgoing.lock().unwrap().pop()
        }

        fn on_counters(&mut self, _: &DeviceCounters) {
            *self.reports.lock().unwrap() += 1;
        }
    }

    #[test]
    fn a_frame_is_passed_dropped_or_answered() {
        let (mut peer, device) = pair(1500).unwrap();
        let program = Program::default();
        let outgoing = Arc::clone(&program.outgoing);
        let mut device = Hooked::new(device, Box::new(program));
        for first in [1, 2, 3, 4, 5] {
            send(&mut peer, &[first; 60], LinkId(0)).unwrap();
        }
        peer.flush();
        outgoing.lock().unwrap().push((LinkId(0), vec![7; 60]));
        let mut passed = Vec::new();
        device.rx(16, &mut |frame: &[u8], _: RxMeta| passed.push(frame[0]));
        device.flush();
        let mut back = Vec::new();
        peer.rx(16, &mut |frame: &[u8], _: RxMeta| back.push(frame[0]));
        assert_eq!((passed, back), (vec![3, 5], vec![9, 7, 4]));
    }

    /// A device whose frames arrive by links in turn, and that records the links of sent frames.
    #[derive(Default)]
    struct Links {
        sent: Arc<Mutex<Vec<(u8, u16)>>>,
        left: Vec<(u8, u16)>,
        /// Number of times that the counters were fetched.
        asked: Arc<Mutex<u32>>,
    }

    impl Device for Links {
        fn info(&self) -> DeviceInfo {
            pair(1500).unwrap().0.info()
        }

        fn rx(&mut self, _: usize, sink: &mut dyn Sink) -> usize {
            for (first, link) in self.left.drain(..) {
                sink.frame(
                    &[first; 60],
                    RxMeta {
                        link,
                        ..RxMeta::VERIFIED
                    },
                );
            }
            0
        }

        fn tx(
            &mut self,
            header: &[u8],
            _: [RawSlice<'_>; 2],
            offload: TxOffload,
        ) -> Result<(), TxFull> {
            self.sent.lock().unwrap().push((header[0], offload.link));
            Ok(())
        }

        fn flush(&mut self) {}

        fn poll_fd(&self) -> RawFd {
            -1
        }

        fn has_rx(&self) -> bool {
            !self.left.is_empty()
        }

        fn counters(&self) -> DeviceCounters {
            *self.asked.lock().unwrap() += 1;
            self.counters_at_hand()
        }

        fn counters_at_hand(&self) -> DeviceCounters {
            DeviceCounters {
                tx_frames: self.sent.lock().unwrap().len() as u64,
                ..DeviceCounters::default()
            }
        }
    }

    #[test]
    fn counters_are_reported_with_traffic_and_not_while_a_thread_polls() {
        let reports = Arc::new(Mutex::new(0));
        let program = Program {
            reports: Arc::clone(&reports),
            ..Program::default()
        };
        let links = Links::default();
        let asked = Arc::clone(&links.asked);
        let mut device = Hooked::new(Swap::new(Box::new(links)), Box::new(program));
        for turn in 0..100 {
            if turn % 50 == 10 {
                send(&mut device, &[1; 20], LinkId(0)).unwrap();
            }
            device.flush();
        }
        assert_eq!((*reports.lock().unwrap(), *asked.lock().unwrap()), (2, 0));
    }

    #[test]
    fn answers_leave_by_the_link_that_the_frame_came_by() {
        let device = Links {
            left: vec![(1, 7), (4, 0x1005), (5, 9)],
            ..Links::default()
        };
        let sent = Arc::clone(&device.sent);
        let mut device = Hooked::new(device, Box::new(Program::default()));
        let mut passed = Vec::new();
        device.rx(16, &mut |frame: &[u8], meta: RxMeta| {
            passed.push((frame[0], meta.link))
        });
        assert_eq!(passed, [(5, 9)]);
        assert_eq!(*sent.lock().unwrap(), [(9, 7), (4, 0x1005)]);
    }
}
