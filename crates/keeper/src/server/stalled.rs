//! Measures against engines that do not run ([`super::stalls`]).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_channel::{INBOX_CELLS, InboxMessage};
use slipstack_device::{RxMeta, Transport, peek_slot};
use slipstack_mem::MpscInbox;
use tracing::warn;

use super::Server;
use super::stalls::Look;
use crate::leases::PortSpan;
use crate::net::{datagram_port, is_request};
use crate::process::is_ready;

/// Cells of the other engine's inbox that the datagrams of a stopped one may take at once. It has
/// its own traffic too, and what finds no room is lost; the rest stays where it is.
const PASSED_CELLS_MAX: usize = INBOX_CELLS / 4;

impl Server {
    /// Returns when the engines that share ports, or forward packets, are to be checked; `None` if
    /// there are none.
    pub(super) fn stalls_due(&self) -> Option<u64> {
        let has_shared = self.resources.state.leases.listeners.has_shared()
            || self.resources.network.state.is_forwarding;
        (has_shared || !self.stalls.is_empty()).then(|| self.stalls.next_look())
    }

    pub(super) fn look_for_stalls(&mut self, now: u64) {
        if self.stalls_due().is_none_or(|due| now < due) {
            return;
        }
        let sharing = match self.resources.network.state.is_forwarding {
            true => self.engines(),
            false => self.resources.state.leases.listeners.sharing(),
        };
        let looks: Vec<Look> = sharing
            .into_iter()
            .filter_map(|slot| self.look_at(slot))
            .collect();
        for (slot, is_stalled) in self.stalls.learn(&looks, now) {
            self.on_stall(slot, is_stalled, now);
        }
    }

    fn look_at(&self, slot: u16) -> Option<Look> {
        let inbox = self.resources.inboxes.inbox(slot)?;
        let slots = &self.resources.slots;
        let mut fds: Vec<PollFd<'_>> = slots
            .waiting_fds(slot)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let waits = poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        let beats = inbox.beats();
        let mut clients = self.resources.state.leases.clients.iter();
        let is_ready = self.stalls.is_suspect(slot, beats)
            && clients.any(|(_, it)| it.slot == Some(slot) && is_ready(it.process.pid));
        Some(Look {
            slot,
            beats,
            has_frames: waits || inbox.has_frames(),
            is_ready,
        })
    }

    /// An engine has stopped: new connections go to others on its ports, if there are any. Or it
    /// runs again.
    fn on_stall(&mut self, slot: u16, is_stalled: bool, now: u64) {
        let listeners = &mut self.resources.state.leases.listeners;
        let ports = listeners.set_stalled(slot, is_stalled);
        self.tally.stalls += u64::from(is_stalled);
        for (protocol, port) in &ports {
            if *protocol == Transport::Tcp {
                self.net.note_moving(*port, now);
            }
        }
        let udp = ports.iter().filter(|it| it.0 == Transport::Udp);
        let shared: Vec<u16> = udp
            .map(|it| it.1)
            .filter(|port| !listeners.slots(Transport::Udp, *port).contains(&slot))
            .collect();
        let ranges: Vec<_> = ports
            .iter()
            .map(|(protocol, port)| PortSpan::one(*protocol, *port))
            .collect();
        self.steer_ports(&ranges);
        self.publish_engines();
        if is_stalled {
            self.pass_waiting_on(slot, &shared, now);
        }
    }

    /// Requests for connections, and datagrams to `shared` ports, that wait in the queue of an
    /// engine that does not run. If it ever takes the requests too, its answers are those to a
    /// copy; datagrams are taken from it.
    fn pass_waiting_on(&mut self, slot: u16, shared: &[u16], now: u64) {
        let (Ok(parts), Some(position)) = (
            self.resources.slots.parts(slot),
            self.resources.words.position(slot),
        ) else {
            return;
        };
        let mut waiting: Vec<(Vec<u8>, RxMeta, bool)> = Vec::new();
        let mut room = PASSED_CELLS_MAX;
        let peeked = peek_slot(parts, position, &mut |frame: &[u8], meta: RxMeta| {
            // One more for what comes before the frame in a message.
            let cells = frame.len().div_ceil(MpscInbox::CELL_BYTES) + 1;
            let is_shared = datagram_port(frame).is_some_and(|port| shared.contains(&port));
            let goes = is_shared && cells <= room;
            if goes {
                room -= cells;
            }
            waiting.push((frame.to_vec(), meta, goes || is_request(frame)));
            goes
        });
        let is_taken = peeked.unwrap_or_else(|error| {
            warn!(slot, %error, "the frames of a stalled slot cannot be read");
            false
        });
        for (frame, meta, is_passed) in waiting {
            if is_passed {
                self.net.feed_waiting(&frame, meta, now);
            } else if is_taken {
                let message = InboxMessage::Frame {
                    link: meta.link,
                    frame: &frame,
                };
                self.resources.inboxes.post(slot, &message);
            }
        }
    }
}
