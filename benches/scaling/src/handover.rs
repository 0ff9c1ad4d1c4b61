//! The cost of handing a frame to the engine that owns it: the giver's copy into the inbox and the
//! taker's copy out of it, in bursts.

use std::hint::black_box;

use slipstack_channel::{INBOX_CELLS, InboxMessage};
use slipstack_mem::{Doorbell, InboxReader, MpscInbox, Region, now_ns};

use crate::server::Failure;

/// Frames of a burst.
const BURST: usize = 64;
/// Rounds of which the quickest counts: others have the processor too.
const ROUNDS: usize = 50;

/// The two sides of an inbox, and a frame.
struct Handover {
    inbox: MpscInbox,
    bell: Doorbell,
    reader: InboxReader,
    frame: Vec<u8>,
    out: Vec<u8>,
}

impl Handover {
    fn new(size: usize) -> Result<Handover, Failure> {
        let region = Region::create("handover", MpscInbox::bytes(INBOX_CELLS))?;
        let inbox = MpscInbox::new(&region, 0, INBOX_CELLS).ok_or("no inbox")?;
        Ok(Handover {
            reader: InboxReader::new(inbox.clone()),
            inbox,
            bell: Doorbell::new()?,
            frame: vec![7; size],
            out: vec![0; MpscInbox::FRAME_MAX],
        })
    }

    #[inline(never)]
    fn hand_over_burst(&self) -> bool {
        (0..BURST).all(|_| {
            let message = InboxMessage::Frame {
                link: 0,
                frame: black_box(&self.frame),
            };
            let is_taken = message.put(|parts| self.inbox.push(parts));
            if self.inbox.take_sleeping() {
                self.bell.ring();
            }
            is_taken
        })
    }

    #[inline(never)]
    fn take_burst(&mut self) -> usize {
        let mut taken = 0;
        while let Some(len) = self.reader.pop(0, &mut self.out) {
            if let Ok(InboxMessage::Frame { frame, .. }) = InboxMessage::parse(&self.out[..len]) {
                taken += usize::from(black_box(frame).len() == self.frame.len());
            }
        }
        taken
    }

    fn bursts(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            if !self.hand_over_burst() || self.take_burst() != BURST {
                return Err("a frame got lost".into());
            }
        }
        Ok(())
    }
}

/// Prints nanoseconds for each frame of `size` bytes, of both sides together.
pub fn run(size: usize, bursts: usize) -> Result<(), Failure> {
    let mut handover = Handover::new(size)?;
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        let begun = now_ns();
        handover.bursts(bursts)?;
        least = least.min(now_ns() - begun);
    }
    let frames = (bursts * BURST).max(1);
    println!(
        "{:.1} ns a frame of {size} bytes",
        least as f64 / frames as f64
    );
    Ok(())
}
