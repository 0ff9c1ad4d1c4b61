//! `slipstack capture`: writes the frames of a device while programs use it.

use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use slipstack_channel::control::{DeviceReport, Refusal};
use slipstack_config::Settings;
use slipstack_device::listener::{Listener, Selection};
use slipstack_device::{Capture, Direction, SNAPLEN_MAX};
use slipstack_mem::process;

use crate::admin;
use crate::error::Error;

/// Interval of flushing the file and checking for the end.
const PERIOD: Duration = Duration::from_millis(200);

/// Which frames, and how long.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub host: Option<IpAddr>,
    pub port: Option<u16>,
    pub frames_max: Option<u64>,
    pub time_max: Option<Duration>,
}

/// Summary of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub inbound: u64,
    pub outbound: u64,
    /// Frames that arrived faster than they could be written.
    pub lost: u64,
    /// The device was deleted, or set down, before the end.
    pub is_cut_short: bool,
}

impl Summary {
    fn frames(&self) -> u64 {
        self.inbound + self.outbound
    }
}

/// A listener on a device in use; open before any file is made.
#[derive(Debug)]
pub struct Ready {
    listener: Listener,
    selection: Selection,
    interface: String,
}

/// Finds the device and captures from now on.
///
/// # Errors
/// No device is in use, several are and none is named, or no CAP_NET_RAW.
pub fn listen(settings: &Settings, plan: &Plan) -> Result<Ready, Error> {
    let device = device(settings)?;
    if !device.device.is_heard {
        return Err(Error::Refused {
            refusal: Refusal::BadRequest,
            message: format!(
                "not all frames of a device of kind {} can be listened to: use --pcap with \
                 `slipstack run`",
                device.device.kind
            ),
        });
    }
    let own = device.addresses.iter().map(|(address, _)| *address);
    let further = device.further.iter().map(|it| &it.interface);
    let mut named = further.filter(|name| settings.interface.as_ref() == Some(name));
    let interface = named.next().unwrap_or(&device.interface).clone();
    Ok(Ready {
        listener: Listener::open(&interface, device.device.is_own)?,
        selection: Selection {
            own: own.collect(),
            host: plan.host,
            port: plan.port,
        },
        interface,
    })
}

fn device(settings: &Settings) -> Result<DeviceReport, Error> {
    let mut reports = admin::status(settings)?;
    let refused = |message: String| {
        Err(Error::Refused {
            refusal: Refusal::Unknown,
            message,
        })
    };
    match (reports.len(), &settings.interface) {
        (1, _) => Ok(reports.remove(0).device),
        (0, Some(name)) => refused(format!("no program uses {name} with Slipstack")),
        (0, None) => refused("nothing runs on Slipstack, so there is nothing to capture".into()),
        _ => {
            let names: Vec<_> = reports.into_iter().map(|it| it.device.interface).collect();
            refused(format!(
                "Slipstack uses several devices; choose one with --if: {}",
                names.join(", ")
            ))
        }
    }
}

impl Ready {
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Writes frames until the plan, SIGINT, SIGTERM or the reader's end of a pipe ends it.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub fn write_to(mut self, out: impl Write, plan: &Plan) -> Result<Summary, Error> {
        let failed = Error::io("write the capture");
        let mut summary = Summary::default();
        match self.write(out, plan, &mut summary) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(error)),
            _ => {}
        }
        summary.lost = self.listener.lost();
        Ok(summary)
    }

    fn write(&mut self, out: impl Write, plan: &Plan, summary: &mut Summary) -> io::Result<()> {
        let signals = process::end_signals()?;
        let until = plan.time_max.map(|time| Instant::now() + time);
        let mut capture = Capture::new(BufWriter::new(out), &self.interface, SNAPLEN_MAX)?;
        capture.flush()?;
        let is_full =
            |summary: &Summary| plan.frames_max.is_some_and(|max| summary.frames() >= max);
        while !is_full(summary) && !summary.is_cut_short {
            let mut wait = PERIOD;
            if let Some(until) = until {
                wait = wait.min(until.saturating_duration_since(Instant::now()));
                if wait.is_zero() {
                    break;
                }
            }
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(wait.subsec_nanos()),
            };
            let listening = PollFd::from_borrowed_fd(self.listener.fd(), PollFlags::IN);
            let mut ready = [listening, PollFd::new(&signals, PollFlags::IN)];
            poll(&mut ready, Some(&wait))?;
            let is_ended = ready[1].revents().contains(PollFlags::IN);
            // Frames received before the signal belong to the capture.
            self.drain(&mut capture, summary, &is_full)?;
            capture.flush()?;
            if is_ended {
                break;
            }
        }
        Ok(())
    }

    fn drain(
        &mut self,
        capture: &mut Capture<impl Write>,
        summary: &mut Summary,
        is_full: &impl Fn(&Summary) -> bool,
    ) -> io::Result<()> {
        while !is_full(summary) {
            let frame = match self.listener.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(_) => {
                    summary.is_cut_short = true;
                    return Ok(());
                }
            };
            if !self.selection.keeps(frame.bytes) {
                continue;
            }
            capture.frame(frame.since_epoch, frame.way, frame.bytes)?;
            match frame.way {
                Direction::Inbound => summary.inbound += 1,
                Direction::Outbound => summary.outbound += 1,
            }
        }
        Ok(())
    }
}
