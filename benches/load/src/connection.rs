//! One client connection: bytes still to be written, received bytes, and the time at which each
//! outstanding request was due.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::Options;
use crate::protocol;

/// The result of a check of a connection.
pub struct Progress {
    /// Due times of the requests that have been answered.
    pub answered: usize,
    /// The connection is over (closed by the peer or failed).
    pub is_over: bool,
    /// Set if the connection ended otherwise than after a complete answer.
    pub is_failed: bool,
}

pub struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    out_pos: usize,
    input: Vec<u8>,
    due: VecDeque<Instant>,
    is_connected: bool,
    waits_to_write: bool,
}

impl Connection {
    pub fn open(target: SocketAddr, token: Token, registry: &Registry) -> io::Result<Self> {
        let mut stream = TcpStream::connect(target)?;
        let _ = stream.set_nodelay(true);
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Connection {
            stream,
            out: Vec::with_capacity(4096),
            out_pos: 0,
            input: Vec::with_capacity(16 * 1024),
            due: VecDeque::new(),
            is_connected: false,
            waits_to_write: true,
        })
    }

    pub fn outstanding(&self) -> usize {
        self.due.len()
    }

    /// Queues one request that was due at `due`; [`Connection::write`] sends it.
    pub fn ask(&mut self, request: &[u8], due: Instant) {
        self.out.extend_from_slice(request);
        self.due.push_back(due);
    }

    /// Returns whether a write now makes sense (mio's readiness is edge-triggered).
    pub fn may_write(&self) -> bool {
        !self.waits_to_write && self.out_pos < self.out.len()
    }

    pub fn on_writable(&mut self) {
        self.is_connected = true;
        self.waits_to_write = false;
    }

    /// Sends queued bytes; returns false if the connection has failed.
    pub fn write(&mut self) -> bool {
        while self.out_pos < self.out.len() {
            match self.stream.write(&self.out[self.out_pos..]) {
                Ok(0) => return false,
                Ok(n) => self.out_pos += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waits_to_write = true;
                    return true;
                }
                Err(_) => return false,
            }
        }
        self.out.clear();
        self.out_pos = 0;
        true
    }

    /// Reads all received bytes; `answered` gets the due time of each complete answer.
    pub fn read(&mut self, options: &Options, mut answered: impl FnMut(Instant)) -> Progress {
        let mut progress = Progress {
            answered: 0,
            is_over: false,
            is_failed: false,
        };
        let mut chunk = [0_u8; 32 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    progress.is_over = true;
                    break;
                }
                Ok(n) => {
                    self.input.extend_from_slice(&chunk[..n]);
                    if n < chunk.len() && !options.mode.closes() {
                        self.take_answers(options, &mut progress, &mut answered);
                        return progress;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    progress.is_over = true;
                    break;
                }
            }
        }
        self.take_answers(options, &mut progress, &mut answered);
        progress.is_failed |= progress.is_over && !self.due.is_empty();
        progress
    }

    fn take_answers(
        &mut self,
        options: &Options,
        progress: &mut Progress,
        answered: &mut impl FnMut(Instant),
    ) {
        let mut used = 0;
        while used < self.input.len() {
            match protocol::answer_len(options, &self.input[used..]) {
                Ok(Some(len)) => {
                    used += len;
                    match self.due.pop_front() {
                        Some(due) => answered(due),
                        None => progress.is_failed = true,
                    }
                    progress.answered += 1;
                }
                Ok(None) => break,
                Err(protocol::BadAnswer) => {
                    progress.is_over = true;
                    progress.is_failed = true;
                    break;
                }
            }
        }
        self.input.drain(..used);
    }

    pub fn forget(mut self, registry: &Registry) {
        let _ = registry.deregister(&mut self.stream);
    }
}
