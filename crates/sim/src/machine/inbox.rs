//! An engine's inbox: bounded, in order, and a moment late.

use std::collections::VecDeque;

use slipstack_stack::{HalfOpenImage, Instant, RxMeta};

use crate::moving_connection::MovingConnection;

/// Frames that an inbox has room for.
const FRAMES_MAX: usize = 256;

#[derive(Debug)]
pub enum Message {
    /// A segment that another stack does not know; `origin` is that stack's slot, unless it is
    /// gone.
    Frame {
        frame: Vec<u8>,
        meta: RxMeta,
        origin: Option<u16>,
    },
    Connection(Box<MovingConnection>),
    /// A handshake that is under way, and how many engines had no listener for it.
    HalfOpen(Box<HalfOpenImage>, u8),
}

/// Counts of the frames put in, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub posted: u64,
    pub taken: u64,
    /// For want of room.
    pub lost: u64,
}

impl Tally {
    /// `waiting` are still inside.
    pub fn balance(&self, waiting: u64) -> Result<(), String> {
        let Self {
            posted,
            taken,
            lost,
        } = *self;
        match posted == taken + lost + waiting {
            true => Ok(()),
            false => Err(format!(
                "{posted} frames were put into an inbox, {taken} taken, {lost} lost, {waiting} wait"
            )),
        }
    }
}

#[derive(Debug, Default)]
pub struct Inbox {
    queue: VecDeque<(Instant, Message)>,
    frames: usize,
    connections: usize,
    pub tally: Tally,
}

impl Inbox {
    /// Order is kept. Connections always find room: their sender waits for it.
    pub fn push(&mut self, at: Instant, message: Message) {
        if matches!(message, Message::Frame { .. }) {
            self.tally.posted += 1;
            if self.frames == FRAMES_MAX {
                self.tally.lost += 1;
                return;
            }
            self.frames += 1;
        }
        self.connections += usize::from(matches!(message, Message::Connection(_)));
        let last = self.queue.back().map_or(at, |(at, _)| *at);
        self.queue.push_back((at.max(last), message));
    }

    pub fn pop(&mut self, now: Instant) -> Option<Message> {
        self.next_due().filter(|at| *at <= now)?;
        let (_, message) = self.queue.pop_front()?;
        match message {
            Message::Frame { .. } => {
                self.frames -= 1;
                self.tally.taken += 1;
            }
            Message::Connection(_) => self.connections -= 1,
            Message::HalfOpen(..) => {}
        }
        Some(message)
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.queue.front().map(|(at, _)| *at)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Connections on their way here.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Handshakes likewise.
    pub fn half_open(&self) -> usize {
        self.queue.len() - self.frames - self.connections
    }

    pub fn balance(&self) -> Result<(), String> {
        self.tally.balance(self.frames as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u8) -> Message {
        Message::Frame {
            frame: vec![number],
            meta: RxMeta::LOCAL,
            origin: None,
        }
    }

    fn taken(inbox: &mut Inbox, now: u64) -> Vec<u8> {
        let frames = std::iter::from_fn(|| inbox.pop(Instant(now)));
        frames
            .filter_map(|message| match message {
                Message::Frame { frame, .. } => frame.first().copied(),
                Message::Connection(_) | Message::HalfOpen(..) => None,
            })
            .collect()
    }

    #[test]
    fn messages_come_in_their_order_and_not_before_their_time() {
        let mut inbox = Inbox::default();
        inbox.push(Instant(10), frame(1));
        inbox.push(Instant(5), frame(2));
        assert_eq!(taken(&mut inbox, 9), []);
        assert_eq!(taken(&mut inbox, 10), [1, 2]);
        assert_eq!(inbox.balance(), Ok(()));
    }

    #[test]
    fn messages_without_room_are_counted_and_other_losses_reported() {
        let mut inbox = Inbox::default();
        for _ in 0..FRAMES_MAX + 3 {
            inbox.push(Instant(1), frame(1));
        }
        assert_eq!(inbox.tally.lost, 3);
        assert_eq!(inbox.balance(), Ok(()));
        inbox.queue.pop_front();
        inbox.frames -= 1;
        assert!(inbox.balance().is_err());
    }
}
