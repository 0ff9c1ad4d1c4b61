//! The control connection of one engine: requests and replies, and reconnecting after the keeper
//! was replaced.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use slipstack_channel::control::{
    ControlError, ControlSocket, Reply, Request, TIME_WAITS_PER_MESSAGE, TimeWaitEntry, Welcome,
};
use slipstack_config::Settings;
use slipstack_mem::{Lock, PrivateFd, now_ns};
use tracing::{debug, warn};

use crate::door::{ANSWER_MS, Identity, by_path, introduce, through_inherited};
use crate::error::Error;
use crate::keeper::{meet, or_unresponsive};

/// Distance of attempts to reach a keeper that cannot be reached.
const RETRY_NS: u64 = 1_000_000_000;
/// Attempts to reach the successor at once, and their distance.
const ATTEMPTS: u32 = 40;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(25);
/// Most answers that are outstanding without a caller that waits for them.
const UNANSWERED_MAX: u32 = 16;

/// A client of the keeper.
pub struct KeeperClient {
    settings: Settings,
    identity: Identity,
    state: Lock<State>,
}

struct State {
    socket: ControlSocket,
    /// A copy of the socket's descriptor, for waiting.
    watched: Option<Arc<PrivateFd>>,
    welcome: Welcome,
    /// The region that the keeper holds for this client, for a successor that needs it again.
    region: Option<PrivateFd>,
    report: Option<PrivateFd>,
    retry_at: u64,
    /// Requests whose answers did not come in time: these precede the answer to the next request.
    unanswered: u32,
}

impl State {
    /// Reads answers that no caller waits for; `patience_ms`: time limit for each.
    fn take_answers(&mut self, patience_ms: u64) {
        while self.unanswered > 0 {
            match self.socket.receive::<Reply>(patience_ms) {
                Err(ControlError::TimedOut | ControlError::Closed) => return,
                _ => self.unanswered -= 1,
            }
        }
    }

    fn exchange(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        while self.unanswered > 0 {
            match self.socket.receive::<Reply>(ANSWER_MS) {
                Err(error @ (ControlError::TimedOut | ControlError::Closed)) => {
                    return Err(error.into());
                }
                // No caller waits for this answer, a refusal included.
                _ => self.unanswered -= 1,
            }
        }
        self.socket.send(request, fds)?;
        let answer = answer(&self.socket);
        if let Err(Error::Control(ControlError::TimedOut)) = answer {
            self.unanswered += 1;
        }
        answer
    }
}

/// The number of the one channel region of an in-process engine.
pub const REGION: u64 = 1;

impl KeeperClient {
    /// Becomes a client: through the inherited connection, else by path with the `capability` of an
    /// ancestor; starts a keeper if there is none.
    pub fn open(
        settings: &Settings,
        identity: &Identity,
        capability: Option<u64>,
    ) -> Result<KeeperClient, Error> {
        let hello = || identity.hello(capability, None);
        let inherited = settings
            .control_fds
            .first()
            .copied()
            .and_then(through_inherited);
        let greeted = inherited.map(|socket| (introduce(&socket, hello()), socket));
        let (socket, welcome) = match greeted {
            Some((Ok(welcome), socket)) => (socket, welcome),
            // A keeper that is silent here would be silent by path too.
            Some((Err(error @ Error::Control(ControlError::TimedOut)), socket)) => {
                return Err(or_unresponsive(error, settings, Some(&socket)));
            }
            _ => meet(settings, &hello())?,
        };
        let state = State {
            watched: copy(&socket),
            socket,
            welcome,
            region: None,
            report: None,
            retry_at: 0,
            unanswered: 0,
        };
        Ok(KeeperClient {
            settings: settings.clone(),
            identity: identity.clone(),
            state: Lock::new(state),
        })
    }

    pub fn welcome(&self) -> Welcome {
        self.state.lock().welcome.clone()
    }

    /// Asks the keeper; if it has been replaced, its successor.
    pub fn ask(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        let mut state = self.state.lock();
        debug!(request = request.shown(), "the keeper is asked");
        match state.exchange(request, fds) {
            Err(Error::Control(ControlError::Closed)) => {
                self.come_back(&mut state, ATTEMPTS)?;
                state.exchange(request, fds)
            }
            answer => answer,
        }
    }

    /// As [`KeeperClient::ask`], for a request whose answer does not matter: the caller does not
    /// wait.
    pub fn tell(&self, request: &Request) {
        let mut state = self.state.lock();
        if state.unanswered >= UNANSWERED_MAX {
            state.take_answers(ANSWER_MS);
        }
        if state.socket.send(request, &[]).is_ok() {
            state.unanswered += 1;
        }
    }

    /// Gives the keeper the channel region of this engine.
    pub fn register_region(&self, region: PrivateFd) -> Result<(), Error> {
        self.ask(&Request::RegisterRegion { id: REGION }, &[region.as_fd()])?;
        self.state.lock().region = Some(region);
        Ok(())
    }

    /// Gives the keeper connections in the channel of a program that an instance serves: `id` is
    /// any number that this client has not used.
    pub fn hand_over(&self, id: u64, channel: BorrowedFd<'_>, images: u32) -> Result<(), Error> {
        self.ask(&Request::RegisterRegion { id }, &[channel])?;
        self.ask(&Request::Handover { id, images }, &[])?;
        Ok(())
    }

    /// Sends the engine's TIME-WAIT entries to the keeper as the engine ends, as far as it has
    /// room. No answer is awaited: frames to the engine's slot are not read until the keeper has
    /// processed the last message.
    pub fn pass_on_time_waits(&self, entries: &[TimeWaitEntry]) {
        for entries in entries.chunks(TIME_WAITS_PER_MESSAGE) {
            let entries = entries.to_vec();
            self.tell(&Request::TimeWaits { entries });
        }
    }

    pub fn register_report(&self, report: PrivateFd) -> Result<(), Error> {
        self.ask(&Request::RegisterReport, &[report.as_fd()])?;
        self.state.lock().report = Some(report);
        Ok(())
    }

    /// The descriptor to wait on; `None` while no keeper can be reached.
    pub fn watched(&self) -> Option<Arc<PrivateFd>> {
        self.state.lock().watched.clone()
    }

    /// Handles a readable connection: answers that no caller waits for, or a hang-up.
    pub fn on_readable(&self) {
        let mut state = self.state.lock();
        state.take_answers(0);
        if state.socket.is_closed() {
            let _ = self.come_back(&mut state, ATTEMPTS);
        }
    }

    /// Tries from time to time to reach a keeper that could not be reached; only one attempt is
    /// made, because the caller is a stand-in that has an engine to run.
    pub fn on_time(&self) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if state.watched.is_none() && now_ns() >= state.retry_at {
            let _ = self.come_back(&mut state, 0);
        }
    }

    /// Presents this client to the successor of its keeper.
    fn come_back(&self, state: &mut State, attempts: u32) -> Result<(), Error> {
        state.watched = None;
        state.retry_at = now_ns() + RETRY_NS;
        let capability = Some(state.welcome.capability);
        let mut resume = Some(state.welcome.client);
        let mut attempt = 0;
        let (socket, welcome) = loop {
            let met = by_path(&self.settings).and_then(|socket| {
                let welcome = introduce(&socket, self.identity.hello(capability, resume))?;
                Ok((socket, welcome))
            });
            match met {
                Ok(met) => break met,
                // Without an engine it does not matter which client this process is.
                Err(Error::Refused { .. }) if resume.is_some() && state.region.is_none() => {
                    resume = None
                }
                Err(Error::Refused { refusal, message }) => {
                    return Err(Error::Refused { refusal, message });
                }
                // Silence has lasted long enough when it is an error.
                Err(error @ Error::Control(ControlError::TimedOut)) => return Err(error),
                Err(error) if attempt == attempts => return Err(error),
                Err(_) => {}
            }
            attempt += 1;
            std::thread::sleep(PAUSE);
        };
        if let Some(region) = &state.region {
            exchange(
                &socket,
                &Request::RegisterRegion { id: REGION },
                &[region.as_fd()],
            )?;
        }
        if let Some(report) = &state.report {
            exchange(&socket, &Request::RegisterReport, &[report.as_fd()])?;
        }
        state.watched = copy(&socket);
        state.socket = socket;
        state.unanswered = 0;
        state.welcome = welcome;
        warn!("the keeper was gone; its successor knows this process");
        Ok(())
    }

    #[cfg(test)]
    pub fn descriptors(&self) -> Vec<std::os::fd::RawFd> {
        use std::os::fd::AsRawFd;
        let Some(state) = self.state.try_lock() else {
            return Vec::new();
        };
        let mut fds = vec![state.socket.as_fd().as_raw_fd()];
        fds.extend(state.watched.as_ref().map(|fd| fd.as_raw_fd()));
        fds.extend(
            [&state.region, &state.report]
                .into_iter()
                .flatten()
                .map(AsRawFd::as_raw_fd),
        );
        fds
    }
}

fn copy(socket: &ControlSocket) -> Option<Arc<PrivateFd>> {
    socket
        .as_fd()
        .try_clone_to_owned()
        .ok()
        .map(|fd| Arc::new(PrivateFd::of_engine(fd)))
}

fn exchange(
    socket: &ControlSocket,
    request: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<(Reply, Vec<OwnedFd>), Error> {
    socket.send(request, fds)?;
    answer(socket)
}

fn answer(socket: &ControlSocket) -> Result<(Reply, Vec<OwnedFd>), Error> {
    match socket.receive::<Reply>(ANSWER_MS)? {
        (Reply::Refused { refusal, message }, _) => Err(Error::Refused { refusal, message }),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use slipstack_channel::control::net::NetworkState;
    use slipstack_channel::control::{DeviceSummary, pair};

    use super::*;

    fn welcome() -> Welcome {
        Welcome {
            client: 1,
            capability: 2,
            keeper_pid: 3,
            interface: "slip0".to_owned(),
            device: DeviceSummary::default(),
            vlan: 0,
            network: NetworkState::default(),
            is_unused: false,
        }
    }

    #[test]
    fn a_late_answer_is_not_taken_for_the_answer_to_the_next_request() {
        let (ours, keeper) = pair().unwrap();
        let mut state = State {
            watched: None,
            socket: ours,
            welcome: welcome(),
            region: None,
            report: None,
            retry_at: 0,
            unanswered: 1,
        };
        let late = Reply::Ports { first: 1, last: 2 };
        for reply in [&late, &Reply::Done] {
            keeper.send(reply, &[]).unwrap();
        }
        let (reply, _) = state.exchange(&Request::EndSession, &[]).unwrap();
        assert_eq!((reply, state.unanswered), (Reply::Done, 0));
        drop(keeper);
        assert!(state.exchange(&Request::EndSession, &[]).is_err());
        assert_eq!(state.unanswered, 0);
    }
}
