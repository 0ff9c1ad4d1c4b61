//! [`Attach`] for programs: does nothing until the first socket needs an engine.

mod left;
mod ports;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use slipstack_channel::control::net::NetworkState;
use slipstack_channel::control::{
    Attached, ControlSocket, Descriptor, Refusal, Reply, Request, Welcome,
};
use slipstack_channel::{
    Attach, AttachError, EngineHandle, LeftBehind, PassedOn, Policy, ProgramEnd, REGION_LEN_MAX,
    Transport,
};
use slipstack_config::{SLOTS_DEFAULT, Settings};
use slipstack_engine::Remote;
use slipstack_mem::{Doorbell, Lock, PrivateFd, Region, raised};

use crate::assembly::{self, OwnEngine};
use crate::door::{ANSWER_MS, Identity, by_path, introduce_with, random_u64, through_inherited};
use crate::error::Error;
use crate::link::KeeperClient;
use crate::queues::HookMaker;
use crate::room::region_bytes;
use crate::spread::Spread;

/// Forks in a row for which a lock that was held during the fork cannot be met again.
const GENERATIONS: usize = 8;
/// Engines that threads may have on machines with fewer processors, which the system divides: the
/// first, and eight beside it.
const ENGINES_MIN: usize = 9;
/// Most channels of threads to an instance, unless an option sets the number.
const CHANNELS: usize = 16;

/// The way of this process (and of the children it forks) to an engine.
pub fn client(settings: &Settings) -> Arc<dyn Attach> {
    client_with(settings, None)
}

/// As [`client`], with a program that sees the frames of in-process engines before they do.
pub fn client_with(settings: &Settings, hook: Option<Arc<HookMaker>>) -> Arc<dyn Attach> {
    Arc::new(Client::new(settings, hook))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

pub(crate) struct Client {
    hook: Option<Arc<HookMaker>>,
    settings: Settings,
    /// The settings for each instance that may be used; without instances there are none.
    places: Vec<Settings>,
    spread: Spread,
    program: String,
    /// Inherited over fork, and over exec together with a listener: processes of one family share
    /// their ports.
    family: AtomicU64,
    /// Inherited over fork, and told to programs that have connections of this one.
    heirs: u64,
    /// Counts forks. Each child has a state of its own: that of its parent may have been locked.
    generation: AtomicUsize,
    states: [Lock<State>; GENERATIONS],
}

#[derive(Default)]
struct State {
    welcome: Option<Welcome>,
    /// Asks for the policy before there is an engine.
    first_peer: Option<FirstPeer>,
    /// The connection of the first engine.
    link: Option<Arc<KeeperClient>>,
    further_engines: Vec<FurtherEngine>,
    /// A copy of the connection to the instance, for reports.
    instance: Option<ControlSocket>,
    /// The number of the instance that the first engine uses.
    place: usize,
    /// Number of further channels that threads have requested.
    further: usize,
    /// For the next instance of each name, by its number.
    tickets: HashMap<usize, PrivateFd>,
    /// Descriptors of the first engine's slot: its queue, and the claim that it is in use.
    held: Vec<RawFd>,
}

/// An engine beside the first.
struct FurtherEngine {
    slot: Option<u16>,
    /// As [`State::held`].
    held: Vec<RawFd>,
}

impl State {
    fn held(&self) -> impl Iterator<Item = RawFd> {
        let further = self.further_engines.iter().flat_map(|it| &it.held);
        self.held.iter().chain(further).copied()
    }
}

enum FirstPeer {
    Keeper(Box<KeeperClient>),
    Instance(ControlSocket),
}

impl Client {
    pub(crate) fn new(settings: &Settings, hook: Option<Arc<HookMaker>>) -> Client {
        Client {
            spread: Spread::new(settings.instances.len()),
            places: places(settings),
            hook,
            settings: settings.clone(),
            program: Identity::of_this_process().program,
            family: AtomicU64::new(random_u64()),
            heirs: random_u64(),
            generation: AtomicUsize::new(0),
            states: std::array::from_fn(|_| Lock::new(State::default())),
        }
    }

    /// The descriptors of its connections.
    #[cfg(test)]
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let raw = |fd: BorrowedFd<'_>| std::os::fd::AsRawFd::as_raw_fd(&fd);
        let mut fds = Vec::new();
        if let Some(state) = self.state().try_lock() {
            fds.extend(state.link.iter().flat_map(|link| link.descriptors()));
            fds.extend(state.held());
            let instance = state.instance.iter();
            fds.extend(instance.map(|socket| raw(socket.as_fd())));
            match &state.first_peer {
                Some(FirstPeer::Keeper(link)) => fds.extend(link.descriptors()),
                Some(FirstPeer::Instance(socket)) => fds.push(raw(socket.as_fd())),
                None => {}
            }
        }
        fds
    }

    fn identity(&self) -> Identity {
        Identity {
            program: self.program.clone(),
            family: self.family(),
            heirs: self.heirs,
            instance: None,
        }
    }

    fn has_instances(&self) -> bool {
        !self.places.is_empty()
    }

    fn state(&self) -> &Lock<State> {
        &self.states[self.generation.load(Ordering::Acquire) % GENERATIONS]
    }

    /// Returns the stack's addresses, requested once. Children inherit the answer of their parent.
    fn welcome(&self, state: &mut State) -> Result<Welcome, Error> {
        if let Some(welcome) = &state.welcome {
            return Ok(welcome.clone());
        }
        let (first_peer, welcome) = match self.has_instances() {
            true => {
                let (socket, welcome) =
                    self.reach_instance(state, state.place, &self.identity())?;
                (FirstPeer::Instance(socket), welcome)
            }
            false => {
                let link = KeeperClient::open(&self.settings, &self.identity(), None)?;
                let welcome = link.welcome();
                (FirstPeer::Keeper(Box::new(link)), welcome)
            }
        };
        state.first_peer = Some(first_peer);
        state.welcome = Some(welcome.clone());
        Ok(welcome)
    }

    fn ask_network(&self, state: &mut State) -> Result<NetworkState, Error> {
        match self.ask(state, &Request::Network)? {
            Reply::Network(told) => Ok(*told),
            _ => Err(Error::Confused),
        }
    }

    /// Asks the keeper or the instance, whichever this process is connected to.
    fn ask(&self, state: &mut State, request: &Request) -> Result<Reply, Error> {
        let ask = |socket: &ControlSocket| {
            socket.send(request, &[])?;
            Ok::<_, Error>(socket.receive::<Reply>(ANSWER_MS)?.0)
        };
        Ok(match (&state.first_peer, &state.link, &state.instance) {
            (Some(FirstPeer::Keeper(link)), ..) => link.ask(request, &[])?.0,
            (_, Some(link), _) => link.ask(request, &[])?.0,
            (Some(FirstPeer::Instance(socket)), ..) | (_, _, Some(socket)) => ask(socket)?,
            // A child that has not needed the stack yet.
            (None, None, None) => {
                state.welcome = None;
                self.welcome(state)?;
                return self.ask(state, request);
            }
        })
    }

    /// Another identity of this program, named after a thread.
    fn identity_of_thread(&self, thread: u32) -> Identity {
        Identity {
            program: format!("{}/{thread}", self.program),
            ..self.identity()
        }
    }

    fn reach_instance(
        &self,
        state: &mut State,
        number: usize,
        identity: &Identity,
    ) -> Result<(ControlSocket, Welcome), Error> {
        let introduce = |socket: &ControlSocket| {
            let hello = identity.hello(None, None);
            introduce_with(socket, hello, state.tickets.get(&number).map(|it| &**it))
        };
        let place = &self.places[number];
        let inherited = place.control_fds.first().copied();
        let inherited = inherited.and_then(through_inherited);
        let through = inherited.and_then(|socket| Some((introduce(&socket).ok()?, socket)));
        let ((welcome, ticket), socket) = match through {
            Some(reached) => reached,
            None => {
                let socket = by_path(place)?;
                (introduce(&socket)?, socket)
            }
        };
        if let Some(ticket) = ticket {
            state.tickets.insert(number, raised(ticket));
        }
        Ok((socket, welcome))
    }

    /// The connection to the keeper for another engine of ours.
    fn open_link(&self, state: &State, identity: &Identity) -> Result<KeeperClient, Error> {
        let capability = state.welcome.as_ref().map(|welcome| welcome.capability);
        KeeperClient::open(&self.settings, identity, capability)
    }

    fn assemble(
        &self,
        link: &Arc<KeeperClient>,
        thread: u32,
    ) -> Result<(EngineHandle, Vec<RawFd>), Error> {
        let own = OwnEngine {
            link: Arc::clone(link),
            thread,
            region_len: region_bytes()?,
        };
        assembly::in_process(&self.settings, own, self.hook.as_deref())
    }

    /// An engine of our own.
    fn attach_in_process(&self, state: &mut State, thread: u32) -> Result<EngineHandle, Error> {
        let link = match state.first_peer.take() {
            Some(FirstPeer::Keeper(link)) => *link,
            _ => self.open_link(state, &self.identity())?,
        };
        let link = Arc::new(link);
        state.welcome = Some(link.welcome());
        let (attachment, held) = match self.assemble(&link, thread) {
            Ok(made) => made,
            Err(error) => {
                // Closing the link returns the leases; the keeper still knows this program.
                drop(link);
                if matches!(error, Error::Refused { .. }) {
                    let link = self.open_link(state, &self.identity()).ok();
                    state.first_peer = link.map(|link| FirstPeer::Keeper(Box::new(link)));
                }
                return Err(error);
            }
        };
        // A former engine of this process, if there was one, has been given up.
        state.link = Some(link);
        state.further_engines.clear();
        state.held = held;
        Ok(attachment)
    }

    /// An engine of our own beside the first, for a thread, after which it is named.
    fn attach_another_in_process(
        &self,
        state: &mut State,
        thread: u32,
    ) -> Result<EngineHandle, Error> {
        let link = Arc::new(self.open_link(state, &self.identity_of_thread(thread))?);
        let (attachment, held) = self.assemble(&link, thread)?;
        let slot = attachment.driver.slot();
        state.further_engines.push(FurtherEngine { slot, held });
        Ok(attachment)
    }

    /// Chooses the instance of the first engine, unless that has been done.
    fn settle_place(&self, state: &mut State) -> usize {
        let place = self.spread.choose();
        if place != state.place {
            state.first_peer = None;
            state.place = place;
        }
        place
    }

    /// A channel to an instance's engine.
    fn attach_remote(&self, state: &mut State) -> Result<EngineHandle, Error> {
        let place = self.settle_place(state);
        let (socket, welcome) = match state.first_peer.take() {
            Some(FirstPeer::Instance(socket)) => {
                let welcome = self.welcome(state)?;
                (socket, welcome)
            }
            _ => self.reach_instance(state, place, &self.identity())?,
        };
        state.welcome = Some(welcome);
        // The connection to a former instance, if there was one, has been given up.
        let copy = socket.as_fd().try_clone_to_owned();
        state.instance = copy.ok().and_then(|fd| ControlSocket::from_fd(fd).ok());
        self.open_channel(socket)
    }

    /// A channel beside the first, for a thread of its own: to the instances by turns, from the one
    /// behind the first engine's on; to that one if the other cannot be reached.
    fn attach_another_remote(&self, state: &mut State, thread: u32) -> Result<EngineHandle, Error> {
        state.further += 1;
        let place = (state.place + state.further) % self.places.len();
        match self.attach_thread(state, place, thread) {
            Err(_) if place != state.place => self.attach_thread(state, state.place, thread),
            attached => attached,
        }
    }

    fn attach_thread(
        &self,
        state: &mut State,
        place: usize,
        thread: u32,
    ) -> Result<EngineHandle, Error> {
        let (socket, _) = self.reach_instance(state, place, &self.identity_of_thread(thread))?;
        self.open_channel(socket)
    }

    fn open_channel(&self, socket: ControlSocket) -> Result<EngineHandle, Error> {
        let ask = Request::Attach {
            program: self.program.clone(),
            region_len: region_bytes()?,
        };
        socket.send(&ask, &[])?;
        match socket.receive::<Reply>(ANSWER_MS)? {
            (Reply::Attached(attached), fds) => remote(attached, fds, socket),
            (Reply::Refused { refusal, message }, _) => Err(Error::Refused { refusal, message }),
            _ => Err(Error::Confused),
        }
    }
}

/// The settings for each instance, with its inherited connection.
fn places(settings: &Settings) -> Vec<Settings> {
    let names = settings.instances.iter().enumerate();
    let place = |(number, name): (usize, &String)| Settings {
        instances: vec![name.clone()],
        control_fds: settings
            .control_fds
            .get(number)
            .copied()
            .into_iter()
            .collect(),
        ..settings.clone()
    };
    names.map(place).collect()
}

/// A refusal of an instance is final; any other answer, and none, may come from one that ends,
/// starts or is away.
fn of_instance(error: Error) -> AttachError {
    AttachError {
        may_pass: !matches!(error, Error::Refused { .. } | Error::NoAddresses { .. }),
        ..AttachError::from(error)
    }
}

/// Returns the policy that follows from the keeper's welcome.
fn policy(welcome: Welcome) -> Policy {
    Policy::of(welcome.network, !welcome.device.is_own)
}

fn remote(
    attached: Attached,
    fds: Vec<OwnedFd>,
    socket: ControlSocket,
) -> Result<EngineHandle, Error> {
    let (mut channel, mut engine_bell, mut own_bell) = (None, None, None);
    for (role, fd) in attached.descriptors.iter().zip(fds) {
        match role {
            Descriptor::Channel => channel = Some(fd),
            Descriptor::EngineDoorbell => engine_bell = Some(Doorbell::from_fd(fd)),
            Descriptor::ProgramDoorbell => own_bell = Some(Doorbell::from_fd(fd)),
            _ => return Err(Error::Confused),
        }
    }
    let (Some(channel), Some(engine_bell), Some(own_bell)) = (channel, engine_bell, own_bell)
    else {
        return Err(Error::Confused);
    };
    let region = Region::open(channel, REGION_LEN_MAX).map_err(Error::io("map the channel"))?;
    let program = ProgramEnd::open(region.clone()).map_err(Error::io("open the channel"))?;
    region
        .dont_fork()
        .map_err(Error::io("exclude the channel from children"))?;
    let end = ProgramEnd::clone(&program);
    Ok(EngineHandle {
        driver: Arc::new(Remote::new(end, engine_bell, own_bell, socket)),
        program,
        describe: format!(
            "instance {} (pid {})",
            attached.instance, attached.instance_pid
        ),
        core: None,
    })
}

impl Attach for Client {
    fn attach(&self, thread: u32) -> Result<EngineHandle, AttachError> {
        let mut state = self.state().lock();
        match self.has_instances() {
            true => self.attach_remote(&mut state).map_err(of_instance),
            false => Ok(self.attach_in_process(&mut state, thread)?),
        }
    }

    fn attach_another(&self, thread: u32) -> Result<EngineHandle, AttachError> {
        let mut state = self.state().lock();
        match self.has_instances() {
            true => self
                .attach_another_remote(&mut state, thread)
                .map_err(of_instance),
            false => Ok(self.attach_another_in_process(&mut state, thread)?),
        }
    }

    fn on_given_back(&self, slot: u16) {
        let mut state = self.state().lock();
        let engines = &mut state.further_engines;
        // A later engine may have got the slot again.
        if let Some(at) = engines.iter().position(|it| it.slot == Some(slot)) {
            engines.remove(at);
        }
    }

    fn engines_max(&self) -> usize {
        match (self.has_instances(), self.settings.thread_engines) {
            (true, 0) => CHANNELS,
            (false, 0) => {
                let slots = self.settings.slots.unwrap_or(SLOTS_DEFAULT);
                let for_one = (usize::from(slots) * 3 / 4).max(1);
                processors().max(ENGINES_MIN).min(for_one)
            }
            (_, count) => usize::from(count),
        }
    }

    fn engines_shared(&self) -> usize {
        match self.settings.thread_engines {
            0 => processors().saturating_sub(1).clamp(1, self.engines_max()),
            count => usize::from(count),
        }
    }

    fn is_engine_each(&self) -> bool {
        !self.has_instances() && self.settings.thread_engines > 1
    }

    fn is_spread(&self) -> bool {
        self.places.len() > 1
    }

    fn heirs(&self) -> u64 {
        self.heirs
    }

    fn family(&self) -> u64 {
        self.family.load(Ordering::Relaxed)
    }

    fn join(&self, family: u64) {
        self.family.store(family, Ordering::Relaxed);
    }

    fn policy(&self) -> Result<Policy, AttachError> {
        let welcome = self.welcome(&mut self.state().lock())?;
        Ok(policy(welcome))
    }

    fn is_port_used(&self, local: SocketAddr, is_v6_only: bool) -> bool {
        let request = Request::FindPort { local, is_v6_only };
        let is_use = |refusal| refusal == Refusal::AddressInUse;
        match self.ask(&mut self.state().lock(), &request) {
            Ok(Reply::Refused { refusal, .. }) | Err(Error::Refused { refusal, .. }) => {
                is_use(refusal)
            }
            Ok(_) | Err(_) => false,
        }
    }

    fn take_left(
        &self,
        ends: (SocketAddr, SocketAddr),
        heirs: u64,
        has: PassedOn,
        unread: Option<&[u8]>,
    ) -> LeftBehind {
        self.ask_for_left((ends, heirs), has, unread)
    }

    fn is_port_of_instance(&self, transport: Transport, port: u16) -> bool {
        if !self.has_instances() {
            return false;
        }
        let mut state = self.state().lock();
        self.settle_place(&mut state);
        match self.ask(&mut state, &Request::Status) {
            Ok(Reply::Status(report)) => ports::has_bound(&report, transport, port),
            Ok(_) | Err(_) => false,
        }
    }

    fn policy_by_now(&self) -> Result<Policy, AttachError> {
        let mut state = self.state().lock();
        let network = self.ask_network(&mut state)?;
        let mut welcome = self.welcome(&mut state)?;
        welcome.network = network;
        state.welcome = Some(welcome.clone());
        Ok(policy(welcome))
    }

    fn after_fork_child(&self) {
        let parent = self.state();
        // The parent's engines go on in the parent: here they are forgotten and not dropped, except
        // their devices, whose open descriptors would outlive the engine.
        let (welcome, (place, tickets), held) = match parent.try_lock() {
            Some(mut state) => {
                let held = state.held().collect();
                std::mem::forget(state.link.take());
                state.first_peer = None;
                state.instance = None;
                let tickets = (state.place, std::mem::take(&mut state.tickets));
                (state.welcome.take(), tickets, held)
            }
            None => (None, (0, HashMap::new()), Vec::new()),
        };
        for fd in held.into_iter().filter_map(slipstack_mem::Descriptor::new) {
            fd.close();
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(mut state) = self.state().try_lock() {
            *state = State {
                welcome,
                place,
                tickets,
                ..State::default()
            };
        }
    }

    fn report(&self, region: BorrowedFd<'_>) {
        let Ok(copy) = region.try_clone_to_owned() else {
            return;
        };
        let copy = PrivateFd::of_engine(copy);
        let state = self.state().lock();
        let to_instance = |socket: &ControlSocket| {
            let _ = socket.send(&Request::RegisterReport, &[copy.as_fd()]);
            let _ = socket.receive::<Reply>(ANSWER_MS);
        };
        // If this fails, only `why` knows less.
        match (&state.link, &state.instance, &state.first_peer) {
            (Some(link), ..) => _ = link.register_report(copy),
            (None, Some(instance), _) => to_instance(instance),
            (None, None, Some(FirstPeer::Instance(socket))) => to_instance(socket),
            (None, None, Some(FirstPeer::Keeper(link))) => _ = link.register_report(copy),
            (None, None, None) => {}
        }
    }
}
