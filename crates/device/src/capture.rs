//! Capture files: pcapng with the interface's name, nanoseconds and each frame's direction.
//!
//! Super-frames appear whole, as in captures on a Linux host. Checksums that were left to the
//! device, by us or by a sender on this machine, are filled in, as on the wire.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};

/// Most bytes of a frame that are kept.
pub const SNAPLEN_MAX: u32 = 262_144;
/// `if_tsresol`: 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

/// Direction of a frame (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Inbound = 1,
    Outbound = 2,
}

/// Writes frames with the time at which they pass.
pub struct Capture<W: Write> {
    writer: PcapNgWriter<W>,
    snaplen: u32,
}

impl<W: Write> Capture<W> {
    /// # Errors
    /// The file cannot be written to.
    pub fn new(out: W, interface: &str, snaplen: u32) -> io::Result<Capture<W>> {
        let mut writer = PcapNgWriter::new(out).map_err(io_error)?;
        let description = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(interface.to_owned())),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        writer.write_pcapng_block(description).map_err(io_error)?;
        Ok(Capture { writer, snaplen })
    }

    /// Writes a frame and returns the bytes that it took. `since_epoch` is wall-clock time:
    /// captures of both sides can be laid side by side.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub fn frame(
        &mut self,
        since_epoch: Duration,
        way: Direction,
        bytes: &[u8],
    ) -> io::Result<usize> {
        let kept = &bytes[..bytes.len().min(self.snaplen as usize)];
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: since_epoch,
            original_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(kept),
            options: vec![EnhancedPacketOption::Flags(way as u32)],
        };
        self.writer.write_pcapng_block(block).map_err(io_error)
    }

    /// # Errors
    /// The file cannot be written to.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn a_capture_names_its_interface_and_each_frames_direction() {
        let mut bytes = Vec::new();
        let mut capture = Capture::new(&mut bytes, "eth7", SNAPLEN_MAX).unwrap();
        let at = Duration::from_nanos(1_000_000_007);
        capture.frame(at, Direction::Inbound, &[0xab; 61]).unwrap();
        capture.frame(at, Direction::Outbound, &[0xcd; 60]).unwrap();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut flags = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(it) => {
                    let name = InterfaceDescriptionOption::IfName("eth7".into());
                    assert!(it.options.contains(&name));
                }
                Block::EnhancedPacket(it) => {
                    assert_eq!(it.timestamp, at);
                    let way = it.options.iter().find_map(|option| match option {
                        EnhancedPacketOption::Flags(flags) => Some(*flags),
                        _ => None,
                    });
                    flags.push((way.unwrap(), it.data.len()));
                }
                _ => {}
            }
        }
        assert_eq!(flags, [(1, 61), (2, 60)]);
    }
}
