//! A device wrapper that writes all frames to a capture file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use slipstack_mem::{PrivateFd, RawSlice};
use slipstack_terms::LinkTags;
use slipstack_wire::{PartialChecksum, RxChecksum, RxMeta, TxOffload};

use crate::capture::{Capture, Direction};
use crate::device::{Device, DeviceInfo, Sink, TxFull, pass_on};
use crate::loopback::gather;

/// The plan of a capture.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first file; those after it have `.1`, `.2` and so on behind the name.
    pub path: PathBuf,
    pub interface: String,
    /// Bytes of each frame that are kept.
    pub snaplen: u32,
    /// Bytes after which the next file begins.
    pub file_size_max: Option<u64>,
}

/// The file that is being written, and those after it.
struct Recorder {
    plan: Plan,
    /// Gone after the first write that fails: a full disk must not stop the network.
    capture: Option<Capture<BufWriter<PrivateFd>>>,
    written: u64,
    /// Number of files before this one.
    number: u32,
}

impl Recorder {
    fn new(plan: Plan) -> io::Result<Recorder> {
        let capture = open(&plan, &plan.path)?;
        Ok(Recorder {
            plan,
            capture: Some(capture),
            written: 0,
            number: 0,
        })
    }

    fn record(&mut self, way: Direction, bytes: &[u8]) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        if self
            .plan
            .file_size_max
            .is_some_and(|most| self.written >= most)
        {
            self.begin_next();
        }
        match self
            .capture
            .as_mut()
            .map(|open| open.frame(now, way, bytes))
        {
            Some(Ok(written)) => self.written += written as u64,
            Some(Err(_)) => self.capture = None,
            None => {}
        }
    }

    /// Begins the next file; where there can be none, this one goes on for as long again.
    fn begin_next(&mut self) {
        self.flush();
        let mut name = self.plan.path.as_os_str().to_owned();
        name.push(format!(".{}", self.number + 1));
        if let Ok(next) = open(&self.plan, Path::new(&name)) {
            self.capture = Some(next);
            self.number += 1;
        }
        self.written = 0;
    }

    fn flush(&mut self) {
        let capture = self.capture.as_mut();
        if capture.is_some_and(|capture| capture.flush().is_err()) {
            self.capture = None;
        }
    }
}

fn open(plan: &Plan, path: &Path) -> io::Result<Capture<BufWriter<PrivateFd>>> {
    let file = PrivateFd::of_engine(File::create(path)?.into());
    Capture::new(BufWriter::new(file), &plan.interface, plan.snaplen)
}

/// A device with a capture of its received and sent frames.
pub struct Tee<D: Device> {
    device: D,
    recorder: Recorder,
}

impl<D: Device> Tee<D> {
    /// # Errors
    /// The file cannot be made.
    pub fn create(device: D, plan: Plan) -> io::Result<Tee<D>> {
        Ok(Tee {
            device,
            recorder: Recorder::new(plan)?,
        })
    }
}

/// Records on the way to the sink; large frames come as a whole.
struct Recorded<'a> {
    recorder: &'a mut Recorder,
    sink: &'a mut dyn Sink,
}

impl Sink for Recorded<'_> {
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        match PartialChecksum::of_frame(frame) {
            Some(partial) if meta.checksum == RxChecksum::Partial => {
                let mut whole = frame.to_vec();
                partial.complete(&mut whole, []);
                self.recorder.record(Direction::Inbound, &whole);
            }
            _ => self.recorder.record(Direction::Inbound, frame),
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
        let recorder = &mut self.recorder;
        self.device.rx(budget, &mut Recorded { recorder, sink })
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
        self.recorder.record(Direction::Outbound, &whole);
        Ok(())
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
        self.device.flush();
        self.recorder.flush();
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx()
    }

    pass_on!(device);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_cut_at_their_size_and_frames_at_the_snap_length() {
        let folder = std::env::temp_dir().join(format!("slipstack-tee-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let plan = Plan {
            path: folder.join("x"),
            interface: "eth7".to_owned(),
            snaplen: 100,
            file_size_max: Some(1000),
        };
        let mut recorder = Recorder::new(plan).unwrap();
        for _ in 0..20 {
            recorder.record(Direction::Inbound, &[7; 1500]);
        }
        recorder.flush();
        let mut frames = 0;
        for name in ["x", "x.1", "x.2"] {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            assert!(bytes.len() < 1400, "{name} has {} bytes", bytes.len());
            frames += bytes
                .windows(100)
                .filter(|it| it.iter().all(|byte| *byte == 7))
                .count();
        }
        assert_eq!(frames, 20);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
