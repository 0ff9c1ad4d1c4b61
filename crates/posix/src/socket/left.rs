//! Datagrams that have arrived for a socket and are left to another process that has it.

use std::io::IoSliceMut;

use slipstack_channel::Envelope;

use crate::attachment::Datagram;
use crate::socket::Dgram;

/// A datagram on its way to another process.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) bytes: Vec<u8>,
    pub(crate) datagram: Datagram,
}

impl Left {
    /// Returns its envelope and its bytes.
    pub(crate) fn parts(&self) -> (Envelope, &[u8]) {
        let envelope = Envelope {
            peer: Some(self.datagram.from),
            local: Some(self.datagram.to),
            ..self.datagram.envelope
        };
        (envelope, &self.bytes)
    }

    pub(crate) fn new(envelope: Envelope, bytes: Vec<u8>) -> Option<Left> {
        let from = envelope.peer?;
        let datagram = Datagram {
            len: bytes.len(),
            full_len: bytes.len(),
            from,
            to: envelope.local.unwrap_or(from),
            envelope,
        };
        Some(Left { bytes, datagram })
    }
}

/// Copies what there is room for, and returns its length.
pub(super) fn copy(bytes: &[u8], bufs: &mut [IoSliceMut<'_>]) -> usize {
    let mut rest = bytes;
    for buf in bufs {
        let count = buf.len().min(rest.len());
        buf[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
    }
    bytes.len() - rest.len()
}

impl Dgram {
    /// Peeks at the datagrams that were left, from the byte `skip` of them on; also returns how
    /// many bytes of the datagram precede. `None`: it is behind them, by `skip` then.
    #[cold]
    pub(super) fn peek_left(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        skip: &mut usize,
    ) -> Option<(Datagram, usize)> {
        for Left { bytes, datagram } in &*self.left.lock() {
            if *skip < bytes.len() || *skip == 0 {
                let len = copy(&bytes[*skip..], bufs);
                return Some((Datagram { len, ..*datagram }, *skip));
            }
            *skip -= bytes.len();
        }
        None
    }

    /// Takes the next datagram out for another process.
    pub(crate) fn take_for_other(&self) -> Option<Left> {
        if let Some(left) = self.left.lock().pop_front() {
            return Some(left);
        }
        let (attachment, sock) = self.part()?;
        let len = match self.filters.is_on() {
            true => self.filters.vet(&attachment, sock)?,
            false => attachment.program.udp_next_len(sock)?,
        };
        let mut bytes = vec![0; len];
        let bufs = &mut [IoSliceMut::new(&mut bytes)];
        let datagram = attachment.program.udp_recv(sock, bufs, false)?;
        Some(Left { bytes, datagram })
    }
}
