//! A program of a simulated host: its task with one connection, and its progress. `running.rs`
//! executes it.

use slipstack_stack::{CloseMode, ConnId, Instant, Reason};

/// The task of one side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Names of the two streams.
    pub key_out: u64,
    pub key_in: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub rhythm: WritePattern,
    /// Largest single write and read.
    pub chunk_max: u32,
    /// Pauses between reads, up to this; 0 = read at once.
    pub pause_ns_max: u64,
    /// Close after the last write instead of shutting down and waiting for the peer's end.
    pub closes_early: bool,
    /// Shut down only when the peer has.
    pub ends_last: bool,
    /// Nothing is read before this time.
    pub reads_from: Instant,
    /// The program closes at this time, whatever it has received.
    pub gives_up: Option<(Instant, CloseMode)>,
    /// The connection may die before the task is done, and the stream may end early.
    pub may_fail: bool,
    /// The connection may die, but its stream does not end before its time.
    pub may_die: bool,
}

impl Task {
    /// To send and to receive so much, at once and as fast as it goes.
    pub fn new((key_out, bytes_out): (u64, u64), (key_in, bytes_in): (u64, u64)) -> Self {
        Self {
            key_out,
            key_in,
            bytes_out,
            bytes_in,
            rhythm: WritePattern::Free,
            chunk_max: 1 << 16,
            pause_ns_max: 0,
            closes_early: false,
            ends_last: false,
            reads_from: Instant::ZERO,
            gives_up: None,
            may_fail: false,
            may_die: false,
        }
    }

    /// Limit of the side's written bytes when it has read `read` bytes.
    pub(crate) fn may_write_upto(&self, read: u64) -> u64 {
        match self.rhythm {
            WritePattern::Free => self.bytes_out,
            WritePattern::Turns {
                every,
                burst,
                first,
            } => {
                let turns = read / every.max(1) + u64::from(first);
                (turns * burst).min(self.bytes_out)
            }
        }
    }
}

/// Time at which a side may write.
#[derive(Clone, Copy, Debug)]
pub enum WritePattern {
    Free,
    /// After reading `every` bytes `burst` more; `first` = begins.
    Turns {
        every: u64,
        burst: u64,
        first: bool,
    },
}

#[derive(Debug)]
pub struct Program {
    pub conn: ConnId,
    pub(crate) task: Task,
    pub is_open: bool,
    pub(crate) has_fin: bool,
    pub(crate) has_shut: bool,
    pub has_closed: bool,
    pub is_released: bool,
    pub(crate) failed: Option<Reason>,
    pub(crate) next_read_at: Instant,
}

impl Program {
    pub fn new(conn: ConnId, task: Task) -> Self {
        Self {
            conn,
            task,
            is_open: false,
            has_fin: false,
            has_shut: false,
            has_closed: false,
            is_released: false,
            failed: None,
            next_read_at: task.reads_from,
        }
    }

    /// The connection is dead; the error is that it should not be.
    pub fn on_failed(&mut self, reason: Reason) -> Result<(), String> {
        if self.failed.replace(reason).is_some() {
            return Err(format!("{:?} failed twice", self.conn));
        }
        match self.task.may_fail || self.task.may_die {
            true => Ok(()),
            false => Err(format!("{:?} failed: {reason:?}", self.conn)),
        }
    }

    /// Sets the expected length of the stream, because the peer's program has ended in order.
    pub fn expect(&mut self, bytes_in: u64) {
        self.task.bytes_in = bytes_in;
    }

    /// The connection may not die any more.
    pub fn must_hold(&mut self) {
        self.task.may_die = false;
    }

    pub fn failed(&self) -> Option<Reason> {
        self.failed
    }

    pub fn is_done(&self) -> bool {
        self.is_released && self.has_closed
    }
}
