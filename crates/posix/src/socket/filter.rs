//! SO_ATTACH_FILTER of datagrams. The kernel has checked the filter when it was set; it runs here,
//! over the header that it expects in front and the payload. A socket without a filter pays
//! nothing.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_channel::{SockId, run_classic};
use slipstack_mem::Lock;

use crate::attachment::{Attachment, Datagram};

/// Bytes that the program finds in front of the payload, and that are always kept of a datagram
/// (sk_filter_trim_cap()).
const UDP_HEADER: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Filters {
    is_on: AtomicBool,
    filter: Lock<Option<Box<Filter>>>,
}

/// A filter, and its verdicts on the waiting datagrams.
pub(crate) struct Filter {
    code: Box<[u8]>,
    /// The offset in the ring before which datagrams have passed the filter.
    passed_to: u64,
    /// The number of bytes that the filter keeps of the datagram at that offset.
    kept: usize,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").finish_non_exhaustive()
    }
}

impl Filters {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Sets the filter's instructions, `None` to accept every datagram. Datagrams that have
    /// already arrived are not filtered.
    pub(super) fn set(&self, code: Option<&[u8]>, part: Option<&(Arc<Attachment>, SockId)>) {
        if code.is_none() && !self.is_on() {
            return;
        }
        let mut place = self.filter.lock();
        if place.as_ref().map(|filter| &*filter.code) == code {
            return;
        }
        if let (Some(old), Some((attachment, sock))) = (&mut *place, part) {
            old.vet(attachment, *sock);
        }
        let filter = code.map(|code| {
            Box::new(Filter {
                code: code.into(),
                passed_to: part.map_or(0, |(attachment, sock)| {
                    attachment.program.udp_received_to(*sock)
                }),
                kept: usize::MAX,
            })
        });
        self.is_on.store(filter.is_some(), Ordering::Relaxed);
        *place = filter;
    }

    /// Forgets the verdicts, because the ring is gone.
    pub(super) fn reset(&self) {
        if let Some(filter) = &mut *self.filter.lock() {
            filter.passed_to = 0;
        }
    }

    /// Drops the datagrams that the filter refuses; returns how many bytes of the next one it
    /// keeps, if there is one.
    #[cold]
    pub(super) fn vet(&self, attachment: &Attachment, sock: SockId) -> Option<usize> {
        match &mut *self.filter.lock() {
            Some(filter) => filter.vet(attachment, sock).map(|(_, kept)| kept),
            None => attachment.program.udp_next_len(sock),
        }
    }

    #[cold]
    pub(super) fn recv(
        &self,
        attachment: &Attachment,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Option<Datagram> {
        let mut place = self.filter.lock();
        let Some(filter) = &mut *place else {
            return attachment.program.udp_recv(sock, bufs, peek);
        };
        loop {
            let (at, kept) = filter.vet(attachment, sock)?;
            // The engine may have taken it back since.
            if let Some(it) = attachment.program.udp_recv_at(sock, at, bufs, peek) {
                return Some(Datagram {
                    len: it.len.min(kept),
                    full_len: it.full_len.min(kept),
                    ..it
                });
            }
        }
    }
}

impl Filter {
    /// Returns where the next datagram that passes lies, and how many of its bytes are kept.
    fn vet(&mut self, attachment: &Attachment, sock: SockId) -> Option<(u64, usize)> {
        let program = &attachment.program;
        // A datagram that arrives meanwhile has an event of its own.
        let end = program.udp_received_to(sock);
        while let Some((at, len)) = program.udp_next_at(sock).filter(|(at, _)| *at < end) {
            if at >= self.passed_to {
                let mut bytes = vec![0; UDP_HEADER + len];
                let (header, payload) = bytes.split_at_mut(UDP_HEADER);
                let bufs = &mut [IoSliceMut::new(payload)];
                let Some(it) = program.udp_recv_at(sock, at, bufs, true) else {
                    continue;
                };
                header.copy_from_slice(&header_of(&it));
                let Some(kept) = self.judge(&bytes) else {
                    let _ = program.udp_recv_at(sock, at, &mut [], false);
                    continue;
                };
                self.passed_to = at + 1;
                self.kept = kept;
            }
            return Some((at, len.min(self.kept)));
        }
        None
    }

    /// Returns how much of the payload is kept; `None` if the datagram is refused.
    fn judge(&self, datagram: &[u8]) -> Option<usize> {
        let kept = run_classic(&self.code, datagram, &mut |_| None) as usize;
        let kept = kept.min(datagram.len());
        (kept > 0).then(|| kept.max(UDP_HEADER) - UDP_HEADER)
    }
}

/// Ports and length; the checksum has been verified.
fn header_of(it: &Datagram) -> [u8; UDP_HEADER] {
    let [a, b] = it.from.port().to_be_bytes();
    let [c, d] = it.to.port().to_be_bytes();
    let len = u16::try_from(it.full_len + UDP_HEADER).unwrap_or(0);
    let [e, f] = len.to_be_bytes();
    [a, b, c, d, e, f, 0, 0]
}
