//! Opening and closing of control connections.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use slipstack_channel::control::{
    CONTROL_VERSION, ControlError, ControlSocket, Hello, Refusal, Reply, Request, Viewer, Welcome,
};
use tracing::{Level, debug, enabled, info};

use crate::leases::{Client, ClientId, Family};
use crate::process::{find_process, watch};
use crate::resources::Resources;

use super::{
    ACCEPT_PAUSE_NS, CONNECTIONS_MAX, Connection, Lost, MESSAGES_PER_TURN, Server,
    UNAUTHORISED_MAX, lone_family,
};

/// An answer with its descriptors, or a refusal.
pub(super) type Answer = Result<(Reply, Vec<OwnedFd>), (Refusal, String)>;

pub(super) fn refuse<T>(
    refusal: Refusal,
    message: impl Into<String>,
) -> Result<T, (Refusal, String)> {
    Err((refusal, message.into()))
}

/// The sentence for a user who is not the device's.
pub(super) fn not_permitted(what: &str) -> String {
    format!("Operation not permitted: only root and the owner of the device may {what}")
}

impl Server {
    /// Accepts new connections. While there is no descriptor for one, the listening socket is not
    /// polled, because it would wake us again at once.
    pub(super) fn accept(&mut self, now: u64) {
        loop {
            let fd = match accept_with(&self.resources.listener, SocketFlags::CLOEXEC) {
                Ok(fd) => fd,
                Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return,
                Err(_) => {
                    self.accept_paused_until = Some(now + ACCEPT_PAUSE_NS);
                    return;
                }
            };
            if let Ok(socket) = ControlSocket::from_fd(fd) {
                self.add_connection(socket, false);
            }
        }
    }

    /// Adds a connection of a user who may use the device, or who possesses (`is_passed`) that of
    /// one who may.
    fn add_connection(&mut self, socket: ControlSocket, is_passed: bool) {
        let Ok(peer) = socket.peer() else {
            self.tally.refused += 1;
            return;
        };
        let viewer = Viewer::of(peer, rustix::process::geteuid().as_raw());
        let is_trusted = is_passed || viewer.is_operator();
        if !is_trusted {
            self.close_oldest_unauthorised();
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            self.tally.refused += 1;
            return;
        }
        self.next_connection += 1;
        let connection = Connection {
            socket,
            viewer,
            is_trusted,
            is_shared: false,
            client: None,
            is_watching: false,
        };
        self.connections.insert(self.next_connection, connection);
    }

    /// Makes room for a new connection. The socket accepts connections of every user; of those that
    /// have not been authorised, the oldest are closed, so that they cannot keep others out.
    fn close_oldest_unauthorised(&mut self) {
        let unauthorised = self.connections.iter().filter(|(_, it)| !it.is_trusted);
        let tokens: Vec<u64> = unauthorised.map(|(token, _)| *token).collect();
        if tokens.len() < UNAUTHORISED_MAX {
            return;
        }
        if let Some(oldest) = tokens.into_iter().min() {
            self.connections.remove(&oldest);
            self.tally.refused += 1;
        }
    }

    /// Serves the requests of a connection.
    pub(super) fn serve_connection(&mut self, token: u64, now: u64) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(connection) = self.connections.get(&token) else {
                return;
            };
            match connection.socket.try_receive::<Request>() {
                Ok(None) => return,
                Ok(Some((Request::NewClient, fds))) => self.on_new_client(token, fds),
                Ok(Some((request, fds))) => self.answer(token, request, fds, now),
                Err(ControlError::Malformed | ControlError::TooLong) => {
                    self.tally.malformed += 1;
                    let refusal = "the message was not understood; both sides must be of one \
                        version of slipstack";
                    let reply = Reply::Refused {
                        refusal: Refusal::BadRequest,
                        message: refusal.to_owned(),
                    };
                    self.reply(token, &reply, &[]);
                }
                Err(error @ ControlError::NoNumbers) => {
                    let reply = Reply::Refused {
                        refusal: Refusal::Failed,
                        message: format!("the keeper cannot take a descriptor: {error}"),
                    };
                    self.reply(token, &reply, &[]);
                }
                Err(_) => return self.on_hang_up(token, now),
            }
        }
    }

    /// Handles a child of an authorised process, which has a connection of its own.
    fn on_new_client(&mut self, token: u64, fds: Vec<OwnedFd>) {
        let is_trusted = self
            .connections
            .get(&token)
            .is_some_and(|parent| parent.is_trusted);
        let mut fds = fds.into_iter();
        match (
            fds.next().map(ControlSocket::from_fd),
            fds.next(),
            is_trusted,
        ) {
            (Some(Ok(socket)), None, true) => self.add_connection(socket, true),
            _ => self.tally.refused += 1,
        }
    }

    fn answer(&mut self, token: u64, request: Request, fds: Vec<OwnedFd>, now: u64) {
        let request = self.take_inquiry(token, request, now);
        let Some(request) = request.and_then(|it| self.take_trial(token, it, now)) else {
            return;
        };
        if enabled!(Level::DEBUG) {
            let client = self.connections.get(&token).and_then(|it| it.client);
            let client = client.map(|client| client.0);
            debug!(client, request = request.shown(), "a request");
        }
        let answer = match request {
            Request::Hello(hello) => self.on_hello(token, hello),
            request => self.on_request(token, request, fds, now),
        };
        match answer {
            Ok((reply, fds)) => self.reply(token, &reply, &fds),
            Err((refusal, message)) => {
                debug!(why = message.as_str(), "a request is refused");
                self.tally.refused += 1;
                self.reply(token, &Reply::Refused { refusal, message }, &[]);
            }
        }
    }

    /// A peer that does not take its answers is hung up on.
    pub(super) fn reply(&mut self, token: u64, reply: &Reply, fds: &[OwnedFd]) {
        let Some(connection) = self.connections.get(&token) else {
            return;
        };
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if connection.socket.send(reply, &borrowed).is_err() {
            self.on_hang_up(token, slipstack_mem::now_ns());
        }
    }

    fn on_hello(&mut self, token: u64, hello: Hello) -> Answer {
        if hello.version != CONTROL_VERSION {
            let message = format!(
                "this keeper speaks version {CONTROL_VERSION}, the program version {}; end all \
                 programs on this device before changing the version of slipstack",
                hello.version
            );
            return refuse(Refusal::Version, message);
        }
        let Some(connection) = self.connections.get_mut(&token) else {
            return refuse(Refusal::Unknown, "the connection is gone");
        };
        if connection.client.is_some() || connection.is_shared {
            return refuse(
                Refusal::BadRequest,
                "this connection has been introduced already",
            );
        }
        if !connection.is_trusted && hello.capability != Some(self.resources.state.capability) {
            return refuse(
                Refusal::NotPermitted,
                "this user may not use the device; start the program with: slipstack run",
            );
        }
        if hello.resume.is_none() {
            refuse_deleted(&self.resources)?;
        }
        self.idle_since = None;
        connection.is_trusted = true;
        self.resources.state.had_clients = true;
        if hello.is_shared {
            connection.is_shared = true;
            return Ok((self.welcome(token, 0), Vec::new()));
        }
        let Ok(peer) = connection.socket.peer() else {
            return refuse(
                Refusal::NotPermitted,
                "the process on this connection cannot be determined",
            );
        };
        let Some(process) = find_process(peer.pid) else {
            return refuse(
                Refusal::Unknown,
                "the process on this connection is not visible here",
            );
        };
        let entry = Client {
            process,
            uid: peer.uid,
            program: hello.program,
            family: if hello.family == 0 {
                lone_family()
            } else {
                Family(hello.family)
            },
            heirs: hello.heirs,
            instance: hello.instance,
            slot: None,
            thread: 0,
        };
        let id = self.enter(entry, hello.resume.map(ClientId))?;
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.client = Some(id);
        }
        self.resources.save();
        Ok((self.welcome(token, id.0), Vec::new()))
    }

    /// Enters a client, or finds the one that comes back.
    fn enter(
        &mut self,
        entry: Client,
        resume: Option<ClientId>,
    ) -> Result<ClientId, (Refusal, String)> {
        let process = entry.process;
        // The name is shown on terminals, and is part of a file's name.
        let unfit = entry
            .instance
            .as_ref()
            .map(|name| self.resources.dir.instance_socket(name));
        if let Some(Err(error)) = unfit {
            return refuse(Refusal::BadRequest, error.to_string());
        }
        if let Some(id) = resume {
            let known = self
                .resources
                .state
                .leases
                .clients
                .find(id)
                .map(|client| client.process);
            if known == Some(process) {
                self.lost.remove(&id);
                info!(client = id.0, pid = process.pid, "a client is back");
                return Ok(id);
            }
            return refuse(
                Refusal::Unknown,
                "this keeper does not know the client; its engine has no slot any more",
            );
        }
        if entry.instance.is_some()
            && self
                .resources
                .state
                .leases
                .clients
                .iter()
                .any(|(_, client)| client.instance == entry.instance)
        {
            let name = entry.instance.unwrap_or_default();
            return refuse(
                Refusal::Busy,
                format!("an instance named {name} runs already; choose another --name"),
            );
        }
        let Some(pidfd) = watch(process) else {
            return refuse(Refusal::Unknown, "the process on this connection has ended");
        };
        match self.resources.state.leases.enter(entry) {
            Ok(id) => {
                info!(client = id.0, pid = process.pid, "a client is here");
                self.watches.insert(id, pidfd);
                Ok(id)
            }
            Err(_) => refuse(
                Refusal::Exhausted,
                "this device has as many clients as it can take",
            ),
        }
    }

    fn welcome(&self, token: u64, client: u64) -> Reply {
        let network = &self.resources.network;
        Reply::Welcome(Box::new(Welcome {
            client,
            capability: self.resources.state.capability,
            keeper_pid: std::process::id(),
            interface: self.resources.dir.interface().to_owned(),
            device: network.device.clone(),
            vlan: self.resources.slots.link().vlan,
            network: network.state.in_force(),
            is_unused: self.is_unused_but_for(token),
        }))
    }

    /// Returns whether nobody but the client of this connection is there, and nothing is to be
    /// carried out.
    fn is_unused_but_for(&self, token: u64) -> bool {
        let mut others = self.connections.iter().filter(|(of, _)| **of != token);
        !self.resources.options.is_persistent
            && !others.any(|(_, connection)| connection.is_held())
            && self.resources.state.leases.clients.is_empty()
            && self.is_done()
    }

    /// Handles a closed connection. Its client may reconnect if its process lives.
    pub(super) fn on_hang_up(&mut self, token: u64, now: u64) {
        let Some(connection) = self.connections.remove(&token) else {
            return;
        };
        let Some(client) = connection.client else {
            return;
        };
        let Some(known) = self.resources.state.leases.clients.find(client) else {
            return;
        };
        if find_process(known.process.pid) == Some(known.process) {
            if known.slot.is_none() {
                // Nothing runs for it: there is nothing to wait for.
                self.on_departure(client, now);
            } else {
                self.lost.insert(
                    client,
                    Lost {
                        since: now,
                        is_inherited: false,
                    },
                );
            }
        } else {
            self.on_death(client, now);
        }
    }

    /// The clients of the former keeper: they stay while their processes live, and come back when
    /// they notice.
    pub(super) fn inherit_clients(&mut self, now: u64) {
        let listeners = &self.resources.state.leases.listeners;
        self.net.set_servers(listeners.servers());
        let clients: Vec<(ClientId, crate::leases::ProcessKey, bool)> = self
            .resources
            .state
            .leases
            .clients
            .iter()
            .map(|(id, client)| (id, client.process, client.slot.is_some()))
            .collect();
        for (id, process, has_engine) in clients {
            match watch(process) {
                Some(pidfd) => {
                    self.watches.insert(id, pidfd);
                    // Without an engine there is nothing to keep for long.
                    self.lost.insert(
                        id,
                        Lost {
                            since: now,
                            is_inherited: has_engine,
                        },
                    );
                }
                None => self.on_death(id, now),
            }
        }
        let draining: Vec<u16> = self.resources.state.leases.draining().collect();
        for slot in draining {
            self.empty_slot(slot, now);
        }
    }
}

/// Refuses a new client on a deleted interface: it would be alone there.
fn refuse_deleted(resources: &Resources) -> Result<(), (Refusal, String)> {
    let Some(interface) = resources.find_deleted() else {
        return Ok(());
    };
    let message = match resources.network.device.is_own {
        true => format!(
            "{interface} has been deleted; end the programs that use it, if any are left \
             (slipstack status names them), and start again"
        ),
        false => format!(
            "interface {interface}, which running programs use, has been deleted; make it again \
             under its name, or end them (slipstack status names them) and start again"
        ),
    };
    refuse(Refusal::Failed, message)
}
