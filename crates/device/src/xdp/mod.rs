//! AF_XDP beside AF_PACKET: small frames bypass the kernel's stack, all others arrive by AF_PACKET.
//!
//! An AF_XDP socket receives the frames of one queue of the interface, and each queue has one. The
//! slot of number q + 1 has the socket of queue q, and every slot has a packet socket as well. A
//! program at the driver hands a frame to the socket of its queue if the steering table names that
//! queue's slot. Otherwise the frame passes: to the packet socket of the right slot if it is for
//! the stack, else to the kernel. On an interface with a large MTU a frame lies in several chunks.
//! Frames that are longer than the MTU, joined by another program of this machine, pass too; long
//! frames to send leave by the packet socket, which cuts them into segments.
//!
//! The program is attached by a bpf_link: it goes with the last descriptor of the link.
//!
//! The back end is a folder of this crate and no crate of its own, because it builds on the packet
//! back end, the steering and its assembler, all of which are private here.

mod backend;
mod raw;
mod socket;
mod sys;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slipstack_mem::{Descriptor, PrivateFd, RawSlice};
use slipstack_wire::flow::is_syn_ack;
use slipstack_wire::rss::QueueMap;
use slipstack_wire::{RxMeta, TxOffload};

use crate::device::{Device, DeviceCounters, DeviceInfo, Rest, Sink, TxFull};
use crate::packet::PacketSlot;
use socket::Socket;

pub(crate) use backend::Xdp;

/// The two sockets of a slot.
struct XdpSlot {
    packet: PacketSlot,
    socket: Socket,
    /// Readable when either is.
    epoll: PrivateFd,
    counters: DeviceCounters,
    /// Frames that the kernel had no room for, when it was asked last.
    lost: Cell<u64>,
    /// Spreading of flows over the card's queues.
    map: Option<QueueMap>,
    /// SYN-ACKs that came by the packet socket.
    answers_away: u64,
}

/// Counts SYN-ACKs on their way to the sink: each began a connection whose frames come to another
/// queue.
struct Watched<'a> {
    answers: &'a mut u64,
    sink: &'a mut dyn Sink,
}

impl Sink for Watched<'_> {
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        *self.answers += u64::from(is_syn_ack(frame));
        self.sink.frame(frame, meta);
    }

    fn large(&mut self, beginning: &[u8], meta: RxMeta, rest: &mut dyn Rest) {
        self.sink.large(beginning, meta, rest);
    }

    fn clock_ns(&self) -> Option<u64> {
        self.sink.clock_ns()
    }
}

impl XdpSlot {
    fn new(packet: PacketSlot, socket: Socket, map: Option<QueueMap>) -> io::Result<XdpSlot> {
        let epoll = PrivateFd::of_engine(epoll::create(CreateFlags::CLOEXEC)?);
        let add = |fd| epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN);
        add(socket.fd())?;
        let packet_fd = Descriptor::new(packet.poll_fd()).ok_or(io::ErrorKind::NotFound)?;
        add(packet_fd.as_fd())?;
        Ok(XdpSlot {
            packet,
            socket,
            epoll,
            counters: DeviceCounters::default(),
            lost: Cell::new(0),
            map,
            answers_away: 0,
        })
    }

    /// Sends a frame by the packet socket, after the frames that wait here.
    #[inline(never)]
    fn tx_long(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.socket.flush(&mut self.counters);
        let sent = self.packet.tx(header, payload, offload);
        self.packet.flush();
        sent
    }
}

impl Device for XdpSlot {
    fn info(&self) -> DeviceInfo {
        self.packet.info()
    }

    fn interfaces(&self) -> Vec<u32> {
        self.packet.interfaces()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let done = self.socket.rx(budget, sink, &mut self.counters);
        if self.map.is_none() {
            return done + self.packet.rx(budget - done, sink);
        }
        let answers = &mut self.answers_away;
        let mut watched = Watched { answers, sink };
        done + self.packet.rx(budget - done, &mut watched)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let len = header.len() + payload[0].len() + payload[1].len();
        let is_taken = offload.gso.is_none() && self.socket.may_take(len, &offload);
        if !is_taken || self.packet.tx_pending() {
            return self.tx_long(header, payload, offload);
        }
        let counters = &mut self.counters;
        if self.socket.tx(header, payload, &offload, counters) {
            return Ok(());
        }
        counters.tx_full += 1;
        Err(TxFull)
    }

    fn flush(&mut self) {
        self.socket.flush(&mut self.counters);
        if self.packet.tx_pending() {
            self.packet.flush();
        }
    }

    fn poll_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut fds = self.packet.descriptors();
        fds.extend([self.epoll.as_raw_fd(), self.socket.fd().as_raw_fd()]);
        fds
    }

    fn has_rx(&self) -> bool {
        self.socket.has_rx() || self.packet.has_rx()
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        // Frames of the other socket have no time.
        match self.socket.has_rx() {
            true => None,
            false => self.packet.waiting_since_ns(),
        }
    }

    fn queue_map(&self) -> Option<QueueMap> {
        self.map.clone()
    }

    fn answers_away(&self) -> u64 {
        self.answers_away
    }

    fn tx_pending(&self) -> bool {
        self.socket.is_pending() || self.packet.tx_pending()
    }

    fn counters(&self) -> DeviceCounters {
        self.lost.set(self.socket.lost());
        self.with_own(self.packet.counters())
    }

    fn counters_at_hand(&self) -> DeviceCounters {
        self.with_own(self.packet.counters_at_hand())
    }
}

impl XdpSlot {
    /// Adds what the AF_XDP socket has counted.
    fn with_own(&self, mut sum: DeviceCounters) -> DeviceCounters {
        let own = &self.counters;
        sum.rx_frames += own.rx_frames;
        sum.rx_bytes += own.rx_bytes;
        sum.rx_bypassed += own.rx_bypassed;
        sum.rx_malformed += own.rx_malformed;
        sum.rx_overrun += self.lost.get();
        sum.tx_frames += own.tx_frames;
        sum.tx_bytes += own.tx_bytes;
        sum.tx_bypassed += own.tx_bypassed;
        sum.tx_full += own.tx_full;
        sum.tx_again += own.tx_again;
        sum.tx_nobufs += own.tx_nobufs;
        sum.link_errors += own.link_errors;
        sum
    }
}
