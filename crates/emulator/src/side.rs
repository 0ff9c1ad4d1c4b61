//! One interface of the bridge: frames in, frames out in batches, a capture of both.

use std::io;
use std::path::Path;

use slipstack_device::DeviceError;
use slipstack_device::port::{FRAME_MAX, Port};
use slipstack_sim::pcap::Recorder;
use slipstack_stack::Instant;

use crate::access::{tagged, untagged};

/// Bytes that wait to be sent together.
const BATCH_BYTES_MAX: usize = 128 * 1024;
const BATCH_FRAMES_MAX: usize = 64;

/// Frames that never reached the link or never left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideCounters {
    /// Longer than any frame of a wire with this MTU: the sender has left segmentation to it.
    pub super_frames: u64,
    /// The interface took no more.
    pub send_refused: u64,
    /// An access port's: they have a tag already, or none of its VLAN.
    pub other_vlan: u64,
}

pub struct Side {
    pub port: Port,
    pub counters: SideCounters,
    /// The VLAN of an access port.
    access: Option<u16>,
    recorder: Option<Recorder>,
    wall_offset_ns: u64,
    buffer: Vec<u8>,
    arena: Vec<u8>,
    batch: Vec<(u32, u32)>,
    frame_len_max: usize,
}

impl Side {
    pub fn open(
        name: &str,
        access: Option<u16>,
        pcap: Option<&Path>,
        wall_offset_ns: u64,
    ) -> Result<Self, String> {
        let (port, mtu) = open_port(name).map_err(|error| error.to_string())?;
        let recorder = pcap.map(Recorder::create).transpose();
        let recorder = recorder.map_err(|error| format!("capture: {error}"))?;
        Ok(Self {
            port,
            counters: SideCounters::default(),
            access,
            recorder,
            wall_offset_ns,
            buffer: vec![0; FRAME_MAX],
            arena: Vec::with_capacity(BATCH_BYTES_MAX + FRAME_MAX),
            batch: Vec::with_capacity(BATCH_FRAMES_MAX),
            // An Ethernet header and a VLAN tag.
            frame_len_max: mtu as usize + 18,
        })
    }

    /// The next frame that has come in.
    pub fn receive(&mut self, now: Instant) -> io::Result<Option<Vec<u8>>> {
        loop {
            let Some(len) = self.port.receive(&mut self.buffer)? else {
                return Ok(None);
            };
            if len > self.frame_len_max {
                self.counters.super_frames += 1;
                continue;
            }
            let frame = self.buffer[..len].to_vec();
            self.record(now, &frame);
            match self.access.map(|vlan| tagged(&frame, vlan)) {
                None => return Ok(Some(frame)),
                Some(Some(frame)) => return Ok(Some(frame)),
                Some(None) => self.counters.other_vlan += 1,
            }
        }
    }

    /// Sends with the next [`Side::flush`], or at once when there is enough.
    pub fn send(&mut self, now: Instant, frame: &[u8]) {
        let without_tag = self.access.map(|vlan| untagged(frame, vlan));
        let frame = match &without_tag {
            None => frame,
            Some(Some(frame)) => frame,
            Some(None) => {
                self.counters.other_vlan += 1;
                return;
            }
        };
        self.record(now, frame);
        self.batch
            .push((self.arena.len() as u32, frame.len() as u32));
        self.arena.extend_from_slice(frame);
        if self.batch.len() == BATCH_FRAMES_MAX || self.arena.len() >= BATCH_BYTES_MAX {
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.batch.len() {
            match self.port.send(&self.arena, &self.batch[sent..]) {
                Ok(count) if count > 0 => sent += count,
                // A wire cannot make its sender wait.
                Ok(_) | Err(_) => {
                    self.counters.send_refused += 1;
                    sent += 1;
                }
            }
        }
        self.batch.clear();
        self.arena.clear();
    }

    fn record(&mut self, now: Instant, frame: &[u8]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now.plus_nanos(self.wall_offset_ns), frame);
        }
    }
}

fn open_port(name: &str) -> Result<(Port, u32), DeviceError> {
    let (port, name) = match name.strip_prefix("tap:") {
        Some(tap) => (Port::open_tap(tap)?, tap),
        None => (Port::open_packet(name)?, name),
    };
    let mtu = slipstack_device::iface::link(name)?.mtu;
    Ok((port, mtu))
}
