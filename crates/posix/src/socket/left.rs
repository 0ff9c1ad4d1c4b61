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

impl Dgram {
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
