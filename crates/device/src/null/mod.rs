//! A device that discards sent frames and receives nothing, for measurements of the stack alone.
//!
//! ARP requests and neighbour solicitations are answered ([`crate::responder`]): all neighbours are
//! one station.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use slipstack_mem::{PrivateFd, RawSlice};
use slipstack_wire::{RxMeta, TxOffload};

use crate::backend::{Backend, Capabilities, Description, DeviceKind, NO_INTERFACE, Opened};
use crate::device::{Device, DeviceCounters, DeviceInfo, Sink, TxFull};
use crate::error::DeviceError;
use crate::loopback::gather;
use crate::parts::{LinkProperties, SlotParts, TSO_MAX};
use crate::position::RingPosition;
use crate::responder;
use crate::steering::Steering;

/// The stack's address on a link without other stations.
pub(crate) const MAC: [u8; 6] = [0x02, 0x53, 0x53, 0, 0, 1];
const MTU: u16 = 1500;
/// Most waiting answers; the stack repeats the requests of lost ones.
const ANSWERS_MAX: usize = 64;

/// The row of the table.
pub(crate) struct Null;

impl Backend for Null {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "null",
            title: "null device",
            usage: "null (receives nothing, discards sent frames)",
            takes_path: false,
            default_interface: Some("null0"),
            capabilities: Capabilities::NONE,
        }
    }

    fn open(
        &self,
        description: &Description<'_>,
        _steering: &Steering,
    ) -> Result<Opened, DeviceError> {
        let slot = |_| Ok((vec![bell()?], serde_json::Value::Null));
        let slots = (0..description.slots).map(slot);
        Ok(Opened {
            index: NO_INTERFACE,
            name: description.interface.to_owned(),
            link: unlinked(MAC),
            slots: slots.collect::<Result<_, DeviceError>>()?,
            held: Vec::new(),
            needs_ingress_drop: false,
            mode: None,
            delivery: None,
        })
    }

    fn adopt(
        &self,
        parts: SlotParts,
        _position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let [bell] = SlotParts::descriptors(parts.fds)?;
        Ok(Box::new(NullSlot {
            bell: bell.into(),
            info: parts.params.link.info(),
            answers: Answers::default(),
            counters: DeviceCounters::default(),
        }))
    }
}

/// A link on which everything is left to the device and nothing is done.
pub(crate) fn unlinked(mac: [u8; 6]) -> LinkProperties {
    LinkProperties {
        index: 0,
        mac,
        mtu: MTU,
        tx_checksum: true,
        tso_max: TSO_MAX,
        udp_segmentation: true,
        vlan: 0,
    }
}

fn bell() -> Result<OwnedFd, DeviceError> {
    let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
    bell.map_err(|errno| DeviceError::System {
        doing: "creating an eventfd",
        source: errno.into(),
    })
}

/// Answers of the link's one station.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<Vec<u8>>);

impl Answers {
    /// Looks at a frame that is sent; true if there is an answer to it.
    #[inline]
    pub(crate) fn hear(&mut self, header: &[u8], payload: [RawSlice<'_>; 2]) -> bool {
        responder::may_ask(header) && self.answer(header, payload)
    }

    #[cold]
    fn answer(&mut self, header: &[u8], payload: [RawSlice<'_>; 2]) -> bool {
        let answer = responder::answer(&gather(header, payload));
        let taken = answer.filter(|_| self.0.len() < ANSWERS_MAX);
        taken.map(|frame| self.0.push_back(frame)).is_some()
    }

    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.0.pop_front()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug)]
struct NullSlot {
    /// Readable while answers wait.
    bell: PrivateFd,
    info: DeviceInfo,
    answers: Answers,
    counters: DeviceCounters,
}

impl Device for NullSlot {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        while done < budget
            && let Some(frame) = self.answers.next()
        {
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.len() as u64;
            sink.frame(&frame, RxMeta::UNKNOWN);
            done += 1;
        }
        if done > 0 && self.answers.is_empty() {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        done
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        _offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.counters.tx_frames += 1;
        let len = header.len() + payload[0].len() + payload[1].len();
        self.counters.tx_bytes += len as u64;
        if self.answers.hear(header, payload) {
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    fn has_rx(&self) -> bool {
        !self.answers.is_empty()
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
