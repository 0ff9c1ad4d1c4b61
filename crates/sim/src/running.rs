//! A program's calls to its host: reads, writes and closes.

use slipstack_stack::rng::Rng;
use slipstack_stack::{CloseMode, Instant};

use crate::host::Host;
use crate::program::Program;
use crate::streams::bytes_at;

impl Program {
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

    /// Closes whatever it has received.
    pub fn leave(&mut self, now: Instant, host: &mut Host) -> Result<(), String> {
        match self.has_closed {
            true => Ok(()),
            false => self.close(now, host, CloseMode::Orderly),
        }
    }

    /// Time at which this program wants to run without being woken by an event.
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

    /// Does everything that is possible now.
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
        self.write(host, rng);
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
        // A peer that ended early will not read the rest.
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

    fn write(&mut self, host: &mut Host, rng: &mut Rng) {
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
            host.stack.tcp_written(self.conn, upto, more);
        }
    }

    fn close(&mut self, now: Instant, host: &mut Host, mode: CloseMode) -> Result<(), String> {
        self.has_closed = true;
        host.close(now, self.conn, mode)
    }
}
