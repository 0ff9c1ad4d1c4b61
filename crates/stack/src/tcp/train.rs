//! Trains: segments of one burst that continue each other and are processed as one after their
//! first steps; generic receive offload for devices that deliver frame by frame.
//!
//! The first segment goes the usual way. The bytes of its successors are put to their place in the
//! receive ring at once, because a frame belongs to the device again when the next one comes; their
//! effect on the connection is applied once, when another segment arrives or the burst ends. As on
//! Linux a train ends with PSH, with a segment that is not full, and at 64 KiB.

use slipstack_wire::alike::Alike;

use super::connection::Connection;
use super::seq;
use crate::effects::{Effects, RxChecksum, RxMeta};
use crate::ids::ConnId;

/// Bytes after which a train ends, so that a program that runs beside us can begin to read.
const LEN_MAX: u64 = 65_535;

/// Expectations about the next segment of a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Idle,
    /// Segment that was full and in order: more may follow.
    Promising,
    Open,
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub struct Train {
    pub state: State,
    /// The connection of the last full segment. A second one in a row opens the train.
    pub latest: u32,
    current: Option<OpenTrain>,
}

/// An open train.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenTrain {
    alike: Alike,
    pub conn: ConnId,
    /// RCV.IRS, to widen sequence numbers.
    irs: u32,
    /// Sequence number of the last segment, and the next one's.
    pub last: u64,
    pub next: u64,
    /// Beyond which nothing is taken: the window's edge, or where the train is long enough or at
    /// its end.
    limit: u64,
    mss: usize,
    /// The link of the first frame.
    pub link: u16,
    /// Joined frames, and their bytes.
    pub frames: u64,
    pub bytes: u64,
}

impl Train {
    /// A full segment took the short way.
    #[inline]
    pub fn note(&mut self, index: u32) {
        self.state = State::Promising;
        self.latest = index;
    }

    /// Opens a train after this frame, whose segment this connection has just accepted.
    #[inline(always)]
    pub fn open(&mut self, frame: &[u8], conn: &Connection, link: u16) {
        let Some(alike) = Alike::of(frame) else {
            return;
        };
        let next = conn.rcv.nxt;
        self.current = Some(OpenTrain {
            alike,
            conn: conn.id,
            irs: conn.rcv.irs,
            last: next,
            next,
            limit: conn.rcv.edge.min(next + LEN_MAX),
            mss: usize::from(conn.rcv.mss),
            link,
            frames: 0,
            bytes: 0,
        });
        self.state = State::Open;
    }

    /// Returns whether this frame continues the train. `false`: nothing has been touched.
    #[inline]
    pub fn join(&mut self, frame: &[u8], meta: RxMeta, fx: &mut impl Effects) -> bool {
        let Some(train) = &mut self.current else {
            return false;
        };
        let Some(follower) = train.alike.follow(frame) else {
            return false;
        };
        let len = follower.payload.len();
        let end = train.next + len as u64;
        if end > train.limit
            || len == 0
            || len > train.mss
            || meta.gso
            || meta.local
            || follower.seq != seq::to_wire(train.irs, train.next)
            || (meta.checksum == RxChecksum::Unknown && !train.alike.is_valid(&follower))
            || !fx.store(train.conn, seq::offset(train.next), follower.payload)
        {
            return false;
        }
        train.last = train.next;
        train.next = end;
        train.frames += 1;
        train.bytes += frame.len() as u64;
        if follower.is_pushed || len < train.mss {
            train.limit = end;
        }
        true
    }

    /// Ends the train, if one is open: its joined segments are to be processed.
    pub(super) fn take(&mut self) -> Option<OpenTrain> {
        self.state = State::Idle;
        self.current.take()
    }
}

impl OpenTrain {
    pub fn is_v4(&self) -> bool {
        self.alike.is_v4()
    }
}
