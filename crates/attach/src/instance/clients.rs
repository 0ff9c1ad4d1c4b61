//! Requests from programs to an instance.

use std::os::fd::{AsFd, OwnedFd};

use slipstack_channel::EngineEnd;
use slipstack_channel::control::net::{
    Answer as NetAnswer, Call, NetworkState, ProgramIdentity, Query, VERSION,
};
use slipstack_channel::control::{
    Attached, CONTROL_VERSION, ControlSocket, DESCRIPTORS_MAX, Descriptor, DeviceReport,
    EngineReport, Hello, InstanceReport, ProgramReport, Refusal, Reply, Request, StatusReport,
    Viewer, Welcome, WhyReport, of_another_user,
};
use slipstack_channel::report::ReportTable;
use slipstack_engine::{ClientId, Engine};
use slipstack_keeper::process::{find_process, watch};
use slipstack_mem::{Doorbell, Region};
use tracing::{Level, debug, enabled, info};

use super::reception::{ControlServer, watch_process};

/// Channels of one connection.
const CHANNELS_MAX: usize = 64;
/// Sockets of one program in a list of all, and alone.
const SOCKETS_MAX: usize = 64;
const SOCKETS_OF_ONE_MAX: usize = 256;

/// A connection to the instance.
pub(super) struct Session {
    pub(super) socket: ControlSocket,
    viewer: Viewer,
    pub(super) is_trusted: bool,
    pub(super) pidfd: Option<OwnedFd>,
    /// With their channels.
    pub(super) clients: Vec<(ClientId, Region)>,
    pub(super) bells: Vec<Doorbell>,
    program: Option<Program>,
    report: Option<ReportTable>,
}

struct Program {
    pid: u32,
    uid: u32,
    name: String,
    /// See [`slipstack_channel::control::Hello::heirs`].
    heirs: u64,
}

impl Session {
    pub(super) fn new(socket: ControlSocket, viewer: Viewer, is_trusted: bool) -> Session {
        Session {
            socket,
            viewer,
            is_trusted,
            pidfd: None,
            clients: Vec::new(),
            bells: Vec::new(),
            program: None,
            report: None,
        }
    }

    /// The process behind it, once it has introduced itself.
    pub(super) fn pid(&self) -> Option<u32> {
        self.program.as_ref().map(|program| program.pid)
    }

    /// `None`: it has none, so that no other process goes on with its connections.
    pub(super) fn heirs(&self) -> Option<u64> {
        let heirs = self.program.as_ref()?.heirs;
        (heirs != 0).then_some(heirs)
    }

    fn describe(&self, instance: &str, sockets_max: usize) -> Option<ProgramReport> {
        let program = self.program.as_ref()?;
        let report = self.report.as_ref();
        let (sockets, sockets_count) = report
            .map(|report| report.sockets(sockets_max))
            .unwrap_or_default();
        Some(ProgramReport {
            pid: program.pid,
            uid: program.uid,
            program: program.name.clone(),
            slot: None,
            instance: Some(instance.to_owned()),
            sockets,
            sockets_count,
            is_concealed: false,
        })
    }
}

pub(super) type Answer = Result<(Reply, Vec<OwnedFd>), (Refusal, String)>;

pub(super) fn refuse<T>(
    refusal: Refusal,
    message: impl Into<String>,
) -> Result<T, (Refusal, String)> {
    Err((refusal, message.into()))
}

impl ControlServer {
    pub(super) fn answer(
        &mut self,
        token: u64,
        request: Request,
        fds: Vec<OwnedFd>,
        engine: &mut Engine,
    ) {
        if enabled!(Level::DEBUG) {
            debug!(session = token, request = request.shown(), "a request");
        }
        let (reply, fds) = match self.find_answer(token, request, fds, engine) {
            Ok(answer) => answer,
            Err((refusal, message)) => {
                let why = message.as_str();
                debug!(session = token, why, "a request is refused");
                self.refused += 1;
                (Reply::Refused { refusal, message }, Vec::new())
            }
        };
        self.reply(token, &reply, &fds);
    }

    pub(super) fn on_malformed(&mut self, token: u64) {
        self.refused += 1;
        let message =
            "the message was not understood; both sides must be of one version of slipstack"
                .to_owned();
        self.reply(
            token,
            &Reply::Refused {
                refusal: Refusal::BadRequest,
                message,
            },
            &[],
        );
    }

    /// A session that does not take its answers misses them.
    fn reply(&mut self, token: u64, reply: &Reply, fds: &[OwnedFd]) {
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if let Some(session) = self.sessions.get(&token)
            && session.socket.send(reply, &borrowed).is_err()
        {
            self.refused += 1;
        }
    }

    fn find_answer(
        &mut self,
        token: u64,
        request: Request,
        fds: Vec<OwnedFd>,
        engine: &mut Engine,
    ) -> Answer {
        let Some(session) = self.sessions.get_mut(&token) else {
            return refuse(Refusal::Unknown, "the connection is gone");
        };
        if let Request::Hello(hello) = request {
            return self.on_hello(token, hello, fds.first(), engine);
        }
        if !session.is_trusted && !request.is_open_to_all() {
            return refuse(
                Refusal::NotPermitted,
                "Operation not permitted: only root and the owner of the instance may do this",
            );
        }
        let viewer = session.viewer;
        match request {
            Request::Attach { region_len, .. } => self.on_attach(token, region_len, engine),
            Request::RegisterReport => match fds.into_iter().next().map(ReportTable::open) {
                Some(Ok(table)) => {
                    session.report = Some(table);
                    Ok((Reply::Done, Vec::new()))
                }
                _ => refuse(Refusal::BadRequest, "the report is not a sealed region"),
            },
            Request::Status => Ok((
                Reply::Status(Box::new(self.status(engine, viewer).fitted())),
                Vec::new(),
            )),
            Request::Why { pid } => self.why(pid, engine, viewer),
            Request::Net(Call {
                version: VERSION,
                query: Query::Programs { from },
            }) => Ok(self.programs(from, viewer)),
            Request::Network => {
                let network = NetworkState::clone(engine.network());
                Ok((Reply::Network(Box::new(network)), Vec::new()))
            }
            Request::FindPort { local, is_v6_only } => match engine.has_port(local, is_v6_only) {
                true => refuse(Refusal::AddressInUse, "the port has connections"),
                false => Ok((Reply::Done, Vec::new())),
            },
            Request::TakeLeft(wanted) => {
                let file = fds.into_iter().next().filter(|_| !wanted.is_question);
                self.on_take_left(token, &wanted, file, engine)
            }
            Request::Stop { .. } => {
                self.is_stopping = true;
                Ok((Reply::Done, Vec::new()))
            }
            _ => refuse(
                Refusal::BadRequest,
                "an instance does not take this request",
            ),
        }
    }

    fn on_hello(
        &mut self,
        token: u64,
        hello: Hello,
        ticket: Option<&OwnedFd>,
        engine: &Engine,
    ) -> Answer {
        if hello.version != CONTROL_VERSION {
            return refuse(
                Refusal::Version,
                format!(
                    "this instance speaks version {CONTROL_VERSION}, the program version {}",
                    hello.version
                ),
            );
        }
        let may_enter = hello.capability == Some(self.capability)
            || ticket.is_some_and(|ticket| self.tickets.is_valid(ticket));
        let Some(session) = self.sessions.get_mut(&token) else {
            return refuse(Refusal::Unknown, "the connection is gone");
        };
        if !session.is_trusted && !may_enter {
            return refuse(
                Refusal::NotPermitted,
                "this user may not use the instance; start the program with: slipstack run \
                 --instance",
            );
        }
        session.is_trusted = true;
        if !hello.is_shared {
            let Ok(peer) = session.socket.peer() else {
                return refuse(
                    Refusal::NotPermitted,
                    "the process on this connection cannot be determined",
                );
            };
            let name = hello
                .program
                .chars()
                .filter(|c| !c.is_control())
                .take(64)
                .collect();
            session.program = Some(Program {
                pid: peer.pid,
                uid: peer.uid,
                name,
                heirs: hello.heirs,
            });
        }
        let ticket = self.tickets.issue();
        Ok((
            Reply::Welcome(Box::new(Welcome {
                network: NetworkState::clone(engine.network()),
                ..self.welcome.clone()
            })),
            ticket.into_iter().collect(),
        ))
    }

    fn on_attach(&mut self, token: u64, region_len: usize, engine: &mut Engine) -> Answer {
        let Some(session) = self.sessions.get_mut(&token) else {
            return refuse(Refusal::Unknown, "the connection is gone");
        };
        let Some(program) = &session.program else {
            return refuse(
                Refusal::BadRequest,
                "this connection has not been introduced",
            );
        };
        if session.clients.len() >= CHANNELS_MAX {
            return refuse(
                Refusal::Exhausted,
                "this program has the largest number of channels allowed",
            );
        }
        let failed = |error: std::io::Error| {
            (
                Refusal::Failed,
                format!("a channel cannot be made: {error}"),
            )
        };
        if session.pidfd.is_none()
            && let Some(pidfd) = find_process(program.pid).and_then(watch)
        {
            watch_process(&self.epoll, token, &pidfd);
            session.pidfd = Some(pidfd);
        }
        let end = EngineEnd::create_of(region_len).map_err(failed)?;
        let region = end.region().try_clone_fd().map_err(failed)?;
        let program_bell = Doorbell::new().map_err(failed)?;
        let fds = vec![
            region,
            self.bell.try_clone_fd().map_err(failed)?,
            program_bell.try_clone_fd().map_err(failed)?,
        ];
        let channel = end.region().clone();
        let client = engine.attach_client(end, Some(program_bell.clone()));
        info!(pid = program.pid, region_len, "a program has a channel");
        session.clients.push((client, channel));
        session.bells.push(program_bell);
        let attached = Attached {
            instance: self.name.clone(),
            instance_pid: std::process::id(),
            descriptors: vec![
                Descriptor::Channel,
                Descriptor::EngineDoorbell,
                Descriptor::ProgramDoorbell,
            ],
        };
        Ok((Reply::Attached(attached), fds))
    }

    fn status(&self, engine: &Engine, viewer: Viewer) -> StatusReport {
        let programs: Vec<ProgramReport> = self
            .sessions
            .values()
            .filter_map(|session| session.describe(&self.name, SOCKETS_MAX))
            .map(|program| program.shown_to(viewer))
            .collect();
        let own = EngineReport {
            slot: self.slot,
            pid: std::process::id(),
            thread: 0,
            thread_name: String::new(),
            cores: String::new(),
            program: "slipstack".to_owned(),
            instance: Some(self.name.clone()),
            ports: 0,
            flows: engine.flow_count() as u32,
        };
        let instance = InstanceReport {
            name: self.name.clone(),
            pid: std::process::id(),
            engines: 1,
            programs,
            counters: engine.counter_rows(),
        };
        StatusReport {
            device: DeviceReport {
                interface: self.welcome.interface.clone(),
                ..DeviceReport::default()
            },
            engines: vec![own],
            instances: vec![instance],
            ..StatusReport::default()
        }
    }

    /// The tables in which the viewer's programs describe their sockets, as many as one message
    /// takes.
    fn programs(&self, from: usize, viewer: Viewer) -> (Reply, Vec<OwnedFd>) {
        let told = self.sessions.values().filter_map(|session| {
            let (program, table) = (session.program.as_ref()?, session.report.as_ref()?);
            if !viewer.may_see(program.uid) {
                return None;
            }
            let told = ProgramIdentity {
                pid: program.pid,
                program: program.name.clone(),
                instance: Some(self.name.clone()),
            };
            Some((told, table.fd().try_clone_to_owned().ok()?))
        });
        let mut left = told.skip(from);
        let (programs, tables) = left.by_ref().take(DESCRIPTORS_MAX).unzip();
        let is_cut = left.next().is_some();
        let answer = NetAnswer::Programs { programs, is_cut };
        (Reply::Net(Box::new(answer)), tables)
    }

    fn why(&self, pid: u32, engine: &Engine, viewer: Viewer) -> Answer {
        let of_pid = |session: &&super::clients::Session| {
            session
                .program
                .as_ref()
                .is_some_and(|program| program.pid == pid)
        };
        let report = self
            .sessions
            .values()
            .filter(of_pid)
            .max_by_key(|session| (session.report.is_some(), session.clients.len()));
        match report.and_then(|session| session.describe(&self.name, SOCKETS_OF_ONE_MAX)) {
            Some(program) if !viewer.may_see(program.uid) => {
                refuse(Refusal::NotPermitted, of_another_user(pid))
            }
            Some(program) => {
                let report = WhyReport {
                    program,
                    interface: self.welcome.interface.clone(),
                    device: self.welcome.device.clone(),
                    addresses: engine.network().addresses(),
                };
                Ok((Reply::Why(Box::new(report)), Vec::new()))
            }
            None => refuse(
                Refusal::Unknown,
                format!("process {pid} does not use the instance {}", self.name),
            ),
        }
    }
}
