//! A device whose frames a program sees before the stack does.

use std::os::fd::RawFd;

use slipstack_mem::RawSlice;
use slipstack_wire::{PartialChecksum, RxChecksum, RxMeta, TxOffload};

use crate::device::{Device, DeviceCounters, DeviceInfo, Sink, TxFull};

/// The decision about a frame that the program has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The stack gets it, as the program has left it.
    Pass,
    Drop,
    /// It goes back out.
    Answer,
}

/// The program that sees frames. Each device has its own.
pub trait FrameHook: Send {
    /// Whether it wants to.
    fn is_on(&mut self) -> bool;

    /// Whether it may be called on this thread; frames wait otherwise.
    fn may_run_here(&self) -> bool;

    /// A frame from its Ethernet header on, with its checksums filled in. The program may change
    /// it.
    fn on_frame(&mut self, frame: &mut Vec<u8>) -> Verdict;

    /// All frames of a run have been shown.
    fn on_run_end(&mut self) {}

    /// Whether frames that the program has kept are done with.
    fn has_done(&self) -> bool {
        false
    }

    /// Gives up to `most` of these to `take`, with what becomes of each; returns how many.
    fn take_done(&mut self, _most: usize, _take: &mut dyn FnMut(&[u8], Verdict)) -> usize {
        0
    }

    /// The next frame that the program wants sent.
    fn next_outgoing(&mut self) -> Option<Vec<u8>>;

    /// Reports the device's counters.
    fn on_counters(&mut self, counters: &DeviceCounters);
}

/// Answers of one run that wait for it to end, at most; others are dropped.
const ANSWERS_MAX: usize = 1024;
/// Frames that the program had kept, of one run.
const DONE_MAX: usize = 256;

/// A device with such a program.
pub struct Hooked<D: Device> {
    device: D,
    hook: Box<dyn FrameHook>,
    scratch: Vec<u8>,
    answers: Vec<Vec<u8>>,
    /// Frames that were answers, to be filled again.
    spare: Vec<Vec<u8>>,
}

impl<D: Device> Hooked<D> {
    pub fn new(device: D, hook: Box<dyn FrameHook>) -> Self {
        Hooked {
            device,
            hook,
            scratch: Vec::new(),
            answers: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn send_own(&mut self) {
        for answer in self.answers.drain(..) {
            let _ = send(&mut self.device, &answer);
            self.spare.push(answer);
        }
        while let Some(frame) = self.hook.next_outgoing() {
            let _ = send(&mut self.device, &frame);
        }
    }

    /// Sends, or shows to the stack, what the program had kept.
    fn take_done(&mut self, sink: &mut dyn Sink) -> usize {
        let device = &mut self.device;
        let mut take = |frame: &[u8], verdict| match verdict {
            Verdict::Pass => sink.frame(frame, RxMeta::UNKNOWN),
            Verdict::Answer => _ = send(device, frame),
            Verdict::Drop => {}
        };
        self.hook.take_done(DONE_MAX, &mut take)
    }
}

fn send(device: &mut impl Device, frame: &[u8]) -> Result<(), TxFull> {
    let sent = device.tx(frame, [RawSlice::EMPTY; 2], TxOffload::NONE);
    if sent.is_ok() {
        return sent;
    }
    device.flush();
    device.tx(frame, [RawSlice::EMPTY; 2], TxOffload::NONE)
}

/// Shows frames on their way to the stack; large ones come as a whole.
struct Shown<'a> {
    hook: &'a mut dyn FrameHook,
    sink: &'a mut dyn Sink,
    scratch: &'a mut Vec<u8>,
    answers: &'a mut Vec<Vec<u8>>,
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
        match self.hook.on_frame(self.scratch) {
            Verdict::Pass => self.sink.frame(self.scratch, meta),
            Verdict::Answer if self.answers.len() < ANSWERS_MAX => {
                let next = self.spare.pop().unwrap_or_default();
                self.answers.push(std::mem::replace(self.scratch, next));
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

    fn flush(&mut self) {
        self.send_own();
        self.device.flush();
        self.hook.on_counters(&self.device.counters());
    }

    fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.device.descriptors()
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx() || self.hook.has_done()
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        self.device.waiting_since_ns()
    }

    fn tx_pending(&self) -> bool {
        self.device.tx_pending()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::loopback::pair;

    /// Answers frames that begin with 1, drops those with 2, keeps those with 4 and 5 for a run:
    /// the first is an answer then, the other the stack's.
    #[derive(Default)]
    struct Program {
        outgoing: Arc<Mutex<Vec<Vec<u8>>>>,
        kept: Vec<Vec<u8>>,
    }

    impl FrameHook for Program {
        fn is_on(&mut self) -> bool {
            true
        }

        fn may_run_here(&self) -> bool {
            true
        }

        fn on_frame(&mut self, frame: &mut Vec<u8>) -> Verdict {
            match frame[0] {
                1 => {
                    frame[0] = 9;
                    Verdict::Answer
                }
                2 => Verdict::Drop,
                4 | 5 => {
                    self.kept.push(frame.clone());
                    Verdict::Drop
                }
                _ => Verdict::Pass,
            }
        }

        fn take_done(&mut self, most: usize, take: &mut dyn FnMut(&[u8], Verdict)) -> usize {
            let kept: Vec<Vec<u8>> = self.kept.drain(..).take(most).collect();
            for frame in &kept {
                let is_answer = frame[0] == 4;
                take(
                    frame,
                    [Verdict::Pass, Verdict::Answer][usize::from(is_answer)],
                );
            }
            kept.len()
        }

        fn next_outgoing(&mut self) -> Option<Vec<u8>> {
            self.outgoing.lock().unwrap().pop()
        }

        fn on_counters(&mut self, _: &DeviceCounters) {}
    }

    #[test]
    fn a_frame_is_passed_dropped_or_answered() {
        let (mut peer, device) = pair(1500).unwrap();
        let program = Program::default();
        let outgoing = Arc::clone(&program.outgoing);
        let mut device = Hooked::new(device, Box::new(program));
        for first in [1, 2, 3, 4, 5] {
            send(&mut peer, &[first; 60]).unwrap();
        }
        peer.flush();
        outgoing.lock().unwrap().push(vec![7; 60]);
        let mut passed = Vec::new();
        device.rx(16, &mut |frame: &[u8], _: RxMeta| passed.push(frame[0]));
        device.flush();
        let mut back = Vec::new();
        peer.rx(16, &mut |frame: &[u8], _: RxMeta| back.push(frame[0]));
        assert_eq!((passed, back), (vec![3, 5], vec![9, 7, 4]));
    }
}
