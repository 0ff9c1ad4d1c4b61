//! State of each kernel socket.

use std::os::fd::OwnedFd;

use slipstack_channel::{Reason, ReceiveRing, SOCKETS, SendSide, SockId, State, Transport};

/// One socket.
pub(super) struct Socket {
    pub(super) generation: u32,
    pub(super) kind: Transport,
    /// Made when its address family is known.
    pub(super) fd: Option<OwnedFd>,
    pub(super) state: State,
    pub(super) reason: Option<Reason>,
    pub(super) errors: u8,
    pub(super) is_listening: bool,
    pub(super) is_connecting: bool,
    /// The service has closed it; written bytes are still to be sent.
    pub(super) is_closing: bool,
    pub(super) shuts_down: bool,
    pub(super) has_ended: bool,
    /// Events that the epoll set watches for it.
    pub(super) watched: Option<rustix::event::epoll::EventFlags>,
    pub(super) send: SendSide,
    /// Bytes the kernel has taken.
    pub(super) sent: u64,
    pub(super) receive: ReceiveRing,
    pub(super) received: u64,
    /// Bytes received that the service has not consumed fill its buffer.
    pub(super) is_full: bool,
}

impl Socket {
    pub(super) fn new(generation: u32, kind: Transport) -> Socket {
        Socket {
            generation,
            kind,
            fd: None,
            state: State::NONE,
            reason: None,
            errors: 0,
            is_listening: false,
            is_connecting: false,
            is_closing: false,
            shuts_down: false,
            has_ended: false,
            watched: None,
            send: SendSide::NEW,
            sent: 0,
            receive: ReceiveRing::NEW,
            received: 0,
            is_full: false,
        }
    }

    pub(super) fn unsent(&self) -> u64 {
        self.send.head() - self.sent
    }
}

/// All sockets, by index.
pub(super) struct Sockets {
    places: Vec<Option<Socket>>,
}

impl Default for Sockets {
    fn default() -> Sockets {
        Sockets {
            places: (0..SOCKETS).map(|_| None).collect(),
        }
    }
}

impl Sockets {
    pub(super) fn find(&mut self, sock: SockId) -> Option<&mut Socket> {
        let socket = self.places.get_mut(sock.index as usize)?.as_mut()?;
        (socket.generation == sock.generation).then_some(socket)
    }

    pub(super) fn put(&mut self, sock: SockId, socket: Socket) {
        if let Some(place) = self.places.get_mut(sock.index as usize) {
            *place = Some(socket);
        }
    }

    pub(super) fn remove(&mut self, sock: SockId) -> Option<Socket> {
        self.find(sock)?;
        self.places.get_mut(sock.index as usize)?.take()
    }
}
