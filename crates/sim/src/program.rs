//! What a program does with its connection: write, read at its own pace, shut down, close.

use slipstack_stack::rng::Rng;
use slipstack_stack::{CloseMode, ConnId, Instant, Reason};

use crate::host::Host;
use crate::streams::bytes_at;

/// What one side of a connection is to do.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Names of the two streams.
    pub key_out: u64,
    pub key_in: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub rhythm: Rhythm,
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
    /// The program closes at this time, whatever it has.
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
            rhythm: Rhythm::Free,
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

    /// How far the side may have written when it has read `read` bytes.
    fn may_write_upto(&self, read: u64) -> u64 {
        match self.rhythm {
            Rhythm::Free => self.bytes_out,
            Rhythm::Turns {
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

/// When a side may write.
#[derive(Clone, Copy, Debug)]
pub enum Rhythm {
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
    task: Task,
    pub is_open: bool,
    has_fin: bool,
    has_shut: bool,
    pub has_closed: bool,
    pub is_released: bool,
    failed: Option<Reason>,
    next_read_at: Instant,
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

    pub fn on_fin(&mut self, host: &Host) -> Result<(), String> {
        if self.has_fin {
            return Err(format!("{:?}: a second end of stream", self.conn));
        }
        self.has_fin = true;
        let available = host.available(self.conn);
        if available != self.task.bytes_in && !self.task.may_fail {
            return Err(format!(
                "{:?}: end of stream at {available} of {}",
                self.conn, self.task.bytes_in
            ));
        }
        Ok(())
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

    /// The peer's program has ended in order: its stream is as long as what it had written.
    pub fn expect(&mut self, bytes_in: u64) {
        self.task.bytes_in = bytes_in;
    }

    /// The connection may not die any more.
    pub fn must_hold(&mut self) {
        self.task.may_die = false;
    }

    /// Closes whatever it has.
    pub fn leave(&mut self, now: Instant, host: &mut Host) -> Result<(), String> {
        match self.has_closed {
            true => Ok(()),
            false => self.close(now, host, CloseMode::Orderly),
        }
    }

    pub fn failed(&self) -> Option<Reason> {
        self.failed
    }

    pub fn is_done(&self) -> bool {
        self.is_released && self.has_closed
    }

    /// When this program wants to run without being woken by an event.
    pub fn next_wake(&self, host: &Host) -> Option<Instant> {
        if self.has_closed {
            return None;
        }
        let leaves = self.task.gives_up.map(|(at, _)| at);
        let has_unread = self.is_open && host.has_unread(self.conn);
        has_unread
            .then_some(self.next_read_at)
            .into_iter()
            .chain(leaves)
            .min()
    }

    /// Does what can be done now.
    pub fn run(&mut self, now: Instant, host: &mut Host, rng: &mut Rng) -> Result<(), String> {
        if self.has_closed {
            return Ok(());
        }
        if self.failed.is_some() {
            return self.close(now, host, CloseMode::Orderly);
        }
        if let Some((_, mode)) = self.task.gives_up.filter(|(at, _)| *at <= now) {
            return self.close(now, host, mode);
        }
        if !self.is_open {
            return Ok(());
        }
        self.read(now, host, rng)?;
        self.write(now, host, rng);
        self.end(now, host)
    }

    /// Shuts down and closes when everything is done.
    fn end(&mut self, now: Instant, host: &mut Host) -> Result<(), String> {
        let streams = host.fx.streams.entry(self.conn).or_default();
        let has_written_all = streams.written() == self.task.bytes_out;
        let has_read_all = self.has_fin && streams.read_upto() == streams.available();
        if has_written_all && self.task.closes_early && self.task.bytes_in == 0 {
            self.close(now, host, CloseMode::Orderly)?;
        } else if has_written_all && !self.has_shut && (self.has_fin || !self.task.ends_last) {
            self.has_shut = true;
            let at = host.clock(now);
            host.stack.tcp_shutdown(at, self.conn, &mut host.fx);
        }
        // A peer that ended early will not read what is left to write.
        let peer_left = self.task.may_fail && self.has_fin;
        if (self.has_shut || peer_left) && has_read_all && !self.has_closed {
            self.close(now, host, CloseMode::Orderly)?;
        }
        Ok(())
    }

    fn read(&mut self, now: Instant, host: &mut Host, rng: &mut Rng) -> Result<(), String> {
        loop {
            let streams = host.fx.streams.entry(self.conn).or_default();
            if now < self.next_read_at || streams.available() == streams.read_upto() {
                return Ok(());
            }
            let len = 1 + u64::from(rng.below(self.task.chunk_max));
            let upto = streams.read(len, self.task.key_in)?;
            let at = host.clock(now);
            host.stack.tcp_consumed(at, self.conn, upto);
            if self.task.pause_ns_max != 0 {
                self.next_read_at = now.plus_nanos(rng.next_u64() % self.task.pause_ns_max);
            }
        }
    }

    fn write(&mut self, now: Instant, host: &mut Host, rng: &mut Rng) {
        loop {
            let limit = u64::from(host.stack.tcp_sndbuf(self.conn)).max(1);
            let streams = host.fx.streams.entry(self.conn).or_default();
            let written = streams.written();
            let goal = self
                .task
                .may_write_upto(streams.read_upto())
                .min(streams.acked().saturating_add(limit));
            if written >= goal || self.has_shut {
                return;
            }
            let len = (goal - written).min(1 + u64::from(rng.below(self.task.chunk_max)));
            streams.write(&bytes_at(self.task.key_out, written, len as usize));
            let upto = written + len;
            // Never with the last bytes before the peer's turn: they would wait like corked ones.
            let more = upto < goal && rng.below(32) == 0;
            let at = host.clock(now);
            host.stack.tcp_written(at, self.conn, upto, more);
        }
    }

    fn close(&mut self, now: Instant, host: &mut Host, mode: CloseMode) -> Result<(), String> {
        self.has_closed = true;
        host.close(now, self.conn, mode)
    }
}
