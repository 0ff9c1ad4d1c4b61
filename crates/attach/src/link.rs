//! The control connection of one engine: requests and replies, and reconnecting after the keeper
//! was replaced.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use slipstack_channel::control::{
    ControlError, ControlSocket, Reply, Request, TIME_WAITS_PER_MESSAGE, TimeWaitEntry, Welcome,
};
use slipstack_config::Settings;
use slipstack_mem::{Lock, now_ns, raised};
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
    watched: Option<Arc<OwnedFd>>,
    welcome: Welcome,
    /// The region that the keeper holds for this client, for a successor that needs it again.
    region: Option<OwnedFd>,
    report: Option<OwnedFd>,
    retry_at: u64,
    /// Requests whose answers did not come in time: these precede the answer to the next request.
    unanswered: u32,
    /// Number of the last request for whose answer no caller waited.
    last: u64,
    /// Requests on their way that a successor of the keeper gets again, with their numbers.
    begun: VecDeque<(u64, Request)>,
}

impl State {
    /// Reads answers that no caller waits for; `patience_ms`: time limit for each.
    fn take_answers(&mut self, patience_ms: u64) {
        while self.unanswered > 0 {
            match self.socket.receive::<Reply>(patience_ms) {
                Err(ControlError::TimedOut | ControlError::Closed) => return,
                // Whatever it says, no caller waits for it.
                _ => self.on_answer(),
            }
        }
    }

    fn on_sent(&mut self) -> u64 {
        self.unanswered += 1;
        self.last += 1;
        self.last
    }

    fn on_answer(&mut self) {
        self.unanswered -= 1;
        while self
            .begun
            .front()
            .is_some_and(|(number, _)| self.has_answer(*number))
        {
            self.begun.pop_front();
        }
    }

    fn has_answer(&self, number: u64) -> bool {
        self.last - u64::from(self.unanswered) >= number
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
                _ => self.on_answer(),
            }
        }
        self.socket.send(request, fds)?;
        let answer = answer(&self.socket);
        if let Err(Error::Control(ControlError::TimedOut)) = answer {
            self.on_sent();
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
            // By path it would be as silent.
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
            last: 0,
            begun: VecDeque::new(),
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
            state.on_sent();
        }
    }

    /// Sends a request and returns its number, for [`KeeperClient::is_answered`]. `None`: the
    /// keeper cannot be asked at the moment.
    pub fn begin(&self, request: Request) -> Option<u64> {
        let mut state = self.state.lock();
        let is_free = state.unanswered < UNANSWERED_MAX && state.watched.is_some();
        if !is_free || state.socket.send(&request, &[]).is_err() {
            return None;
        }
        let number = state.on_sent();
        state.begun.push_back((number, request));
        Some(number)
    }

    /// Returns whether the keeper, or its successor, has answered; waits for that if told to. A
    /// keeper that cannot be reached will not answer.
    pub fn is_answered(&self, number: u64, is_waiting: bool) -> bool {
        let mut state = self.state.lock();
        if state.has_answer(number) {
            return true;
        }
        state.take_answers(if is_waiting { ANSWER_MS } else { 0 });
        let is_lost = !state.has_answer(number) && state.socket.is_closed();
        let is_over = is_lost && self.come_back(&mut state, ATTEMPTS).is_err();
        is_over || is_waiting || state.has_answer(number)
    }

    /// Gives the keeper the channel region of this engine.
    pub fn register_region(&self, region: OwnedFd) -> Result<(), Error> {
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

    pub fn register_report(&self, report: OwnedFd) -> Result<(), Error> {
        self.ask(&Request::RegisterReport, &[report.as_fd()])?;
        self.state.lock().report = Some(report);
        Ok(())
    }

    /// The descriptor to wait on; `None` while no keeper can be reached.
    pub fn watched(&self) -> Option<Arc<OwnedFd>> {
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
        for (_, request) in std::mem::take(&mut state.begun) {
            exchange(&socket, &request, &[])?;
        }
        state.watched = copy(&socket);
        state.socket = socket;
        state.unanswered = 0;
        state.welcome = welcome;
        warn!("the keeper was gone; its successor knows this process");
        Ok(())
    }

    pub fn descriptors(&self) -> Vec<RawFd> {
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

fn copy(socket: &ControlSocket) -> Option<Arc<OwnedFd>> {
    socket
        .as_fd()
        .try_clone_to_owned()
        .ok()
        .map(|fd| Arc::new(raised(fd)))
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
    fn an_answer_that_came_too_late_is_not_taken_for_that_to_the_next_question() {
        let (ours, keeper) = pair().unwrap();
        let mut state = State {
            watched: None,
            socket: ours,
            welcome: welcome(),
            region: None,
            report: None,
            retry_at: 0,
            unanswered: 1,
            last: 1,
            begun: VecDeque::from([(1, Request::EndSession)]),
        };
        assert!(!state.has_answer(1));
        let late = Reply::Ports { first: 1, last: 2 };
        for reply in [&late, &Reply::Done] {
            keeper.send(reply, &[]).unwrap();
        }
        let (reply, _) = state.exchange(&Request::EndSession, &[]).unwrap();
        assert_eq!((reply, state.unanswered), (Reply::Done, 0));
        assert!(state.has_answer(1) && state.begun.is_empty());
        drop(keeper);
        assert!(state.exchange(&Request::EndSession, &[]).is_err());
        assert_eq!(state.unanswered, 0);
    }
}
