//! A device that writes what passes through it to a capture file (pcap, nanoseconds, Ethernet).
//!
//! Super-frames appear whole, as captures on a Linux host show them; a frame whose checksum is
//! left to the device appears with the partial sum.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use slipstack_mem::RawSlice;
use slipstack_wire::{RxMeta, TxOffload};

use crate::device::{Device, DeviceCounters, DeviceInfo, TxFull};
use crate::loopback::gather;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAPLEN: u32 = 262_144;

/// Writes frames with the time at which they pass.
#[derive(Debug)]
pub struct Capture<W: Write> {
    out: W,
}

impl<W: Write> Capture<W> {
    pub fn new(mut out: W) -> io::Result<Capture<W>> {
        let mut header = Vec::with_capacity(24);
        header.extend_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
        header.extend_from_slice(&2u16.to_le_bytes());
        header.extend_from_slice(&4u16.to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&SNAPLEN.to_le_bytes());
        header.extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        out.write_all(&header)?;
        Ok(Capture { out })
    }

    /// `since_epoch_ns` is wall-clock time: captures of both sides can be laid side by side.
    pub fn frame(&mut self, since_epoch_ns: u128, bytes: &[u8]) -> io::Result<()> {
        let seconds = (since_epoch_ns / 1_000_000_000) as u32;
        let nanoseconds = (since_epoch_ns % 1_000_000_000) as u32;
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        for word in [seconds, nanoseconds, len.min(SNAPLEN), len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&bytes[..len.min(SNAPLEN) as usize])
    }
}

/// A device with a capture of what it receives and sends.
#[derive(Debug)]
pub struct Tee<D: Device> {
    device: D,
    /// Gone after the first write that fails: a full disk must not stop the network.
    capture: Option<Capture<BufWriter<File>>>,
}

impl<D: Device> Tee<D> {
    pub fn create(device: D, path: &Path) -> io::Result<Tee<D>> {
        let file = File::from(slipstack_mem::raised(File::create(path)?.into()));
        let capture = Capture::new(BufWriter::new(file))?;
        Ok(Tee {
            device,
            capture: Some(capture),
        })
    }
}

fn record(capture: &mut Option<Capture<BufWriter<File>>>, bytes: &[u8]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    if let Some(open) = capture
        && open.frame(now, bytes).is_err()
    {
        *capture = None;
    }
}

impl<D: Device> Device for Tee<D> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn rx(&mut self, budget: usize, on_frame: &mut dyn FnMut(&[u8], RxMeta)) -> usize {
        let capture = &mut self.capture;
        self.device.rx(budget, &mut |frame, meta| {
            record(capture, frame);
            on_frame(frame, meta);
        })
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.device.tx(header, payload, offload)?;
        record(&mut self.capture, &gather(header, payload));
        Ok(())
    }

    fn flush(&mut self) {
        self.device.flush();
        let capture = self.capture.as_mut();
        if capture.is_some_and(|capture| capture.out.flush().is_err()) {
            self.capture = None;
        }
    }

    fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx()
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
    use super::*;

    #[test]
    fn a_capture_has_the_global_header_and_one_record_per_frame() {
        let mut bytes = Vec::new();
        let mut capture = Capture::new(&mut bytes).unwrap();
        capture.frame(1_000_000_007, &[0xab; 60]).unwrap();
        assert_eq!(bytes.len(), 24 + 16 + 60);
        assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_le_bytes());
        assert_eq!(bytes[24..28], 1u32.to_le_bytes());
        assert_eq!(bytes[28..32], 7u32.to_le_bytes());
        assert_eq!(bytes[36..40], 60u32.to_le_bytes());
    }
}
