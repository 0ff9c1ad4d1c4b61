//! State of one connection: the request that is being answered, and the bytes still to be sent.

use std::io::IoSlice;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use slipstack_service::{ConnectionId, Context};

use super::files::{About, Content, Found, LongFile};
use super::memo::Seen;
use super::request::Skip;
use crate::tls::{HandshakeResult, Transport};

pub const KEEP_ALIVE: &str = "Connection: keep-alive\r\n\r\n";
pub const CLOSE: &str = "Connection: close\r\n\r\n";
/// Bytes of a long file that a worker reads at a time.
const PIECE: usize = 256 * 1024;

/// The result of a worker.
#[derive(Debug)]
pub enum Done {
    Found(String, Found),
    /// The file is as the cache has it.
    Same(String),
    Piece(std::io::Result<Vec<u8>>),
    /// `None`: its session was somewhere else.
    HandshakeResult(Option<HandshakeResult>),
}

/// State of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// A head is to come, or its body to be passed over.
    #[default]
    Head,
    /// A worker looks up the requested file.
    Waiting,
    /// The response does not fit the send ring at once.
    Sending,
    /// The response is sent and FIN too; further data is dropped.
    Draining,
}

/// Kept with each connection.
#[derive(Debug)]
pub struct Exchange {
    pub transport: Transport,
    pub step: Step,
    pub skip: Skip,
    /// Bytes of the present body that were passed over.
    pub skipped: u64,
    pub keeps_alive: bool,
    /// The head's time runs.
    pub is_timed: bool,
    pub has_ended: bool,
    pub peer: Option<IpAddr>,
    /// A worker's finding that the cache does not take.
    pub found: Option<Box<(String, Found)>>,
    pub out: Option<Box<Out>>,
    /// The last head that may have a memo.
    pub seen: Seen,
}

impl Exchange {
    /// The end of a response's head.
    pub fn connection(&self) -> &'static str {
        if self.keeps_alive { KEEP_ALIVE } else { CLOSE }
    }

    pub fn new(peer: Option<IpAddr>, transport: Transport) -> Exchange {
        Exchange {
            transport,
            step: Step::Head,
            skip: Skip::Nothing,
            skipped: 0,
            keeps_alive: true,
            is_timed: false,
            has_ended: false,
            peer,
            found: None,
            out: None,
            seen: Seen::default(),
        }
    }
}

/// The rest of a response.
#[derive(Debug)]
pub struct Out {
    head: Vec<u8>,
    sent: usize,
    body: Rest,
}

/// The rest of a body.
#[derive(Debug)]
enum Rest {
    None,
    Content(Arc<Content>, Range<usize>),
    File {
        file: Arc<LongFile>,
        /// Range of the file that has not been read yet.
        left: Range<u64>,
        piece: Vec<u8>,
        sent: usize,
        is_reading: bool,
    },
}

/// The progress of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    Room,
    Worker,
    /// The file cannot be read on: the peer must see that it did not get all.
    Broken,
}

/// Source of a body.
#[derive(Clone, Debug)]
pub enum Source {
    None,
    Content(Arc<Content>),
    File(Arc<LongFile>),
}

impl Source {
    pub fn about(&self) -> Option<&About> {
        match self {
            Source::None => None,
            Source::Content(content) => Some(&content.about),
            Source::File(file) => Some(&file.about),
        }
    }
}

impl Out {
    pub fn new(head: Vec<u8>, source: Source, range: Range<u64>) -> Out {
        let body = match source {
            Source::None => Rest::None,
            Source::Content(content) => {
                Rest::Content(content, range.start as usize..range.end as usize)
            }
            Source::File(file) => Rest::File {
                file,
                left: range,
                piece: Vec::new(),
                sent: 0,
                is_reading: false,
            },
        };
        Out {
            head,
            sent: 0,
            body,
        }
    }

    /// Writes as much as the send ring takes.
    pub fn write(
        &mut self,
        cx: &Context<'_, Done>,
        id: ConnectionId,
        transport: &mut Transport,
    ) -> Progress {
        let head = &self.head[self.sent..];
        let body: &[u8] = match &self.body {
            Rest::None => &[],
            Rest::Content(content, range) => &content.bytes[range.clone()],
            Rest::File { piece, sent, .. } => &piece[*sent..],
        };
        let wanted = head.len() + body.len();
        let written = match wanted {
            0 => 0,
            _ => transport.write(cx, id, &[IoSlice::new(head), IoSlice::new(body)]),
        };
        self.advance(written);
        if written < wanted {
            return Progress::Room;
        }
        match &self.body {
            Rest::File { left, .. } if !left.is_empty() => {
                if !self.read_on(cx, id) {
                    cx.retry(id);
                }
                Progress::Worker
            }
            _ => Progress::Done,
        }
    }

    fn advance(&mut self, written: usize) {
        let of_head = written.min(self.head.len() - self.sent);
        self.sent += of_head;
        match &mut self.body {
            Rest::None => {}
            Rest::Content(_, range) => range.start += written - of_head,
            Rest::File { sent, .. } => *sent += written - of_head,
        }
    }

    /// Has the next piece read, if all of the last one is in the send ring. `false`: the pool is
    /// full.
    fn read_on(&mut self, cx: &Context<'_, Done>, id: ConnectionId) -> bool {
        let Rest::File {
            file,
            left,
            piece,
            sent,
            is_reading,
        } = &mut self.body
        else {
            return true;
        };
        if *is_reading || left.is_empty() || *sent < piece.len() {
            return true;
        }
        let (file, at) = (Arc::clone(file), left.start);
        let len = PIECE.min((left.end - left.start) as usize);
        let submitted = cx.submit(id, move || Done::Piece(file.read(at, len)));
        *is_reading = submitted.is_ok();
        submitted.is_ok()
    }

    /// A worker has read on.
    pub fn on_piece(&mut self, read: std::io::Result<Vec<u8>>) -> Option<Progress> {
        let Rest::File {
            left,
            piece,
            sent,
            is_reading,
            ..
        } = &mut self.body
        else {
            return None;
        };
        *is_reading = false;
        match read {
            Ok(bytes) => {
                left.start += bytes.len() as u64;
                *piece = bytes;
                *sent = 0;
                None
            }
            Err(_) => Some(Progress::Broken),
        }
    }
}
