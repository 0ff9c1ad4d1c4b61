//! A service on the kernel's sockets: this module replaces the engine at the other end of the
//! service's channel, so that the kernel and the stack can be compared with the same service.

mod calls;
mod socket;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, eventfd};
use slipstack_channel::{CloseMode, Command, EngineEnd, Inside, Owner, SockId, State, Transport};
use slipstack_mem::{Doorbell, now_ns};

use crate::control::Control;
use socket::Sockets;

const EVENTS: usize = 512;
/// Epoll's name for the doorbell.
const BELL: u64 = u64::MAX;
/// Time for a service to stop.
const GRACE_NS: u64 = 2_000_000_000;

/// Stands for an engine.
struct Kernel {
    end: EngineEnd,
    sockets: Sockets,
    epoll: OwnedFd,
    buffer: Vec<u8>,
}

/// Runs a service on the kernel's sockets until it is over, or has been stopped. Its control rings
/// `bell`.
///
/// # Errors
/// The kernel refuses descriptors or the wait.
pub fn run_on_kernel(inside: Inside, control: &Control, bell: &Doorbell) -> io::Result<()> {
    let (end, mut owner) = inside.into_parts();
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        bell.as_fd(),
        EventData::new_u64(BELL),
        EventFlags::IN,
    )?;
    let mut kernel = Kernel {
        end,
        sockets: Sockets::default(),
        epoll,
        buffer: vec![0; 64 * 1024],
    };
    let mut until = None;
    while !control.is_over() {
        let now = now_ns();
        if control.shared.is_stopping() {
            let until = *until.get_or_insert(now + GRACE_NS);
            if now >= until {
                break;
            }
        }
        let is_due = owner.next_deadline_ns().is_some_and(|at| at <= now);
        if kernel.end.has_unread_events() || owner.has_work() || is_due {
            owner.run(now);
        }
        kernel.run_commands();
        kernel.wait(&*owner, bell)?;
    }
    Ok(())
}

impl Kernel {
    fn wait(&mut self, owner: &dyn Owner, bell: &Doorbell) -> io::Result<()> {
        let now = now_ns();
        let is_busy = self.end.has_unread_events() || owner.has_work() || self.end.has_commands();
        let ns = match owner.next_deadline_ns() {
            _ if is_busy => 0,
            // A tenth of a second is often enough to see that the loop is to stop.
            None => 100_000_000,
            Some(at) => at.saturating_sub(now).min(100_000_000),
        };
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: ns.cast_signed(),
        };
        let mut events = Vec::with_capacity(EVENTS);
        let spare = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, spare, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            match event.data.u64() {
                BELL => bell.clear(),
                word => {
                    let sock = SockId {
                        index: word as u32,
                        generation: (word >> 32) as u32,
                    };
                    let flags = event.flags;
                    self.on_ready(sock, flags);
                }
            }
        }
        Ok(())
    }

    fn on_ready(&mut self, sock: SockId, flags: EventFlags) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        if socket.is_listening {
            return self.accept_all(sock);
        }
        if flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            match socket.is_connecting {
                true => self.on_connected(sock),
                false => self.send(sock),
            }
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::ERR | EventFlags::HUP)
        {
            self.receive(sock);
        }
    }

    fn run_commands(&mut self) {
        while let Some((command, ticket)) = self.end.next_command() {
            match command {
                Command::Open { sock, kind } => self.open(sock, kind),
                Command::Send { sock } => self.send(sock),
                Command::Consumed { sock } => self.on_consumed(sock),
                Command::Shutdown { sock, .. } => self.shut_down(sock),
                Command::Close { sock, mode, .. } => self.close(sock, mode),
                Command::Bind {
                    sock,
                    addr,
                    reuse_port,
                    ..
                } => {
                    let answer = self.bind(sock, addr, reuse_port);
                    self.end.reply(ticket, answer);
                }
                Command::Listen { sock, backlog } => {
                    let answer = self.listen(sock, backlog);
                    self.end.reply(ticket, answer);
                }
                Command::Connect { sock, remote } => {
                    let answer = self.connect(sock, remote);
                    self.end.reply(ticket, answer);
                }
                // Options: TCP_NODELAY is set on all; services use no others.
                _ => {}
            }
        }
    }

    fn close(&mut self, sock: SockId, mode: CloseMode) {
        if mode == CloseMode::Orderly {
            self.send(sock);
        }
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        if mode == CloseMode::Orderly
            && socket.kind == Transport::Tcp
            && socket.unsent() > 0
            && !socket.state.contains(State::CLOSED)
        {
            socket.is_closing = true;
            return self.watch(sock);
        }
        if mode != CloseMode::Orderly
            && let Some(fd) = &socket.fd
        {
            let zero = Some(std::time::Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(fd, zero);
        }
        self.release(sock);
    }

    fn release(&mut self, sock: SockId) {
        if let Some(mut socket) = self.sockets.remove(sock) {
            socket.receive.release(&mut self.end, sock);
            self.end.released(sock);
        }
    }
}

/// A doorbell for a service that runs on the kernel's sockets.
///
/// # Errors
/// Fails if the process has no descriptor left.
pub fn doorbell() -> io::Result<Doorbell> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    Ok(Doorbell::from_fd(eventfd(0, flags)?))
}
