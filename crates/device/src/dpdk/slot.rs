//! One slot of a DPDK port: frames are read and written in the memory that it shares with the DPDK
//! process.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use slipstack_mem::{Doorbell, PrivateFd, RawSlice};
use slipstack_terms::LinkTags;
use slipstack_wire::TxOffload;
use slipstack_wire::flow::is_syn_ack;
use slipstack_wire::rss::QueueMap;

use super::raw;
use super::rings::{FRAME_MAX, Reader, Rings, Tag, Way, Writer};
use super::watch::Watch;
use crate::device::{Device, DeviceCounters, DeviceInfo, LinkNotice, Sink, TxFull};
use crate::parts::LinkProperties;
use crate::tags::Tags;
use crate::vnet::{self, Received};

/// Descriptors and memory that a slot is made of.
#[derive(Debug)]
pub(super) struct SlotSetup {
    pub link: LinkProperties,
    pub rings: Rings,
    /// Wakes this slot.
    pub bell: Doorbell,
    /// Wakes the thread of the port's queue by which this slot sends.
    pub port_bell: Doorbell,
    /// Keeps that process.
    pub life: PrivateFd,
    /// Slot 0 alone has it.
    pub watch: Option<Watch>,
    /// Port's choice of the queue of a flow, if that is known.
    pub map: Option<QueueMap>,
}

#[derive(Debug)]
pub(super) struct DpdkSlot {
    setup: SlotSetup,
    reader: Reader,
    writer: Writer,
    /// VLANs beside the link's own.
    vlans: Tags,
    /// The bell may have been rung since it was last cleared.
    is_armed: Cell<bool>,
    has_unsent: bool,
    /// For frames of several cells.
    buffer: Vec<u8>,
    counters: DeviceCounters,
    answers_away: u64,
}

impl DpdkSlot {
    pub(super) fn new(setup: SlotSetup) -> io::Result<DpdkSlot> {
        setup.rings.dont_fork()?;
        Ok(DpdkSlot {
            reader: setup.rings.reader(Way::ToSlot),
            writer: setup.rings.writer(Way::FromSlot),
            vlans: Tags::default(),
            is_armed: Cell::new(true),
            has_unsent: false,
            buffer: Vec::new(),
            counters: DeviceCounters::default(),
            answers_away: 0,
            setup,
        })
    }

    /// Takes the next frame out of the ring. Returns whether there was one.
    #[inline]
    fn take(&mut self, sink: &mut dyn Sink) -> bool {
        let frame = match self.reader.peek() {
            Ok(Some(frame)) => frame,
            Ok(None) => return false,
            Err(_) => {
                self.counters.rx_malformed += 1;
                return false;
            }
        };
        let is_own = frame.tag.vlan == self.setup.link.vlan;
        let link = match is_own {
            true => Some(0),
            false => self.vlans.link_of((frame.tag.vlan, false)),
        };
        let received = vnet::parse(&frame.tag.virtio);
        match (received, link) {
            (Some(Received::Frame(mut meta)), Some(link)) => {
                meta.link = link;
                self.counters.rx_frames += 1;
                self.counters.rx_bytes += frame.len as u64;
                if frame.cells == 1 {
                    let bytes = raw::borrowed(self.reader.cell(&frame, 0));
                    if frame.tag.is_away {
                        self.answers_away += u64::from(is_syn_ack(bytes));
                    }
                    sink.frame(bytes, meta);
                } else {
                    self.buffer.resize(FRAME_MAX, 0);
                    let mut len = 0;
                    for index in 0..frame.cells {
                        let cell = self.reader.cell(&frame, index);
                        len += cell.copy_to(&mut self.buffer[len..]);
                    }
                    sink.frame(&self.buffer[..len], meta);
                }
            }
            (Some(Received::Frame(_)), None) => self.counters.rx_vlan += 1,
            _ => self.counters.rx_malformed += 1,
        }
        self.reader.release(&frame);
        true
    }

    fn publish(&mut self) {
        self.has_unsent = false;
        if self.writer.publish() && self.setup.rings.take_wake_up(Way::FromSlot) {
            self.setup.port_bell.ring();
        }
    }
}

impl Device for DpdkSlot {
    fn info(&self) -> DeviceInfo {
        self.setup.link.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        if self.is_armed.take() {
            self.setup.rings.cancel_wake_up(Way::ToSlot);
            self.setup.bell.clear();
        }
        let mut done = 0;
        while done < budget && self.take(sink) {
            done += 1;
        }
        if done > 0 {
            self.reader.publish();
        } else if let Some(watch) = &mut self.setup.watch {
            watch.turn();
        }
        done
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let len = header.len() + payload[0].len() + payload[1].len();
        if !self.setup.rings.is_running() {
            // As on a link without a carrier.
            self.counters.tx_unlinked += 1;
            return Ok(());
        }
        let tag = Tag {
            is_away: false,
            vlan: match offload.link {
                0 => self.setup.link.vlan,
                _ => self.vlans.control(&offload, header),
            },
            virtio: vnet::build(header, &offload),
        };
        if !self
            .writer
            .put(tag, &[RawSlice::of(header), payload[0], payload[1]])
        {
            self.counters.tx_full += 1;
            self.publish();
            return Err(TxFull);
        }
        self.has_unsent = true;
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
        Ok(())
    }

    fn queue_map(&self) -> Option<QueueMap> {
        self.setup.map.clone()
    }

    fn answers_away(&self) -> u64 {
        self.answers_away
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.vlans.set(vlans);
    }

    fn flush(&mut self) {
        if self.has_unsent {
            self.publish();
        }
    }

    fn poll_fd(&self) -> RawFd {
        match &self.setup.watch {
            Some(watch) => watch.poll_fd(),
            None => self.setup.bell.raw_fd(),
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let setup = &self.setup;
        let mut all = vec![
            setup.bell.raw_fd(),
            setup.port_bell.raw_fd(),
            setup.life.as_raw_fd(),
            setup.rings.fd().as_fd().as_raw_fd(),
        ];
        all.extend(setup.watch.iter().flat_map(Watch::descriptors));
        all
    }

    fn has_rx(&self) -> bool {
        if self.reader.has_frames() {
            return true;
        }
        self.is_armed.set(true);
        self.setup.rings.request_wake_up(Way::ToSlot);
        self.reader.has_frames()
    }

    fn take_notice(&mut self) -> Option<LinkNotice> {
        let watch = self.setup.watch.as_mut();
        watch.and_then(Watch::take_notice).map(LinkNotice::from)
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters {
            rx_overrun: self.setup.rings.lost(),
            ..self.counters
        }
    }
}
