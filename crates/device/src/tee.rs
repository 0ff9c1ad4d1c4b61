//! A device that writes what passes through it to a capture file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use slipstack_mem::RawSlice;
use slipstack_wire::{PartialChecksum, RxChecksum, RxMeta, TxOffload};

use crate::capture::{Capture, Direction};
use crate::device::{Device, DeviceCounters, DeviceInfo, Sink, TxFull};
use crate::loopback::gather;

/// Gone after the first write that fails: a full disk must not stop the network.
type Recorder = Option<Capture<BufWriter<File>>>;

/// A device with a capture of what it receives and sends.
pub struct Tee<D: Device> {
    device: D,
    capture: Recorder,
}

impl<D: Device> Tee<D> {
    /// # Errors
    /// The file cannot be made.
    pub fn create(device: D, path: &Path, interface: &str) -> io::Result<Tee<D>> {
        let file = File::from(slipstack_mem::raised(File::create(path)?.into()));
        let capture = Capture::new(BufWriter::new(file), interface)?;
        Ok(Tee {
            device,
            capture: Some(capture),
        })
    }
}

fn record(capture: &mut Recorder, way: Direction, bytes: &[u8]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    if let Some(open) = capture
        && open.frame(now.unwrap_or_default(), way, bytes).is_err()
    {
        *capture = None;
    }
}

/// Records on the way to the sink; large frames come as a whole.
struct Recorded<'a> {
    capture: &'a mut Recorder,
    sink: &'a mut dyn Sink,
}

impl Sink for Recorded<'_> {
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        match PartialChecksum::of_frame(frame) {
            Some(partial) if meta.checksum == RxChecksum::Partial => {
                let mut whole = frame.to_vec();
                partial.complete(&mut whole, []);
                record(self.capture, Direction::Inbound, &whole);
            }
            _ => record(self.capture, Direction::Inbound, frame),
        }
        self.sink.frame(frame, meta);
    }

    fn clock_ns(&self) -> Option<u64> {
        self.sink.clock_ns()
    }
}

impl<D: Device> Device for Tee<D> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let capture = &mut self.capture;
        self.device.rx(budget, &mut Recorded { capture, sink })
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.device.tx(header, payload, offload)?;
        let mut whole = gather(header, payload);
        if let Some(partial) = offload.checksum {
            partial.complete(&mut whole, []);
        }
        record(&mut self.capture, Direction::Outbound, &whole);
        Ok(())
    }

    fn flush(&mut self) {
        self.device.flush();
        let capture = self.capture.as_mut();
        if capture.is_some_and(|capture| capture.flush().is_err()) {
            self.capture = None;
        }
    }

    fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx()
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
