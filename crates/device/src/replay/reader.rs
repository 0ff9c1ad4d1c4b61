//! Reads the frames of a pcapng file one by one. The file is not trusted: an invalid block ends it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde::{Deserialize, Serialize};
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::protocol;

/// `epb_flags`, bits 0 and 1: the frame was sent.
const OUTBOUND: u32 = 2;
const DIRECTION: u32 = 3;
/// Frames that are searched for our link-layer address.
const LOOK_MAX: usize = 4096;

/// Which frames a slot gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// TCP and UDP.
    Data,
    /// The rest.
    Control,
}

impl Part {
    fn of(frame: &[u8]) -> Part {
        match FrameFlow::parse(frame).map(|flow| flow.protocol) {
            Some(protocol::TCP | protocol::UDP) => Part::Data,
            _ => Part::Control,
        }
    }
}

/// Reads a file that others read too, each at a place of its own.
struct FileReader {
    file: File,
    at: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buffer, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

type Frames = PcapNgReader<BufReader<FileReader>>;

fn frames(file: File) -> Option<Frames> {
    PcapNgReader::new(BufReader::new(FileReader { file, at: 0 })).ok()
}

/// The time of the next frame that was received, and its bytes in `frame`.
fn next_frame(frames: &mut Frames, frame: &mut Vec<u8>) -> Option<u64> {
    loop {
        let Block::EnhancedPacket(packet) = frames.next_block()?.ok()? else {
            continue;
        };
        let was_sent = packet.options.iter().any(|option| {
            matches!(option, EnhancedPacketOption::Flags(flags) if flags & DIRECTION == OUTBOUND)
        });
        if !was_sent {
            frame.clear();
            frame.extend_from_slice(&packet.data);
            return Some(u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX));
        }
    }
}

/// The first address of one station that a frame was for: ours, as the capture has it.
pub(super) fn destination(file: &File) -> Result<Option<[u8; 6]>, String> {
    let copy = file.try_clone().map_err(|error| error.to_string())?;
    let mut frames = frames(copy).ok_or("it is not a pcapng file")?;
    let mut frame = Vec::new();
    for _ in 0..LOOK_MAX {
        if next_frame(&mut frames, &mut frame).is_none() {
            break;
        }
        if let Some(mac) = frame.first_chunk::<6>()
            && mac[0] & 1 == 0
        {
            return Ok(Some(*mac));
        }
    }
    Ok(None)
}

/// One slot's frames, the next of which is at hand.
pub(super) struct Recording {
    frames: Option<Frames>,
    part: Part,
    /// Time of the frame at hand; `None`: the file is over.
    at_ns: Option<u64>,
    frame: Vec<u8>,
}

impl Recording {
    /// From the frame of this number on.
    pub(super) fn open(file: File, part: Part, from: u32) -> Recording {
        let mut recording = Recording {
            frames: frames(file),
            part,
            at_ns: None,
            frame: Vec::new(),
        };
        recording.advance();
        for _ in 0..from {
            recording.advance();
        }
        recording
    }

    /// Arrival time of the present frame, by the capture; `None` if there is none.
    pub(super) fn next_at_ns(&self) -> Option<u64> {
        self.at_ns
    }

    /// The frame at hand.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    pub(super) fn advance(&mut self) {
        self.at_ns = None;
        while let Some(frames) = &mut self.frames {
            match next_frame(frames, &mut self.frame) {
                None => self.frames = None,
                Some(at) if Part::of(&self.frame) == self.part => {
                    self.at_ns = Some(at);
                    return;
                }
                Some(_) => {}
            }
        }
    }
}
