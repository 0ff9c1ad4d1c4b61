//! A recording of everything that hosts sent and received.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use slipstack_stack::Instant;

/// Frames as the hosts sent them; the link's effect shows in the answers.
pub struct Recorder {
    writer: PcapWriter<BufWriter<File>>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    pub fn create(path: &Path) -> io::Result<Self> {
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let file = BufWriter::new(File::create(path)?);
        let writer = PcapWriter::with_header(file, header).map_err(io::Error::other)?;
        Ok(Self { writer })
    }

    /// A frame that cannot be written is left out: the run matters more than its record.
    pub fn record(&mut self, at: Instant, frame: &[u8]) {
        let packet = PcapPacket::new(Duration::from_nanos(at.0), frame.len() as u32, frame);
        self.writer.write_packet(&packet).ok();
    }
}
