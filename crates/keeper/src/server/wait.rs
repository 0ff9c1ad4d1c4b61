//! The descriptors that the keeper sleeps on.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_mem::{Descriptor, now_ns};

use crate::leases::ClientId;

use super::{RETURN_NS, SWEEP_NS, Server};

/// Longest sleep while the kernel's ingress drop wants a heartbeat.
const BEAT_NS: u64 = 250_000_000;

/// Interval at which stray flows are searched for in the engines' directories.
const STRAY_NS: u64 = 5_000_000;

/// The sources that want something.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) listener: bool,
    pub(super) links: bool,
    pub(super) local_ports: bool,
    pub(super) standby_died: bool,
    pub(super) asked_to_end: bool,
    pub(super) connections: Vec<u64>,
    pub(super) died: Vec<ClientId>,
}

#[derive(Clone, Copy)]
enum Source {
    Listener,
    Links,
    LocalPorts,
    Signals,
    Standby,
    Net,
    Connection(u64),
    Process(ClientId),
}

impl Server {
    /// Sleeps until something happens or is due.
    pub(super) fn wait(&mut self) -> Ready {
        let is_asleep = self.net.prepare_sleep();
        let timeout_ns = if is_asleep {
            self.timeout_ns(now_ns())
        } else {
            Some(0)
        };
        let ready = self.poll_all(timeout_ns);
        if is_asleep {
            self.net.finish_sleep();
        }
        if let Some(bell) = self.resources.inboxes.bells().first() {
            bell.clear();
        }
        ready
    }

    /// Serves the sources that want something.
    pub(super) fn serve_ready(&mut self, ready: &Ready, now: u64) {
        for client in &ready.died {
            self.on_death(*client, now);
        }
        if ready.listener {
            self.accept(now);
        }
        if ready.links {
            self.links.as_ref().inspect(|links| links.clear());
            self.follow_link(now);
        }
        if ready.local_ports {
            self.follow_local_ports(now);
        }
        for token in &ready.connections {
            self.serve_connection(*token, now);
        }
    }

    fn poll_all(&self, timeout_ns: Option<u64>) -> Ready {
        let mut sources = vec![Source::Signals];
        let mut fds = vec![PollFd::new(&self.resources.signals, PollFlags::IN)];
        if self.accept_paused_until.is_none() {
            sources.push(Source::Listener);
            fds.push(PollFd::new(&self.resources.listener, PollFlags::IN));
        }
        if let Some(standby) = &self.standby {
            sources.push(Source::Standby);
            fds.push(PollFd::new(standby.pidfd(), PollFlags::IN));
        }
        if let Some(links) = &self.links {
            sources.push(Source::Links);
            fds.push(PollFd::new(links, PollFlags::IN));
        }
        if let Some(watch) = &self.resources.local_ports {
            sources.push(Source::LocalPorts);
            fds.push(PollFd::new(watch, PollFlags::IN));
        }
        let device = Descriptor::new(self.net.poll_fd());
        if let Some(device) = &device {
            sources.push(Source::Net);
            fds.push(PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN));
        }
        if let Some(bell) = self.resources.inboxes.bells().first() {
            sources.push(Source::Net);
            fds.push(PollFd::new(bell, PollFlags::IN));
        }
        for (token, connection) in &self.connections {
            sources.push(Source::Connection(*token));
            fds.push(PollFd::new(
                &connection.socket,
                PollFlags::IN | PollFlags::RDHUP,
            ));
        }
        for (client, pidfd) in &self.watches {
            sources.push(Source::Process(*client));
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as _,
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        let mut ready = Ready::default();
        for (source, fd) in sources.iter().zip(&fds) {
            if fd.revents().is_empty() {
                continue;
            }
            match source {
                Source::Listener => ready.listener = true,
                Source::Links => ready.links = true,
                Source::LocalPorts => ready.local_ports = true,
                Source::Signals => ready.asked_to_end = true,
                Source::Standby => ready.standby_died = true,
                Source::Net => {}
                Source::Connection(token) => ready.connections.push(*token),
                Source::Process(client) => ready.died.push(*client),
            }
        }
        ready
    }

    fn timeout_ns(&self, now: u64) -> Option<u64> {
        let mut due = self.net.next_deadline();
        let mut add = |at: u64| due = Some(due.map_or(at, |due| due.min(at)));
        for lost in self.lost.values().filter(|lost| !lost.is_inherited) {
            add(lost.since + RETURN_NS);
        }
        if self.net.has_strays() {
            add(now + STRAY_NS);
        }
        if self.steer.has_exceptions() {
            add(self.swept_at + SWEEP_NS);
        }
        for (_, at) in &self.vacated {
            add(*at);
        }
        if let Some(at) = self.pending_inquiries.due(now) {
            add(at);
        }
        if let Some(since) = self.idle_since {
            add(since + self.linger_ns());
        }
        let due_now = [
            self.accept_paused_until,
            self.standby_due,
            self.remake_due,
            self.stalls_due(),
            self.trials_due(),
            self.announcer.due(),
            self.lent.next_deadline(),
        ];
        for at in due_now.into_iter().flatten() {
            add(at);
        }
        if self.resources.slots.needs_beat() {
            add(now + BEAT_NS);
        }
        due.map(|at| at.saturating_sub(now))
    }
}
