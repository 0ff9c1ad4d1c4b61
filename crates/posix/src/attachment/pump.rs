//! Dispatch of the channel's events to the sockets that they name.

use std::sync::atomic::Ordering;

use slipstack_channel::{ChannelEvent, EventKind};

use crate::attachment::Attachment;
use crate::ready::Rings;

/// Most events that one pump hands out, so that no thread is kept from its own call for long.
const EVENTS_PER_PUMP: usize = 4096;

impl Attachment {
    /// Hands out the engine's events. One of several threads does this at a time; it also hands out
    /// the events that the others found before it leaves, because they may go to sleep now.
    pub(crate) fn pump(&self) {
        self.has_news.store(true, Ordering::SeqCst);
        while self.has_news.load(Ordering::SeqCst) {
            // Rung when `pumping` is free: a woken thread may take this one's processor at once,
            // and the others would find events that no thread hands out.
            let mut rings = Rings::default();
            let Some(_pumping) = self.pumping.try_lock() else {
                return;
            };
            self.has_news.store(false, Ordering::SeqCst);
            for _ in 0..EVENTS_PER_PUMP {
                let Some(event) = self.program.poll_event() else {
                    break;
                };
                self.dispatch(event, &mut rings);
            }
        }
    }

    /// Returns whether a thread hands events out. It checks for more before it stops.
    pub(crate) fn is_pumped(&self) -> bool {
        self.pumping.try_lock().is_none()
    }

    fn dispatch(&self, event: ChannelEvent, rings: &mut Rings) {
        match event.kind {
            EventKind::Changed => {
                if let Some(socket) = self.find(event.sock) {
                    socket.note_change(rings);
                }
            }
            EventKind::Accepted { listener } => {
                if let Some(socket) = self.find(listener) {
                    socket.on_arrival(rings);
                }
            }
            EventKind::Withdrawn { listener } => {
                if let Some(socket) = self.find(listener) {
                    socket.on_withdrawal();
                }
            }
            EventKind::Released => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use rustix::event::{PollFd, PollFlags, poll};
    use slipstack_channel::{
        Driver, EngineEnd, EngineHandle, Heuristics, Limits, Placement, ProgramEnd, SockId, State,
        Transport, TurnOutcome, WaitOn,
    };
    use slipstack_mem::Descriptor;

    use super::*;
    use crate::addr::Family;
    use crate::ready::Station;
    use crate::ready::{Awaited, Sleepers, Waiter, Watch};
    use crate::socket::Stream;
    use crate::socket::description::{Decided, Description, New};
    use slipstack_channel::Spin;

    const SOCKETS: usize = 256;
    const ROUNDS: u32 = 50;

    struct Still;

    impl Driver for Still {
        fn turn(&self, _now_ns: u64) -> TurnOutcome {
            TurnOutcome::Idle
        }

        fn commands(&self) {}

        fn prepare_wait(&self, _now_ns: u64, _nap_ns_max: u64) -> Option<WaitOn> {
            None
        }

        fn finish_wait(&self, _ready: [bool; 2], _now_ns: u64) {}

        fn wake_waiters(&self) {}

        fn placement(&self) -> Placement {
            Placement::Instance
        }

        fn is_dead(&self) -> bool {
            false
        }

        fn end_session(&self, _until_ns: u64) {}
    }

    fn attached() -> (EngineEnd, Arc<Attachment>) {
        let end = EngineEnd::create().unwrap();
        let engine = EngineHandle {
            program: ProgramEnd::open(end.region().clone()).unwrap(),
            driver: Arc::new(Still),
            describe: String::new(),
            core: None,
        };
        let station = Arc::new(Station::new(Spin::FixedUs(0), 0, Heuristics::default()));
        (end, Arc::new(Attachment::new(engine, station)))
    }

    fn connection(
        end: &mut EngineEnd,
        attachment: &Arc<Attachment>,
        id: u64,
    ) -> (SockId, Arc<Description>) {
        let sock = attachment.open(Transport::Tcp).unwrap();
        while end.next_command().is_some() {}
        let limits = Limits {
            send: 65_536,
            receive: 65_536,
        };
        assert!(end.begin(sock, limits));
        let new = New {
            id,
            family: Family::V4,
            kind: crate::socket::description::Kind::Stream,
            protocol: 0,
            is_nonblocking: true,
        };
        let stream = Stream::accepted(Arc::clone(attachment), sock);
        let socket = Arc::new(Description::decided_as(new, Decided::Stream(stream)));
        attachment.name(sock, &socket);
        (sock, socket)
    }

    fn await_ring(waiter: &Waiter) {
        let doorbell = Descriptor::new(waiter.doorbell()).unwrap();
        let fd: BorrowedFd<'_> = doorbell.as_fd();
        assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], None), Ok(1));
    }

    #[test]
    fn all_events_are_distributed_before_a_thread_is_woken() {
        let (mut end, attachment) = attached();
        let all: Vec<_> = (0..SOCKETS as u64)
            .map(|id| connection(&mut end, &attachment, id))
            .collect();
        let waiter = Sleepers::default().pool.take();
        all[0].1.watch(Watch::Thread(Arc::clone(&waiter)));
        let pumped = AtomicU32::new(0);
        for round in 0..ROUNDS {
            let state = match round % 2 {
                0 => State::CONNECTED,
                _ => State::CONNECTED | State::RDHUP,
            };
            for (sock, _) in &all {
                end.set_state(*sock, state, None, 0);
                end.changed(*sock);
            }
            assert!(waiter.fall_asleep());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    await_ring(&waiter);
                    pumped.fetch_add(u32::from(attachment.is_pumped()), Ordering::Relaxed);
                });
                attachment.pump();
            });
            waiter.wake_up(true);
        }
        assert_eq!(pumped.into_inner(), 0, "of {ROUNDS} times");
    }
}
