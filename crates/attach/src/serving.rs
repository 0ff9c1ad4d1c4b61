//! The body of `slipstack serve`: engines in this process, each with a service on its thread.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::CpuSet;
use slipstack_channel::control::{Request, Welcome};
use slipstack_channel::{Inside, Placement, REGION_BYTES};
use slipstack_config::Settings;
use slipstack_engine::instance::{Reception, run};
use slipstack_engine::{Engine, Instant};
use slipstack_keeper::process::raise_descriptor_limit;
use slipstack_mem::{Doorbell, PrivateFd, Region, now_ns, process};
use tracing::error;

use crate::assembly::{Assembled, assemble};
use crate::door::Identity;
use crate::error::Error;
use crate::launch::check_network;
use crate::link::{KeeperClient, REGION};

/// Interval of checks whether a service is ready, or has ended.
const LOOK_NS: u64 = 1_000_000;
/// Time for a service to close its connections once it has to stop.
const GRACE_NS: u64 = 2_000_000_000;

const KEEPER: u64 = 0;

/// Engines that are to run a service.
#[derive(Clone, Debug)]
pub struct ServiceContext {
    pub number: usize,
    /// Number of engines.
    pub engines: usize,
    /// Wakes the engine.
    pub bell: Doorbell,
    /// The stack's network.
    pub welcome: Welcome,
}

/// A service ready to be attached, and its control.
pub struct Serving {
    pub inside: Inside,
    pub watch: Box<dyn Watch>,
    /// Whether it ends by itself and has to be polled for that.
    pub ends_itself: bool,
}

/// The process's view of the service of an engine.
pub trait Watch: Send {
    /// Returns whether the service listens on all of its addresses.
    fn is_ready(&self) -> bool;

    /// Returns one sentence if the service cannot do its work.
    fn refusal(&self) -> Option<String>;

    /// Has the service close everything.
    fn stop(&self);

    /// Returns whether the service has nothing left to do.
    fn is_over(&self) -> bool;
}

/// A message of an engine's thread.
enum EngineNotice {
    Ready,
    Refused(String),
    Ended(Result<(), Error>),
    Signal,
}

/// Holds back the signals that end the process until [`serve`] handles them. To be called before
/// the process has a second thread: a thread that does not block them would end it.
///
/// # Errors
/// The kernel's refusal.
pub fn hold_signals() -> Result<Signals, Error> {
    let fd = process::end_signals().map_err(Error::io("receive signals"))?;
    Ok(Signals(fd))
}

/// Signals that are held; may be used once for each [`serve`].
#[derive(Debug)]
pub struct Signals(OwnedFd);

/// As [`hold_signals`], for a process that reads something again at SIGHUP
/// ([`HangupSignals::on_each`]) instead of ending.
///
/// # Errors
/// The kernel's refusal.
pub fn hold_signals_and_hang_ups() -> Result<(Signals, HangupSignals), Error> {
    let ends = process::term_signals().map_err(Error::io("receive signals"))?;
    let hang_ups = process::hang_up().map_err(Error::io("receive signals"))?;
    Ok((Signals(ends), HangupSignals(hang_ups)))
}

/// Holds SIGHUP, and for later the signals that end the process: the thread that waits for SIGHUP
/// must not be where one of those ends it at once.
///
/// # Errors
/// The kernel's refusal.
pub fn hold_hang_ups() -> Result<HangupSignals, Error> {
    process::term_signals().map_err(Error::io("receive signals"))?;
    let fd = process::hang_up().map_err(Error::io("receive signals"))?;
    Ok(HangupSignals(fd))
}

/// SIGHUPs that are held.
#[derive(Debug)]
pub struct HangupSignals(OwnedFd);

impl HangupSignals {
    /// Calls `run` on a thread of its own each time one has come.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn on_each(self, mut run: impl FnMut() + Send + 'static) -> io::Result<()> {
        let body = move || {
            // Room for one signalfd record; signals of one number that wait are one record.
            let mut told = [0; 128];
            while await_readable(&self.0) {
                if rustix::io::read(&self.0, &mut told).is_ok() {
                    run();
                }
            }
        };
        let thread = std::thread::Builder::new().name("reload".to_owned());
        thread.spawn(body).map(|_| ())
    }
}

impl Signals {
    /// Calls `run` on a thread of its own when one of them has come.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn on_end(self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        watch_signals(self.0, run)
    }
}

/// Runs a service on an engine of each of the settings' cores (on one engine if they name none)
/// until SIGTERM, SIGINT or SIGHUP, or until every service has ended. `on_ready` is called when all
/// of them listen.
///
/// # Errors
/// An engine is not available, or a service was refused a resource.
pub fn serve(
    settings: &Settings,
    signals: Signals,
    make: &(dyn Fn(ServiceContext) -> io::Result<Serving> + Sync),
    on_ready: &mut dyn FnMut(&Welcome),
) -> Result<(), Error> {
    raise_descriptor_limit();
    let mut settings = settings.clone();
    settings.control_fds = Vec::new();
    settings.instances = Vec::new();
    let cores: Vec<Option<usize>> = match settings.cores.as_slice() {
        [] => vec![None],
        cores => cores.iter().copied().map(Some).collect(),
    };
    let links = links(&settings, cores.len())?;
    let welcome = links[0].welcome();
    let (tell, told) = channel();
    let stops: Vec<Doorbell> = (0..cores.len())
        .map(|_| Doorbell::new())
        .collect::<io::Result<_>>()
        .map_err(Error::io("create a doorbell"))?;
    let tell_end = tell.clone();
    let on_signal = move || {
        let _ = tell_end.send(EngineNotice::Signal);
    };
    watch_signals(signals.0, on_signal).map_err(Error::io("start a thread"))?;
    std::thread::scope(|scope| {
        for (number, (core, link)) in cores.iter().zip(links).enumerate() {
            let site = Site {
                settings: &settings,
                core: *core,
                link,
                stop: stops[number].clone(),
                tell: tell.clone(),
            };
            let engines = cores.len();
            let name = format!("engine-{number}");
            let body = move || site.run(number, engines, make);
            let spawned = std::thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, body);
            if let Err(error) = spawned {
                let error = Error::io("start a thread")(error);
                let _ = tell.send(EngineNotice::Ended(Err(error)));
            }
        }
        follow(&told, cores.len(), &stops, &mut || on_ready(&welcome))
    })
}

/// One client of the keeper for each engine.
fn links(settings: &Settings, engines: usize) -> Result<Vec<Arc<KeeperClient>>, Error> {
    let mut links = Vec::new();
    for _ in 0..engines {
        let link = KeeperClient::open(settings, &Identity::of_this_process(), None)?;
        check_network(settings, &link.welcome())?;
        links.push(Arc::new(link));
    }
    Ok(links)
}

fn watch_signals(signals: OwnedFd, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let body = move || {
        if await_readable(&signals) {
            run();
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(body).map(|_| ())
}

/// Waits until something can be read; `false` if the kernel refuses to wait.
fn await_readable(fd: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Hears the engines until all have ended; the first failure ends the others.
fn follow(
    told: &Receiver<EngineNotice>,
    engines: usize,
    stops: &[Doorbell],
    on_ready: &mut dyn FnMut(),
) -> Result<(), Error> {
    let (mut ready, mut ended, mut outcome) = (0, 0, Ok(()));
    while ended < engines {
        let Ok(told) = told.recv() else { break };
        match told {
            EngineNotice::Ready => {
                ready += 1;
                if ready == engines {
                    on_ready();
                }
                continue;
            }
            EngineNotice::Signal => {}
            EngineNotice::Refused(sentence) => {
                if outcome.is_ok() {
                    outcome = Err(Error::Service(sentence));
                }
            }
            EngineNotice::Ended(result) => {
                ended += 1;
                if outcome.is_ok() {
                    outcome = result;
                }
                if outcome.is_ok() {
                    continue;
                }
            }
        }
        stops.iter().for_each(Doorbell::ring);
    }
    outcome
}

/// The arguments of one engine's thread.
struct Site<'a> {
    settings: &'a Settings,
    core: Option<usize>,
    link: Arc<KeeperClient>,
    stop: Doorbell,
    tell: Sender<EngineNotice>,
}

impl Site<'_> {
    fn run(
        self,
        number: usize,
        engines: usize,
        make: &(dyn Fn(ServiceContext) -> io::Result<Serving> + Sync),
    ) {
        let outcome = self.serve(number, engines, make);
        let _ = self.tell.send(EngineNotice::Ended(outcome));
    }

    fn serve(
        &self,
        number: usize,
        engines: usize,
        make: &(dyn Fn(ServiceContext) -> io::Result<Serving> + Sync),
    ) -> Result<(), Error> {
        self.pin()?;
        let flows = Region::create("slipstack-flows", REGION_BYTES)
            .map_err(Error::io("create shared memory"))?;
        let Assembled {
            mut engine, bell, ..
        } = assemble(self.settings, &self.link, flows, Placement::Instance)?;
        let place = ServiceContext {
            number,
            engines,
            bell: bell.clone(),
            welcome: self.link.welcome(),
        };
        let Serving {
            inside,
            watch,
            ends_itself,
        } = make(place).map_err(Error::io("make the service"))?;
        engine.attach_owner(inside);
        let mut porter = InstanceService::new(self, watch, ends_itself)
            .map_err(Error::io("wait for signals"))?;
        let spin = self.settings.spin;
        let ran = run(&mut engine, &bell, spin, &mut porter);
        leave(&mut engine, &self.link);
        ran.map_err(Error::io("wait for frames"))
    }

    fn pin(&self) -> Result<(), Error> {
        let Some(core) = self.core else { return Ok(()) };
        let mut set = CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|_| Error::Service(format!("cannot run on core {core}")))
    }
}

/// Hands unsent data and TIME-WAIT entries to the keeper.
fn leave(engine: &mut Engine, link: &KeeperClient) {
    let now = Instant(now_ns());
    let handovers = engine.hand_over(now);
    for (id, handover) in (REGION + 1..).zip(handovers) {
        let images = handover.images();
        match link.hand_over(id, handover.region.fd(), images) {
            Ok(()) => engine.forget(&handover),
            Err(error) => error!(images, %error, "connections are reset"),
        }
    }
    link.pass_on_time_waits(&engine.time_waits(now));
    let _ = link.ask(&Request::EndSession, &[]);
}

/// Looks after an engine's service and its connection to the keeper.
struct InstanceService {
    epoll: OwnedFd,
    stop: Doorbell,
    watch: Box<dyn Watch>,
    ends_itself: bool,
    link: Arc<KeeperClient>,
    watched: Option<Arc<PrivateFd>>,
    tell: Sender<EngineNotice>,
    is_ready: bool,
    is_refused: bool,
    /// The service has to stop, and may take until then.
    until: Option<u64>,
    look_at: u64,
}

impl InstanceService {
    fn new(
        site: &Site<'_>,
        watch: Box<dyn Watch>,
        ends_itself: bool,
    ) -> io::Result<InstanceService> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut porter = InstanceService {
            stop: site.stop.clone(),
            watch,
            ends_itself,
            link: Arc::clone(&site.link),
            watched: None,
            tell: site.tell.clone(),
            is_ready: false,
            is_refused: false,
            until: None,
            look_at: 0,
            epoll,
        };
        let stop = EventData::new_u64(KEEPER + 1);
        epoll::add(&porter.epoll, &porter.stop, stop, EventFlags::IN)?;
        porter.watch_keeper();
        Ok(porter)
    }

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

    fn look_at_service(&mut self) {
        if !self.is_refused
            && let Some(sentence) = self.watch.refusal()
        {
            self.is_refused = true;
            let _ = self.tell.send(EngineNotice::Refused(sentence));
        }
        if !self.is_ready && self.watch.is_ready() {
            self.is_ready = true;
            let _ = self.tell.send(EngineNotice::Ready);
        }
    }
}

impl Reception for InstanceService {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn serve(&mut self, engine: &mut Engine, now: Instant) -> ControlFlow<()> {
        let mut events = Vec::with_capacity(4);
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spare = rustix::buffer::spare_capacity(&mut events);
        let _ = epoll::wait(&self.epoll, spare, Some(&zero));
        for event in events {
            match event.data.u64() {
                KEEPER => self.on_keeper(engine),
                _ => {
                    self.stop.clear();
                    self.watch.stop();
                    self.until.get_or_insert(now.0 + GRACE_NS);
                }
            }
        }
        self.look_at_service();
        self.look_at = now.0 + LOOK_NS;
        let is_late = self.until.is_some_and(|until| until <= now.0);
        if is_late || self.watch.is_over() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let looks = self.ends_itself || !self.is_ready || self.until.is_some();
        looks.then_some(Instant(self.look_at))
    }
}
