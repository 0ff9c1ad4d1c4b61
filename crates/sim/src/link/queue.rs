//! The queue before the bottleneck: served at a rate, bounded, and marking congestion.

use std::collections::VecDeque;

use slipstack_stack::Instant;

use super::counters::DropReason;
use super::params::LinkParams;
use super::policer::time_of;

/// Frames that wait or are being sent: when their last bit leaves, and their length.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<(Instant, u64)>,
    waiting_bytes: u64,
}

/// A frame's passage through the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueExit {
    /// Time at which its last bit has left.
    pub left_at: Instant,
    /// The frame found more before it than the marking threshold.
    pub is_congested: bool,
    /// Bytes in the queue, with this frame.
    pub backlog_bytes: u64,
}

impl Queue {
    pub fn pass(
        &mut self,
        now: Instant,
        len: u64,
        params: &LinkParams,
    ) -> Result<QueueExit, DropReason> {
        self.forget_what_left(now);
        let ahead = self.waiting_bytes;
        if params.rate == 0 {
            // A frame must not overtake frames that an earlier, slower setting still holds.
            let left_at = self.waiting.back().map_or(now, |(at, _)| *at);
            return Ok(QueueExit {
                left_at,
                is_congested: false,
                backlog_bytes: ahead,
            });
        }
        let limits = params.queue;
        let is_full = limits.bytes_max != 0 && ahead + len > limits.bytes_max
            || limits.packets_max != 0 && self.waiting.len() >= limits.packets_max as usize;
        if is_full {
            return Err(DropReason::QueueFull);
        }
        let free_at = self.waiting.back().map_or(now, |(at, _)| *at);
        let left_at = free_at.plus_nanos(time_of(len, params.rate));
        self.waiting.push_back((left_at, len));
        self.waiting_bytes += len;
        Ok(QueueExit {
            left_at,
            is_congested: limits.mark_bytes != 0 && ahead > limits.mark_bytes,
            backlog_bytes: self.waiting_bytes,
        })
    }

    fn forget_what_left(&mut self, now: Instant) {
        while let Some(&(at, len)) = self.waiting.front() {
            if at > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= len;
        }
    }
}
