//! Reads the frames of a capture one by one, of either format (pcapng, pcap). The file is not
//! trusted: an invalid block ends it.

use std::fs::File;
use std::io::{self, BufReader, Read};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use serde::{Deserialize, Serialize};
use slipstack_mem::PrivateFd;
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::protocol;

/// `epb_flags`, bits 0 and 1: the frame was sent.
const OUTBOUND: u32 = 2;
const DIRECTION: u32 = 3;
/// Frames that are searched for our link-layer address.
const LOOK_MAX: usize = 4096;
const NS_PER_S: u128 = 1_000_000_000;
/// Resolution of pcapng's timestamps where an interface tells none: microseconds.
const RESOLUTION_DEFAULT: u8 = 6;
/// In `if_tsresol`: the resolution is a power of two.
const RESOLUTION_BINARY: u8 = 1 << 7;

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
    file: PrivateFd,
    at: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = rustix::io::pread(&self.file, buffer, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

type Source = BufReader<FileReader>;

/// A capture of either format.
enum Frames {
    Blocks(PcapNgReader<Source>),
    Records(PcapReader<Source>),
}

/// The next block of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A frame that was received at this time.
    Frame(u64),
    /// A frame that is not Ethernet's, or whose end was not captured.
    Unfit,
    /// A frame that was sent, or a block without one.
    Nothing,
    End,
    /// The file is over in the middle of a block, or goes on with something else.
    Broken,
}

impl Frames {
    fn open(file: &File) -> Result<Frames, String> {
        let source = || -> Result<Source, String> {
            let file = file.try_clone().map_err(|error| error.to_string())?;
            let file = PrivateFd::of_engine(file.into());
            Ok(BufReader::new(FileReader { file, at: 0 }))
        };
        if let Ok(blocks) = PcapNgReader::new(source()?) {
            return Ok(Frames::Blocks(blocks));
        }
        let records = PcapReader::new(source()?);
        let records = records.map_err(|_| "it is neither a pcapng nor a pcap file".to_owned())?;
        match records.header().datalink {
            DataLink::ETHERNET => Ok(Frames::Records(records)),
            other => Err(foreign(other)),
        }
    }

    /// Takes the next block; the bytes of a frame are in `frame`.
    fn next(&mut self, frame: &mut Vec<u8>) -> Next {
        let next = match self {
            Frames::Blocks(blocks) => next_block(blocks, frame),
            Frames::Records(records) => next_record(records, frame),
        };
        match next {
            None => Next::End,
            Some(next) => next.unwrap_or(Next::Broken),
        }
    }

    /// Takes blocks up to the next frame that was received, or the end.
    fn next_received(&mut self, frame: &mut Vec<u8>) -> Next {
        loop {
            let next = self.next(frame);
            if !matches!(next, Next::Unfit | Next::Nothing) {
                return next;
            }
        }
    }

    /// The link of the first interface, if it is not Ethernet. It is known with the first packet.
    fn foreign_link(&self) -> Option<DataLink> {
        let Frames::Blocks(blocks) = self else {
            return None;
        };
        let mut links = blocks.interfaces().iter().map(|it| it.linktype);
        links.next().filter(|link| *link != DataLink::ETHERNET)
    }
}

fn foreign(link: DataLink) -> String {
    format!(
        "its frames are not Ethernet's ({link:?}): capture on an Ethernet interface, not on any"
    )
}

fn next_record(
    records: &mut PcapReader<Source>,
    frame: &mut Vec<u8>,
) -> Option<Result<Next, PcapError>> {
    let unit = match records.header().ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    let record = match records.next_raw_packet()? {
        Ok(record) => record,
        Err(error) => return Some(Err(error)),
    };
    if record.incl_len < record.orig_len {
        return Some(Ok(Next::Unfit));
    }
    frame.clear();
    frame.extend_from_slice(&record.data);
    let second = u64::from(record.ts_sec) * 1_000_000_000;
    Some(Ok(Next::Frame(second + u64::from(record.ts_frac) * unit)))
}

fn next_block(
    blocks: &mut PcapNgReader<Source>,
    frame: &mut Vec<u8>,
) -> Option<Result<Next, PcapError>> {
    let (interface, ticks) = match blocks.next_block()? {
        Err(error) => return Some(Err(error)),
        Ok(Block::EnhancedPacket(packet)) => {
            if was_sent(&packet) {
                return Some(Ok(Next::Nothing));
            }
            if (packet.data.len() as u64) < u64::from(packet.original_len) {
                return Some(Ok(Next::Unfit));
            }
            frame.clear();
            frame.extend_from_slice(&packet.data);
            // The reader takes the ticks of any resolution for nanoseconds.
            (packet.interface_id, packet.timestamp.as_nanos())
        }
        Ok(_) => return Some(Ok(Next::Nothing)),
    };
    Some(Ok(match blocks.interfaces().get(interface as usize) {
        Some(it) if it.linktype == DataLink::ETHERNET => Next::Frame(nanoseconds(it, ticks)),
        _ => Next::Unfit,
    }))
}

fn was_sent(packet: &EnhancedPacketBlock<'_>) -> bool {
    packet.options.iter().any(|option| {
        matches!(option, EnhancedPacketOption::Flags(flags) if flags & DIRECTION == OUTBOUND)
    })
}

/// A timestamp of an interface in nanoseconds.
fn nanoseconds(interface: &InterfaceDescriptionBlock<'_>, ticks: u128) -> u64 {
    let told = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = told.unwrap_or(RESOLUTION_DEFAULT);
    let exponent = u32::from(resolution & !RESOLUTION_BINARY);
    let per_second = match resolution & RESOLUTION_BINARY {
        0 => 10u128.checked_pow(exponent),
        _ => 1u128.checked_shl(exponent),
    };
    let ns = ticks.saturating_mul(NS_PER_S) / per_second.unwrap_or(u128::MAX);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// The first address of one station that a frame was for: ours, as the capture has it.
///
/// # Errors
/// The file is no capture of frames that were received on an Ethernet.
pub(super) fn destination(file: &File) -> Result<Option<[u8; 6]>, String> {
    let mut frames = Frames::open(file)?;
    let mut frame = Vec::new();
    for looked in 0..LOOK_MAX {
        if !matches!(frames.next_received(&mut frame), Next::Frame(_)) {
            return match (looked, frames.foreign_link()) {
                (0, Some(link)) => Err(foreign(link)),
                (0, None) => Err("it has no whole frame that was received".to_owned()),
                _ => Ok(None),
            };
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
    /// The file ended in the middle of a block.
    is_broken: bool,
    /// Frames that were left out because they are not Ethernet's, or not whole.
    unfit: u64,
}

impl Recording {
    /// From the frame of this number on.
    pub(super) fn open(file: &File, part: Part, from: u32) -> Recording {
        let mut recording = Recording {
            frames: Frames::open(file).ok(),
            part,
            at_ns: None,
            frame: Vec::new(),
            is_broken: false,
            unfit: 0,
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

    /// Returns a sentence for the operator if anything was wrong with a capture that is over.
    pub(super) fn complaint(&self) -> Option<String> {
        if self.frames.is_some() {
            return None;
        }
        let unfit = (self.unfit > 0).then(|| {
            format!(
                "{} of its frames were left out: they are cut off, or not Ethernet's",
                self.unfit
            )
        });
        let broken = self
            .is_broken
            .then(|| "it ends in the middle of a block".to_owned());
        let told: Vec<String> = broken.into_iter().chain(unfit).collect();
        (!told.is_empty()).then(|| format!("the replayed capture: {}", told.join("; ")))
    }

    pub(super) fn advance(&mut self) {
        self.at_ns = None;
        while let Some(frames) = &mut self.frames {
            match frames.next(&mut self.frame) {
                Next::Frame(at) if Part::of(&self.frame) == self.part => {
                    self.at_ns = Some(at);
                    return;
                }
                Next::Frame(_) | Next::Nothing => {}
                Next::Unfit => self.unfit += 1,
                Next::End => self.frames = None,
                Next::Broken => (self.frames, self.is_broken) = (None, true),
            }
        }
    }
}
