//! One AF_XDP socket with its memory: frames are read where the kernel put them, and sent from
//! where they were built.
//!
//! Half of the memory receives: every frame of it is in the fill ring, in flight, or in the receive
//! ring, so that a successor needs no record of it. The other half sends; marks beside it say which
//! of its frames the kernel has.

use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};
use slipstack_mem::{PrivateFd, RawSlice};
use slipstack_wire::{PartialChecksum, RxMeta, TxOffload};

use super::raw::{Desc, Memory, Rings};
use super::sys;
use crate::device::{DeviceCounters, Sink};
use crate::partial;

/// Frames that receive, and entries of the rings that concern them.
pub(super) const RX_FRAMES: u32 = 2048;
/// Frames that send.
pub(super) const TX_FRAMES: u32 = 1024;
/// Bytes that the kernel keeps before each received frame.
pub(super) const RX_HEADROOM: u32 = 256;
/// Offset of a frame to send in its chunk; before it is the metadata for the kernel.
const TX_AT: usize = 64;
/// Bytes of `struct xsk_tx_metadata`.
pub(super) const METADATA_LEN: u32 = 24;
/// The kernel completes the checksum.
const METADATA_CHECKSUM: u64 = 1 << 1;
/// Option of an entry whose frame continues in the next one.
const OPTION_CONTINUED: u32 = 1;
/// Option of a transmit entry whose frame is preceded by metadata.
const OPTION_METADATA: u32 = 1 << 1;
/// Entries that one frame has at most, in the kernel too.
const PIECES_MAX: usize = 17;
/// Most system calls to send waiting frames: the kernel takes 32 frames a call.
const SENDS_MAX: u32 = TX_FRAMES / 32 + 4;

/// Shape of a socket's memory, and the work that may be left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SocketParams {
    /// Bytes of a frame's chunk.
    pub chunk: u32,
    /// The kernel completes checksums.
    pub has_metadata: bool,
    /// Senders on this machine leave their checksums to be filled in.
    pub has_partial: bool,
    /// The driver holds frames while they are sent: it is called only when it asks for it.
    pub is_zero_copy: bool,
    /// Frames that the kernel polls for when we find none; 0: interrupts deliver them.
    #[serde(default)]
    pub busy_poll: u16,
    /// The longest frame if frames may lie in several chunks; 0: each lies in one.
    #[serde(default)]
    pub len_in_pieces: u32,
}

impl SocketParams {
    pub(super) fn frames_len(&self) -> usize {
        (RX_FRAMES + TX_FRAMES) as usize * self.chunk as usize
    }

    /// The longest frame that is received and sent by the socket.
    pub(super) fn len_max(&self) -> u32 {
        self.len_in_one().max(self.len_in_pieces)
    }

    /// Returns whether a received entry may name these bytes: they lie in one of the chunks that
    /// receive.
    #[inline]
    fn may_be_received(&self, addr: u64, len: u32) -> bool {
        let chunk = u64::from(self.chunk);
        let is_in_one = (addr & (chunk - 1)) + u64::from(len) <= chunk;
        is_in_one && addr < u64::from(RX_FRAMES) * chunk
    }

    /// Returns the longest frame that lies in one chunk.
    fn len_in_one(&self) -> u32 {
        self.chunk - RX_HEADROOM
    }
}

/// A frame to send that is longer than a chunk; its header is shorter.
struct Outgoing<'a> {
    header: &'a [u8],
    payload: [RawSlice<'a>; 2],
    /// The kernel completes it.
    checksum: Option<PartialChecksum>,
}

impl Outgoing<'_> {
    fn len(&self) -> usize {
        self.header.len() + self.payload[0].len() + self.payload[1].len()
    }
}

#[derive(Debug)]
pub(super) struct Socket {
    fd: PrivateFd,
    rings: Rings,
    memory: Memory,
    params: SocketParams,
    /// Frames to send that are ours.
    free: Vec<u32>,
    /// Entries of the transmit ring that the kernel has not been called for.
    is_call_due: bool,
    /// Buffer for a received frame of several chunks.
    whole: Vec<u8>,
}

impl Socket {
    /// Adopts a socket where its last holder stopped.
    pub(super) fn adopt(fd: OwnedFd, memory: OwnedFd, params: SocketParams) -> io::Result<Socket> {
        let rings = Rings::map(fd.as_fd(), RX_FRAMES, TX_FRAMES)?;
        Socket::with_rings(rings, (fd, memory), params)
    }

    fn with_rings(
        rings: Rings,
        (fd, memory): (OwnedFd, OwnedFd),
        params: SocketParams,
    ) -> io::Result<Socket> {
        let chunk_is_sound = params.chunk.is_power_of_two() && params.chunk >= 2048;
        if !chunk_is_sound || params.chunk > 4096 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = Socket {
            rings,
            memory: Memory::map(&memory, params.frames_len(), TX_FRAMES as usize)?,
            fd: fd.into(),
            params,
            free: Vec::with_capacity(TX_FRAMES as usize),
            is_call_due: true,
            whole: Vec::new(),
        };
        Ok(socket.resumed())
    }

    /// Finishes the work that a predecessor that died left half done.
    fn resumed(mut self) -> Socket {
        let (rx, fill) = (&self.rings.rx, &self.rings.fill);
        let next = rx.consumer();
        if rx.waiting() > 0 {
            let given_back = fill.read(fill.producer().wrapping_sub(1));
            let (chunk, frame) = (u64::from(self.params.chunk), rx.read(next).addr);
            if frame / chunk == given_back / chunk {
                rx.set_consumer(next.wrapping_add(1));
            }
        }
        let is_free = |index: &u32| {
            let mark = self.memory.mark(*index as usize);
            mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == 0)
        };
        self.free = (0..TX_FRAMES).filter(is_free).collect();
        self
    }

    /// Gives the kernel all frames that receive. Once, when the socket is opened.
    pub(super) fn fill_first(fd: BorrowedFd<'_>, chunk: u32) -> io::Result<()> {
        let rings = Rings::map(fd, RX_FRAMES, TX_FRAMES)?;
        for frame in 0..RX_FRAMES {
            rings.fill.write(frame, u64::from(frame) * u64::from(chunk));
        }
        rings.fill.set_producer(RX_FRAMES);
        Ok(())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[inline]
    pub(super) fn has_rx(&self) -> bool {
        self.rings.rx.waiting() > 0
    }

    pub(super) fn rx(
        &mut self,
        budget: usize,
        sink: &mut dyn Sink,
        counters: &mut DeviceCounters,
    ) -> usize {
        if self.params.busy_poll != 0 && self.rings.rx.waiting() == 0 {
            sys::refill(self.fd.as_fd());
        }
        let count = self.rings.rx.waiting().min(budget as u32);
        let mut left = count;
        while left > 0 {
            let Desc { addr, len, options } = self.rings.rx.read(self.rings.rx.consumer());
            if options & OPTION_CONTINUED != 0 {
                match self.rx_in_pieces(sink, counters) {
                    0 => break,
                    pieces => left = left.saturating_sub(pieces),
                }
                continue;
            }
            match self
                .memory
                .bytes(addr, len)
                .filter(|_| self.params.may_be_received(addr, len))
            {
                Some(frame) => {
                    counters.rx_frames += 1;
                    counters.rx_bypassed += 1;
                    counters.rx_bytes += u64::from(len);
                    sink.frame(frame, self.meta(frame));
                }
                None => counters.rx_malformed += 1,
            }
            self.give_back(addr);
            left -= 1;
        }
        if self.rings.fill.wants_call() {
            sys::refill(self.fd.as_fd());
        }
        (count - left) as usize
    }

    /// Gives the chunk of the next received entry back to the kernel, and takes the entry.
    #[inline]
    fn give_back(&self, addr: u64) {
        let Rings { rx, fill, .. } = &self.rings;
        if self.params.may_be_received(addr, 0) {
            // In this order: a successor sees which of the two is still to be done.
            let given = fill.producer();
            fill.write(given, addr & !(u64::from(self.params.chunk) - 1));
            fill.set_producer(given.wrapping_add(1));
        }
        rx.set_consumer(rx.consumer().wrapping_add(1));
    }

    /// A received frame of several chunks, which is put together. Returns their number; 0: the last
    /// of them has not come yet.
    #[cold]
    fn rx_in_pieces(&mut self, sink: &mut dyn Sink, counters: &mut DeviceCounters) -> u32 {
        let rx = &self.rings.rx;
        let first = rx.consumer();
        let mut pieces = 0;
        let mut is_sound = true;
        self.whole.clear();
        loop {
            if pieces == rx.waiting() {
                if pieces as usize <= PIECES_MAX {
                    return 0;
                }
                // No frame is so long: its end is not waited for.
                is_sound = false;
                break;
            }
            let Desc { addr, len, options } = rx.read(first.wrapping_add(pieces));
            pieces += 1;
            is_sound &= pieces as usize <= PIECES_MAX && self.params.may_be_received(addr, len);
            match self.memory.bytes(addr, len) {
                Some(bytes) if is_sound => self.whole.extend_from_slice(bytes),
                _ => is_sound = false,
            }
            if options & OPTION_CONTINUED == 0 {
                break;
            }
        }
        if is_sound {
            counters.rx_frames += 1;
            counters.rx_bypassed += 1;
            counters.rx_bytes += self.whole.len() as u64;
            sink.frame(&self.whole, self.meta(&self.whole));
        } else {
            counters.rx_malformed += 1;
        }
        for _ in 0..pieces {
            self.give_back(self.rings.rx.read(self.rings.rx.consumer()).addr);
        }
        pieces
    }

    #[inline]
    fn meta(&self, frame: &[u8]) -> RxMeta {
        match self.params.has_partial {
            true => partial::meta_of(frame),
            false => RxMeta::UNKNOWN,
        }
    }

    /// Returns whether it takes a frame of this length.
    #[inline]
    pub(super) fn may_take(&self, len: usize, offload: &TxOffload) -> bool {
        let in_one = self.params.len_in_one() as usize;
        // A checksum of ours is computed only if the frame is contiguous.
        let may_be_cut = self.params.has_metadata || offload.checksum.is_none();
        len <= in_one || (may_be_cut && len <= self.params.len_in_pieces as usize)
    }

    /// Takes a frame that it may take. `false`: there is no room.
    pub(super) fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: &TxOffload,
        counters: &mut DeviceCounters,
    ) -> bool {
        let len = header.len() + payload[0].len() + payload[1].len();
        if len > self.params.len_in_one() as usize {
            let checksum = offload.checksum;
            let frame = Outgoing {
                header,
                payload,
                checksum,
            };
            return self.tx_in_pieces(&frame, counters);
        }
        let Some(index) = self.take_free(counters) else {
            return false;
        };
        let chunk = (RX_FRAMES + index) as usize * self.params.chunk as usize;
        let is_left = offload.checksum.filter(|_| self.params.has_metadata);
        let metadata = is_left.map_or([0; METADATA_LEN as usize], metadata_of);
        let at = chunk + TX_AT - metadata.len();
        let Some(frame) = self.memory.fill(at, &[&metadata, header], payload) else {
            return false;
        };
        let frame = &mut frame[metadata.len()..];
        if let Some(partial) = offload.checksum.filter(|_| is_left.is_none()) {
            partial.complete(frame, []);
        }
        let desc = Desc {
            addr: (chunk + TX_AT) as u64,
            len: frame.len() as u32,
            options: if is_left.is_some() {
                OPTION_METADATA
            } else {
                0
            },
        };
        self.give(&[(index, desc)]);
        counters.tx_frames += 1;
        counters.tx_bypassed += 1;
        counters.tx_bytes += u64::from(desc.len);
        true
    }

    /// A frame of several chunks.
    #[cold]
    fn tx_in_pieces(&mut self, frame: &Outgoing<'_>, counters: &mut DeviceCounters) -> bool {
        let (len, room) = (frame.len(), self.params.len_in_one() as usize);
        let mut entries: Vec<(u32, Desc)> = Vec::with_capacity(len.div_ceil(room));
        let mut done = 0;
        while done < len {
            let piece = room.min(len - done);
            let index = self.take_free(counters);
            let desc = index.and_then(|index| self.put_piece(frame, index, done, piece));
            let Some((index, mut desc)) = index.zip(desc) else {
                self.free.extend(entries.iter().map(|(index, _)| *index));
                return false;
            };
            done += piece;
            if done < len {
                desc.options |= OPTION_CONTINUED;
            }
            entries.push((index, desc));
        }
        self.give(&entries);
        counters.tx_frames += 1;
        counters.tx_bypassed += 1;
        counters.tx_bytes += len as u64;
        true
    }

    /// Builds a part of a frame in a chunk.
    fn put_piece(
        &mut self,
        frame: &Outgoing<'_>,
        index: u32,
        start: usize,
        len: usize,
    ) -> Option<Desc> {
        let chunk = (RX_FRAMES + index) as usize * self.params.chunk as usize;
        let header = &frame.header[start.min(frame.header.len())..];
        let from = start.saturating_sub(frame.header.len());
        let body = cut(frame.payload, from, len - header.len());
        let checksum = frame.checksum.filter(|_| start == 0);
        let metadata = checksum.map_or([0; METADATA_LEN as usize], metadata_of);
        let at = chunk + TX_AT - metadata.len();
        self.memory.fill(at, &[&metadata, header], body)?;
        Some(Desc {
            addr: (chunk + TX_AT) as u64,
            len: len as u32,
            options: if checksum.is_some() {
                OPTION_METADATA
            } else {
                0
            },
        })
    }

    /// Hands one frame to the kernel. Each entry's frame was free, so that the ring has room.
    fn give(&mut self, entries: &[(u32, Desc)]) {
        let tx = &self.rings.tx;
        let mut next = tx.producer();
        for (index, desc) in entries {
            if let Some(mark) = self.memory.mark(*index as usize) {
                mark.store(1, Ordering::Relaxed);
            }
            tx.write(next, *desc);
            next = next.wrapping_add(1);
        }
        tx.set_producer(next);
        self.is_call_due = true;
    }

    fn take_free(&mut self, counters: &mut DeviceCounters) -> Option<u32> {
        if self.free.is_empty() {
            self.reap();
        }
        if self.free.is_empty() || self.rings.tx.is_full() {
            self.flush(counters);
            self.reap();
        }
        if self.rings.tx.is_full() {
            return None;
        }
        self.free.pop()
    }

    /// Takes back the frames that have been sent.
    fn reap(&mut self) {
        let completion = &self.rings.completion;
        let mut next = completion.consumer();
        for _ in 0..completion.waiting() {
            let chunk = completion.read(next) / u64::from(self.params.chunk);
            next = next.wrapping_add(1);
            let index = u32::try_from(chunk)
                .unwrap_or(u32::MAX)
                .wrapping_sub(RX_FRAMES);
            if let Some(mark) = self.memory.mark(index as usize)
                && mark.swap(0, Ordering::Relaxed) == 1
                && self.free.len() < TX_FRAMES as usize
            {
                self.free.push(index);
            }
            completion.set_consumer(next);
        }
    }

    /// Lets the kernel send waiting frames, as far as it takes them.
    pub(super) fn flush(&mut self, counters: &mut DeviceCounters) {
        if !self.is_call_due {
            return;
        }
        for _ in 0..SENDS_MAX {
            let tx = &self.rings.tx;
            if tx.waiting() == 0 || (self.params.is_zero_copy && !tx.wants_call()) {
                break;
            }
            match sys::send(self.fd.as_fd()) {
                Ok(()) => {}
                Err(error) => match error.raw_os_error() {
                    // The kernel has sent some frames, and has no room for more completions.
                    Some(libc::EAGAIN) => {
                        counters.tx_again += 1;
                        self.reap();
                    }
                    Some(libc::EBUSY | libc::EINTR) => counters.tx_again += 1,
                    Some(libc::ENOBUFS) => {
                        counters.tx_nobufs += 1;
                        return;
                    }
                    _ => {
                        counters.link_errors += 1;
                        return;
                    }
                },
            }
        }
        self.is_call_due = self.is_pending();
    }

    /// Frames wait that the kernel did not take.
    pub(super) fn is_pending(&self) -> bool {
        !self.params.is_zero_copy && self.rings.tx.waiting() > 0
    }

    /// Frames that the kernel had no room for.
    pub(super) fn lost(&self) -> u64 {
        sys::statistics(self.fd.as_fd())
            .map_or(0, |it| it.rx_dropped + it.rx_ring_full + it.rx_fill_empty)
    }
}

/// Returns the request to the kernel to complete a frame's checksum.
fn metadata_of(partial: PartialChecksum) -> [u8; METADATA_LEN as usize] {
    let mut metadata = [0; METADATA_LEN as usize];
    metadata[..8].copy_from_slice(&METADATA_CHECKSUM.to_ne_bytes());
    metadata[8..10].copy_from_slice(&partial.start.to_ne_bytes());
    metadata[10..12].copy_from_slice(&partial.offset.to_ne_bytes());
    metadata
}

/// Returns the first bytes of a payload in two parts.
fn cut<'a>(payload: [RawSlice<'a>; 2], start: usize, len: usize) -> [RawSlice<'a>; 2] {
    let [first, second] = payload;
    let from_first = first.len().saturating_sub(start).min(len);
    let start_of_second = start.saturating_sub(first.len());
    [
        first.sub(start.min(first.len()), from_first),
        second.sub(start_of_second, len - from_first),
    ]
}

#[cfg(test)]
mod tests;
