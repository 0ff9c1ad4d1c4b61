//! A process on an engine, on a wire, in virtual time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slipstack_channel::Heuristics;
use slipstack_channel::report::Why;
use slipstack_channel::{
    Attach, AttachError, Driver, EngineEnd, EngineHandle, Placement, Policy, ProgramEnd,
    TurnOutcome, WaitOn,
};
use slipstack_engine::{Engine, Instant, NeighbourTable, NetworkState, Role, Setup, StackConfig};
use slipstack_mem::Descriptor;
use slipstack_posix::{Errno, Interruptions, Kernel, LogLevel, Process, Settings, Spin};

use crate::sleep::Sleep;
use crate::wire::{OWN_MAC, PEER_MAC, Wire, WireDevice};

/// Turns that follow each other without the time moving.
const TURNS_MAX: usize = 10_000;
/// The clock at the beginning: a time-stamp clock at zero would hide mistakes.
const BEGIN_NS: u64 = 1_000_000_000_000;

/// Settings of a world.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    pub local_v4: Ipv4Addr,
    pub local_v6: Ipv6Addr,
    /// MTU, segmentation, TCP's defaults.
    pub stack: StackConfig,
}

impl Default for WorldConfig {
    /// The addresses are packetdrill's own defaults.
    fn default() -> Self {
        Self {
            local_v4: Ipv4Addr::new(192, 168, 0, 1),
            local_v6: Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1),
            stack: StackConfig {
                tso_max: 65_535 - 120,
                ..StackConfig::default()
            },
        }
    }
}

impl WorldConfig {
    fn addrs(&self) -> Vec<(IpAddr, u8)> {
        vec![(self.local_v4.into(), 16), (self.local_v6.into(), 48)]
    }

    /// Unused: every station is at the other end of the wire.
    fn gateways() -> Vec<IpAddr> {
        let v4 = Ipv4Addr::new(192, 168, 0, 2);
        let v6 = Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 2);
        vec![v4.into(), v6.into()]
    }
}

/// Options of the kernel's sockets: those under the numbers that a script's sockets have.
#[derive(Clone, Copy)]
pub struct KernelOptions {
    pub set: fn(fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno>,
    pub get: fn(fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno>,
}

impl KernelOptions {
    /// No kernel socket takes or knows any.
    pub const NONE: KernelOptions = KernelOptions {
        set: |_, _, _, _| Ok(()),
        get: |_, _, _, _| Err(Errno::ENOPROTOOPT),
    };
}

/// The engine, the wire and the clock, as process and script share them.
struct Shared {
    engine: Mutex<Option<Engine>>,
    wire: Wire,
    sleep: Sleep,
    config: Mutex<WorldConfig>,
    options: KernelOptions,
}

pub struct World {
    process: Arc<Process>,
    shared: Arc<Shared>,
}

impl World {
    pub fn new(config: WorldConfig) -> Self {
        Self::with_options(config, KernelOptions::NONE)
    }

    /// With a kernel that answers questions about sockets that the stack cannot.
    pub fn with_options(config: WorldConfig, options: KernelOptions) -> Self {
        let shared = Arc::new(Shared {
            engine: Mutex::new(None),
            wire: Wire::default(),
            sleep: Sleep::default(),
            config: Mutex::new(config),
            options,
        });
        shared.sleep.set_now(BEGIN_NS);
        let settings = Settings {
            spin: Spin::FixedUs(0),
            gather_us: 0,
            heuristics: Heuristics::default(),
            strict: true,
            has_ports_per_instance: false,
            verbosity: LogLevel::Off,
            journal: None,
            program: "packetdrill".to_owned(),
        };
        let kernel = Box::new(VirtualKernel(Arc::clone(&shared)));
        let attach = Arc::new(VirtualAttach(Arc::clone(&shared)));
        Self {
            process: Arc::new(Process::new(kernel, attach, settings)),
            shared,
        }
    }

    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    pub fn now_ns(&self) -> u64 {
        self.shared.sleep.now_ns()
    }

    /// Sets the address of this family from here on; too late once the stack has been used.
    pub fn adopt(&self, local: IpAddr) {
        let config = self.shared.config.lock();
        let mut config = config.unwrap_or_else(PoisonError::into_inner);
        match local {
            IpAddr::V4(local) => config.local_v4 = local,
            IpAddr::V6(local) => config.local_v6 = local,
        }
    }

    /// Sets the stack's configuration; too late once the stack has been used.
    pub fn set_stack(&self, stack: StackConfig) {
        let config = self.shared.config.lock();
        config.unwrap_or_else(PoisonError::into_inner).stack = stack;
    }

    /// A packet arrives.
    pub fn deliver(&self, packet: &[u8]) {
        self.shared.wire.push(packet);
        self.shared.turn();
    }

    /// The next packet that has left, and when.
    pub fn sent(&self) -> Option<(u64, Vec<u8>)> {
        self.shared.wire.pop()
    }

    pub fn has_sent(&self) -> bool {
        self.shared.wire.has_sent()
    }

    /// The time goes on to the engine's next deadline, or a waiting call's, but not beyond
    /// `until_ns`. Returns whether it got there.
    pub fn step(&self, until_ns: u64) -> bool {
        let next = [self.shared.deadline_ns(), self.shared.sleep.deadline_ns()];
        let next = next.into_iter().flatten().min().unwrap_or(u64::MAX);
        self.shared.sleep.set_now(next.min(until_ns));
        self.shared.turn();
        next >= until_ns
    }

    /// Advances the time to `until_ns`, whatever is sent meanwhile.
    pub fn advance(&self, until_ns: u64) {
        while !self.step(until_ns) {
            self.settle();
        }
        self.settle();
    }

    /// Returns whether there is anything to wait for.
    pub fn has_deadline(&self) -> bool {
        self.shared.deadline_ns().is_some()
    }

    /// Makes a call that was begun. The engine takes the commands it posted at once, because these
    /// worlds have no ticker that would.
    pub fn calling<T>(&self, call: impl FnOnce() -> T) -> T {
        let result = call();
        self.shared.turn();
        self.shared.sleep.end_call();
        result
    }

    /// A blocking call is about to begin on another thread.
    pub fn begin_call(&self) {
        self.shared.sleep.begin_call();
    }

    /// Lets the other thread's call run as far as it can. Returns whether it goes on.
    pub fn settle(&self) -> bool {
        self.shared.sleep.settle()
    }
}

impl Shared {
    fn config(&self) -> WorldConfig {
        let config = self.config.lock();
        config.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn engine(&self) -> MutexGuard<'_, Option<Engine>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.engine().as_ref()?.next_deadline().map(|at| at.0)
    }

    /// Turns until nothing is left to do at this time.
    fn turn(&self) -> bool {
        let now = Instant(self.sleep.now_ns());
        self.wire.set_now(now.0);
        let mut progress = false;
        if let Some(engine) = &mut *self.engine() {
            for _ in 0..TURNS_MAX {
                if !engine.turn(now).progress {
                    break;
                }
                progress = true;
            }
        }
        if progress {
            self.sleep.notify();
        }
        progress
    }
}

/// Makes the one engine.
struct VirtualAttach(Arc<Shared>);

impl Attach for VirtualAttach {
    fn attach(&self, _thread: u32) -> Result<EngineHandle, AttachError> {
        let failed = |what: &dyn std::fmt::Display| AttachError {
            sentence: format!("no shared memory for the script's engine: {what}"),
            why: Why::NoStack,
            may_pass: false,
            is_known: false,
        };
        let end = EngineEnd::create().map_err(|error| failed(&error))?;
        let program = ProgramEnd::open(end.region().clone()).map_err(|error| failed(&error))?;
        let config = self.0.config();
        let device = WireDevice::new(
            self.0.wire.clone(),
            config.stack.network.own().mtu,
            config.stack.tso_max,
        );
        let setup = Setup {
            stack: StackConfig {
                network: NetworkState::of(
                    config.stack.network.own().mtu,
                    config.addrs(),
                    &WorldConfig::gateways(),
                )
                .into(),
                mac: OWN_MAC,
                role: Role::Standalone,
                ..config.stack.clone()
            },
            device: Box::new(device),
            directory: None,
            interconnect: None,
            ports: None,
            neighbours: Some(Box::new(OnePeer)),
        };
        let mut engine = Engine::new(setup, Instant(self.0.sleep.now_ns()));
        engine.attach_client(end, None);
        *self.0.engine() = Some(engine);
        Ok(EngineHandle {
            program,
            driver: Arc::new(VirtualDriver(Arc::clone(&self.0))),
            describe: "a stack in virtual time".to_owned(),
            core: None,
        })
    }

    fn policy(&self) -> Result<Policy, AttachError> {
        let config = self.0.config();
        let mtu = config.stack.network.own().mtu;
        let network = NetworkState::of(mtu, config.addrs(), &WorldConfig::gateways());
        Ok(Policy::of(network, true))
    }

    fn after_fork_child(&self) {}
}

/// Every station is at the other end of the wire.
#[derive(Debug)]
struct OnePeer;

impl NeighbourTable for OnePeer {
    fn find(&self, _address: IpAddr) -> Option<[u8; 6]> {
        Some(PEER_MAC)
    }
}

struct VirtualDriver(Arc<Shared>);

impl Driver for VirtualDriver {
    fn turn(&self, _now_ns: u64) -> TurnOutcome {
        match self.0.turn() {
            true => TurnOutcome::Progress,
            false => TurnOutcome::Idle,
        }
    }

    fn commands(&self) {
        self.0.turn();
    }

    fn prepare_wait(&self, _now_ns: u64, _nap_ns_max: u64) -> Option<WaitOn> {
        self.0.sleep.arm();
        Some(WaitOn {
            fds: [-1, -1],
            timeout_ns: None,
        })
    }

    fn finish_wait(&self, _ready: [bool; 2], _now_ns: u64) {}

    fn wake_waiters(&self) {
        self.0.sleep.notify();
    }

    fn placement(&self) -> Placement {
        Placement::InProcess
    }

    fn is_dead(&self) -> bool {
        false
    }

    fn end_session(&self, _until_ns: u64) {}
}

/// No kernel socket of a script is ever used.
struct VirtualKernel(Arc<Shared>);

impl Kernel for VirtualKernel {
    fn ppoll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        _mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        for fd in fds.iter_mut() {
            fd.revents = 0;
        }
        let now = self.0.sleep.now_ns();
        let deadline = timeout.map(|timeout| now.saturating_add(timeout.as_nanos() as u64));
        if deadline != Some(now) {
            self.0.sleep.wait(deadline);
        }
        Ok(0)
    }

    fn signal_point(&self, _mask: Option<&libc::sigset_t>) -> Interruptions {
        Interruptions::default()
    }

    fn interruptions(&self) -> Interruptions {
        Interruptions::default()
    }

    fn thread(&self) -> usize {
        rustix::thread::gettid().as_raw_nonzero().get() as usize
    }

    fn now_ns(&self) -> u64 {
        self.0.sleep.now_ns()
    }

    /// A socket's address is bound in the kernel too, which has to allow an address of no
    /// interface.
    fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        if let (libc::IPPROTO_IP, libc::IP_FREEBIND, Some(number)) =
            (level, name, Descriptor::new(fd))
        {
            rustix::net::sockopt::set_ip_freebind(number.as_fd(), true)?;
            return Ok(());
        }
        (self.0.options.set)(fd, level, name, value)
    }

    fn getsockopt(&self, fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
        (self.0.options.get)(fd, level, name, value)
    }

    fn close_range(&self, _: u32, _: u32, _: u32) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    fn warn(&self, line: &str) {
        eprintln!("{line}");
    }
}
