//! The server of an instance: its control socket, its signals, and the keeper's connection.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use slipstack_channel::control::{ControlError, ControlSocket, Request, Viewer, Welcome};
use slipstack_engine::instance::Reception;
use slipstack_engine::{Engine, Instant, UserState};
use slipstack_mem::{Doorbell, PrivateFd};
use tracing::{error, info};

use super::clients::Session;
use super::lent::{AllLeft, state_of};
use crate::door::random_u64;
use crate::link::{KeeperClient, REGION};
use crate::ticket::Tickets;

/// Most programs and questioners at a time.
pub(super) const SESSIONS_MAX: usize = 1024;
/// Most connections of users who have not been authorised.
const UNAUTHORISED_MAX: usize = 256;
/// Pause after an accept that found no free descriptor.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;
const EVENTS: usize = 64;
const MESSAGES_PER_TURN: usize = 16;

const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;
const KEEPER: u64 = 2;
/// Sessions have even numbers from here on; odd ones are their process descriptors.
const SESSIONS: u64 = 4;

pub(super) struct ControlServer {
    pub(super) name: String,
    pub(super) welcome: Welcome,
    pub(super) slot: u16,
    pub(super) capability: u64,
    pub(super) tickets: Tickets,
    pub(super) bell: Doorbell,
    pub(super) sessions: HashMap<u64, Session>,
    pub(super) refused: u64,
    pub(super) is_stopping: bool,
    pub(super) epoll: OwnedFd,
    listener: OwnedFd,
    /// No connection is accepted before this time, because there was no free descriptor.
    accept_paused_until: Option<Instant>,
    /// Held, so that the signals stay on the epoll set.
    _signals: OwnedFd,
    link: Arc<KeeperClient>,
    /// The keeper's connection as it is registered.
    watched: Option<Arc<PrivateFd>>,
    next: u64,
    pub(super) left: AllLeft,
}

impl ControlServer {
    pub(super) fn new(
        name: String,
        mut welcome: Welcome,
        slot: u16,
        listener: OwnedFd,
        signals: OwnedFd,
        link: Arc<KeeperClient>,
        bell: Doorbell,
    ) -> io::Result<ControlServer> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &listener,
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )?;
        epoll::add(
            &epoll,
            &signals,
            EventData::new_u64(SIGNALS),
            EventFlags::IN,
        )?;
        let capability = random_u64();
        welcome.capability = capability;
        let mut server = ControlServer {
            tickets: Tickets::new(&name, &welcome.interface)?,
            name,
            welcome,
            slot,
            capability,
            bell,
            sessions: HashMap::new(),
            refused: 0,
            is_stopping: false,
            epoll,
            listener,
            accept_paused_until: None,
            _signals: signals,
            link,
            watched: None,
            next: SESSIONS,
            left: AllLeft::default(),
        };
        server.watch_keeper();
        Ok(server)
    }

    /// Follows the control connection, which changes with the keeper.
    fn watch_keeper(&mut self) {
        self.watched = self.link.watched();
        if let Some(fd) = &self.watched {
            let _ = epoll::add(&self.epoll, fd, EventData::new_u64(KEEPER), EventFlags::IN);
        }
    }

    fn on_keeper(&mut self, engine: &mut Engine) {
        if let Some(fd) = self.watched.take() {
            let _ = epoll::delete(&self.epoll, &fd);
        }
        self.link.on_readable();
        self.watch_keeper();
        engine.set_alone(self.watched.is_none());
    }

    /// Accepts new connections. As in the keeper, the listening socket is not polled while there is
    /// no free descriptor, because it would wake us again at once.
    fn accept(&mut self, now: Instant) {
        loop {
            let fd = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(fd) => fd,
                Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return,
                Err(_) => {
                    self.accept_paused_until = Some(Instant(now.0 + ACCEPT_PAUSE_NS));
                    return self.watch_listener(EventFlags::empty());
                }
            };
            if let Ok(socket) = ControlSocket::from_fd(fd) {
                self.add_session(socket, false);
            }
        }
    }

    fn watch_listener(&self, what: EventFlags) {
        let _ = epoll::modify(
            &self.epoll,
            &self.listener,
            EventData::new_u64(LISTENER),
            what,
        );
    }

    /// Adds a connection, as the keeper does.
    fn add_session(&mut self, socket: ControlSocket, is_passed: bool) {
        let Ok(peer) = socket.peer() else {
            self.refused += 1;
            return;
        };
        let viewer = Viewer::of(peer, rustix::process::geteuid().as_raw());
        let is_trusted = is_passed || viewer.is_operator();
        if !is_trusted {
            self.close_oldest_unauthorised();
        }
        if self.sessions.len() >= SESSIONS_MAX {
            self.refused += 1;
            return;
        }
        self.next += 2;
        let token = self.next;
        let added = epoll::add(
            &self.epoll,
            &socket,
            EventData::new_u64(token),
            EventFlags::IN | EventFlags::RDHUP,
        );
        if added.is_ok() {
            self.sessions
                .insert(token, Session::new(socket, viewer, is_trusted));
        }
    }

    /// Closes the oldest connections that have not been authorised, as the keeper does.
    fn close_oldest_unauthorised(&mut self) {
        let unauthorised = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.is_trusted);
        let tokens: Vec<u64> = unauthorised.map(|(token, _)| *token).collect();
        if tokens.len() < UNAUTHORISED_MAX {
            return;
        }
        if let Some(oldest) = tokens.into_iter().min() {
            // The epoll set forgets it with its descriptor.
            self.sessions.remove(&oldest);
            self.refused += 1;
        }
    }

    fn serve_session(&mut self, token: u64, engine: &mut Engine, now: Instant) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(session) = self.sessions.get(&token) else {
                return;
            };
            match session.socket.try_receive::<Request>() {
                Ok(None) => return,
                Ok(Some((Request::NewClient, fds))) => self.on_forked_client(token, fds),
                Ok(Some((request, fds))) => self.answer(token, request, fds, engine),
                Err(ControlError::Malformed | ControlError::TooLong | ControlError::NoNumbers) => {
                    self.on_malformed(token)
                }
                Err(_) => return self.on_leave(token, engine, now),
            }
        }
    }

    /// Handles a child of a session, which has a connection of its own.
    fn on_forked_client(&mut self, token: u64, fds: Vec<OwnedFd>) {
        let is_trusted = self
            .sessions
            .get(&token)
            .is_some_and(|session| session.is_trusted);
        match (
            fds.into_iter().next().map(ControlSocket::from_fd),
            is_trusted,
        ) {
            (Some(Ok(socket)), true) => self.add_session(socket, true),
            _ => self.refused += 1,
        }
    }

    /// Handles a session that has hung up or died. One that said goodbye has been detached by its
    /// own command.
    pub(super) fn on_leave(&mut self, token: u64, engine: &mut Engine, now: Instant) {
        let Some(session) = self.sessions.remove(&token) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &session.socket);
        if let Some(pidfd) = &session.pidfd {
            let _ = epoll::delete(&self.epoll, pidfd);
        }
        if let Some(pid) = session.pid() {
            info!(pid, channels = session.clients.len(), "a program has left");
        }
        // A goodbye may still wait in the ring.
        engine.commands(now);
        for (client, channel) in &session.clients {
            if !engine.is_staying(*client, channel) || !engine.detach_client(now, *client) {
                continue;
            }
            match session.heirs() {
                Some(heirs) => self.left.add(now, *client, channel.clone(), heirs),
                None => {
                    // Nobody can ask for its connections.
                    engine.end_lent(now, *client, |user| match state_of(user) {
                        UserState::MayCome => UserState::Late,
                        state => state,
                    });
                }
            }
        }
    }

    /// Disconnects every client. The keeper delivers the data that the programs have already sent.
    pub(super) fn close(&mut self, engine: &mut Engine) {
        let now = Instant(slipstack_mem::now_ns());
        let handovers = engine.hand_over(now);
        for (id, handover) in (REGION + 1..).zip(handovers) {
            let images = handover.images();
            match self.link.hand_over(id, handover.region.fd(), images) {
                Ok(()) => engine.forget(&handover),
                Err(error) => error!(images, %error, "connections of a program are reset"),
            }
        }
        self.link.pass_on_time_waits(&engine.time_waits(now));
        for session in self.sessions.values() {
            session.bells.iter().for_each(Doorbell::ring);
        }
        self.sessions.clear();
    }
}

/// Wakes the server when the process of a session has ended, even if other processes hold its
/// connection.
pub(super) fn watch_process(epoll: &OwnedFd, token: u64, pidfd: &OwnedFd) {
    let _ = epoll::add(epoll, pidfd, EventData::new_u64(token + 1), EventFlags::IN);
}

impl Reception for ControlServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn serve(&mut self, engine: &mut Engine, now: Instant) -> ControlFlow<()> {
        if self
            .accept_paused_until
            .take_if(|until| *until <= now)
            .is_some()
        {
            self.watch_listener(EventFlags::IN);
        }
        self.left.end_over_due(engine, now);
        let mut events = Vec::with_capacity(EVENTS);
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let _ = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&zero),
        );
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(now),
                SIGNALS => return ControlFlow::Break(()),
                KEEPER => self.on_keeper(engine),
                token if token % 2 == 0 => self.serve_session(token, engine, now),
                process => self.on_leave(process - 1, engine, now),
            }
        }
        if self.is_stopping {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.accept_paused_until, self.left.next_deadline()];
        deadlines.into_iter().flatten().min()
    }
}
