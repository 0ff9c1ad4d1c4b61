//! Pieces that leave as one datagram (UDP_CORK, MSG_MORE): `pending` in udp_sendmsg().

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use slipstack_channel::Envelope;
use slipstack_mem::{Guard, Lock};

/// UDP_CORK is set.
const CORKED: u8 = 1;
/// A datagram is being gathered here.
const BEGUN: u8 = 2;
/// … on the kernel's part of the socket.
const BEGUN_ON_KERNEL: u8 = 4;

/// A datagram that is being gathered.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) bytes: Vec<u8>,
    pub(crate) envelope: Envelope,
    pub(crate) remote: SocketAddr,
}

impl Begun {
    pub(crate) fn append(&mut self, bufs: &[IoSlice<'_>]) {
        for buf in bufs {
            self.bytes.extend_from_slice(buf);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Gathering {
    state: AtomicU8,
    begun: Lock<Option<Box<Begun>>>,
}

impl Gathering {
    pub(crate) fn new() -> Gathering {
        Gathering {
            state: AtomicU8::new(0),
            begun: Lock::new(None),
        }
    }

    pub(crate) fn set_corked(&self, is_on: bool) {
        self.set(CORKED, is_on);
    }

    pub(crate) fn is_corked(&self) -> bool {
        self.state.load(Ordering::Acquire) & CORKED != 0
    }

    /// Returns whether the next send belongs to a datagram that is being gathered.
    pub(crate) fn is_begun(&self) -> bool {
        self.state.load(Ordering::Acquire) & (BEGUN | BEGUN_ON_KERNEL) != 0
    }

    pub(crate) fn is_on_kernel(&self) -> bool {
        self.state.load(Ordering::Acquire) & BEGUN_ON_KERNEL != 0
    }

    pub(crate) fn set_on_kernel(&self, is_on: bool) {
        if self.is_on_kernel() != is_on {
            self.set(BEGUN_ON_KERNEL, is_on);
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_, Option<Box<Begun>>> {
        self.begun.lock()
    }

    /// Puts back a datagram that [`Gathering::lock`] gave, or none.
    pub(crate) fn put(&self, place: &mut Option<Box<Begun>>, begun: Option<Box<Begun>>) {
        self.set(BEGUN, begun.is_some());
        *place = begun;
    }

    /// The socket has been connected (`None`: disconnected). __ip4_datagram_connect() leaves its
    /// route where that of the datagram was; IPv6 does not.
    pub(crate) fn on_connect(&self, remote: Option<SocketAddr>) {
        if !self.is_begun() {
            return;
        }
        let mut place = self.lock();
        let Some(begun) = &mut *place else {
            return;
        };
        let is_v4 = |addr: SocketAddr| addr.ip().to_canonical().is_ipv4();
        match remote {
            Some(remote) if is_v4(remote) && is_v4(begun.remote) => {
                begun.envelope.peer = None;
                begun.remote = remote;
            }
            _ => {
                begun.envelope.peer.get_or_insert(begun.remote);
            }
        }
    }

    fn set(&self, bit: u8, is_on: bool) {
        if is_on {
            self.state.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.state.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}
