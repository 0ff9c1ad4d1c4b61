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

impl Task {
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

#[derive(Debug)]
pub struct Program {
    pub conn: ConnId,
    task: Task,
    pub is_open: bool,
    has_fin: bool,
    has_shut: bool,
    pub has_closed: bool,
    pub is_released: bool,
    pub failed: Option<Reason>,
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
            next_read_at: Instant::ZERO,
        }
    }

    pub fn on_fin(&mut self, host: &Host) -> Result<(), String> {
        if self.has_fin {
            return Err(format!("{:?}: a second end of stream", self.conn));
        }
        self.has_fin = true;
        let available = host.fx.streams[&self.conn].available();
        if available != self.task.bytes_in {
            return Err(format!(
                "{:?}: end of stream at {available} of {}",
                self.conn, self.task.bytes_in
            ));
        }
        Ok(())
    }

    pub fn is_done(&self) -> bool {
        self.is_released && self.has_closed
    }

    /// When this program wants to run without being woken by an event.
    pub fn next_wake(&self, host: &Host) -> Option<Instant> {
        if !self.is_open || self.has_closed {
            return None;
        }
        let streams = host.fx.streams.get(&self.conn)?;
        (streams.available() > streams.read_upto()).then_some(self.next_read_at)
    }

    /// Does what can be done now.
    pub fn run(&mut self, now: Instant, host: &mut Host, rng: &mut Rng) -> Result<(), String> {
        if !self.is_open || self.has_closed {
            return Ok(());
        }
        if self.failed.is_some() {
            self.close(now, host, CloseMode::Orderly);
            return Ok(());
        }
        self.read(now, host, rng)?;
        self.write(now, host, rng);
        let streams = &host.fx.streams[&self.conn];
        let has_written_all = streams.written() == self.task.bytes_out;
        let has_read_all = self.has_fin && streams.read_upto() == self.task.bytes_in;
        if has_written_all && self.task.closes_early && self.task.bytes_in == 0 {
            self.close(now, host, CloseMode::Orderly);
        } else if has_written_all && !self.has_shut {
            self.has_shut = true;
            host.stack.tcp_shutdown(now, self.conn, &mut host.fx);
        }
        if self.has_shut && has_read_all && !self.has_closed {
            self.close(now, host, CloseMode::Orderly);
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
            host.stack.tcp_consumed(now, self.conn, upto);
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
            if written >= goal {
                return;
            }
            let len = (goal - written).min(1 + u64::from(rng.below(self.task.chunk_max)));
            streams.write(&bytes_at(self.task.key_out, written, len as usize));
            let upto = written + len;
            // Never with the last bytes before the peer's turn: they would wait like corked ones.
            let more = upto < goal && rng.below(32) == 0;
            host.stack.tcp_written(now, self.conn, upto, more);
        }
    }

    fn close(&mut self, now: Instant, host: &mut Host, mode: CloseMode) {
        self.has_closed = true;
        let streams = &host.fx.streams[&self.conn];
        let unread = streams.available() > streams.read_upto();
        host.stack
            .tcp_close(now, self.conn, mode, unread, &mut host.fx);
    }
}
