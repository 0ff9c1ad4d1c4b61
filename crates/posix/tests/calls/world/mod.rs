//! A process whose engine loops back to itself, for tests of the calls.

mod engine;
mod kernel;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slipstack_channel::Heuristics;
use slipstack_channel::control::net::NetworkState;
use slipstack_channel::report::Why;
use slipstack_channel::{Attach, AttachError, Driver, EngineEnd, EngineHandle, Policy, ProgramEnd};
use slipstack_posix::addr::Family;
use slipstack_posix::{AddrBytes, Divert, Errno, LogLevel, Outcome, Process, Settings, Spin};

pub use engine::{FakeEngine, OWN, SILENT_PORT};
use kernel::{TestKernel, this_thread};

/// Makes one engine.
struct TestAttach {
    engine: Mutex<Option<Arc<FakeEngine>>>,
    fails: AtomicBool,
    is_away: AtomicBool,
    is_full: AtomicBool,
    takes_ms: AtomicU64,
    /// Threads inside a call, and whether the last one to request an engine was among them.
    inside: Arc<Mutex<Vec<usize>>>,
    was_inside: AtomicBool,
}

impl Attach for TestAttach {
    fn attach(&self, _thread: u32) -> Result<EngineHandle, AttachError> {
        let is_inside = self.inside.lock().unwrap().contains(&this_thread());
        self.was_inside.store(is_inside, Ordering::Relaxed);
        let takes = Duration::from_millis(self.takes_ms.load(Ordering::Relaxed));
        std::thread::sleep(takes);
        if self.fails.load(Ordering::Relaxed) {
            let sentence = "there is no engine for the test".to_owned();
            let may_pass = self.is_away.load(Ordering::Relaxed);
            return Err(AttachError {
                sentence,
                why: Why::NoStack,
                may_pass,
                is_known: false,
            });
        }
        let end = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(end.region().clone()).unwrap();
        let engine = Arc::new(FakeEngine::new(end, self.is_full.load(Ordering::Relaxed)));
        *self.engine.lock().unwrap() = Some(Arc::clone(&engine));
        Ok(EngineHandle {
            program,
            driver: engine as Arc<dyn Driver>,
            describe: "a test engine".to_owned(),
            core: None,
        })
    }

    fn policy(&self) -> Result<Policy, AttachError> {
        let network = NetworkState::of(1500, vec![(OWN.into(), 24)], &[]);
        Ok(Policy::of(network, false))
    }

    fn after_fork_child(&self) {}
}

pub struct World {
    pub process: Arc<Process>,
    pub warnings: Arc<Mutex<Vec<String>>>,
    pub jumps: Arc<AtomicBool>,
    attach: Arc<TestAttach>,
}

pub const STREAM: i32 = libc::SOCK_STREAM;
pub const DGRAM: i32 = libc::SOCK_DGRAM;
pub const NONBLOCK: i32 = libc::SOCK_NONBLOCK;

impl World {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// A process started with `--strict`.
    pub fn strict() -> Self {
        Self::with(|settings| settings.strict = true)
    }

    /// A process that variables of F-Stack's adapter give its instances.
    pub fn of_instances() -> Self {
        Self::with(|settings| settings.has_ports_per_instance = true)
    }

    fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let attach = Arc::new(TestAttach {
            engine: Mutex::new(None),
            fails: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            takes_ms: AtomicU64::new(0),
            inside: Arc::default(),
            was_inside: AtomicBool::new(false),
        });
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let jumps = Arc::new(AtomicBool::new(false));
        let kernel = TestKernel {
            warnings: Arc::clone(&warnings),
            inside: Arc::clone(&attach.inside),
            jumps: Arc::clone(&jumps),
        };
        let mut settings = Settings {
            spin: Spin::FixedUs(5),
            gather_us: 0,
            heuristics: Heuristics::default(),
            strict: false,
            has_ports_per_instance: false,
            verbosity: LogLevel::Warn,
            journal: None,
            program: "test".to_owned(),
        };
        change(&mut settings);
        let given: Arc<dyn Attach> = Arc::clone(&attach) as Arc<dyn Attach>;
        World {
            process: Arc::new(Process::new(Box::new(kernel), given, settings)),
            warnings,
            jumps,
            attach,
        }
    }

    /// Makes engines unavailable, or available again.
    pub fn has_no_engine(&self, it_fails: bool) {
        self.attach.fails.store(it_fails, Ordering::Relaxed);
    }

    /// The engine, an instance's, is away; or it may be had again.
    pub fn is_away(&self, is_away: bool) {
        self.attach.is_away.store(is_away, Ordering::Relaxed);
        self.has_no_engine(is_away);
    }

    /// The next engine has no address left to bind.
    pub fn is_full(&self) {
        self.attach.is_full.store(true, Ordering::Relaxed);
    }

    /// Sets the time that a request for an engine takes.
    pub fn takes(&self, time: Duration) {
        let millis = time.as_millis() as u64;
        self.attach.takes_ms.store(millis, Ordering::Relaxed);
    }

    /// Returns whether the thread that last requested an engine was marked as inside a call.
    pub fn was_asked_inside_a_call(&self) -> bool {
        self.attach.was_inside.load(Ordering::Relaxed)
    }

    pub fn engine(&self) -> Arc<FakeEngine> {
        self.attach.engine.lock().unwrap().clone().unwrap()
    }

    /// Returns a requested engine, once it listens on `addr`; another one than `old`.
    pub fn listening(&self, addr: SocketAddr, old: Option<&Arc<FakeEngine>>) -> Arc<FakeEngine> {
        let end = Instant::now() + Duration::from_secs(10);
        let is_old = |it: &Arc<FakeEngine>| old.is_some_and(|old| Arc::ptr_eq(it, old));
        loop {
            let engine = self.attach.engine.lock().unwrap().clone();
            if let Some(it) = engine.filter(|it| !is_old(it) && it.listens(addr)) {
                return it;
            }
            assert!(Instant::now() < end, "no engine listens on {addr}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn socket(&self, kind: i32) -> i32 {
        self.process.socket(libc::AF_INET, kind, 0).unwrap()
    }

    /// A listener on a free port of the stack's address.
    pub fn listener(&self, kind: i32) -> (i32, SocketAddr) {
        let fd = self.socket(STREAM | kind);
        self.process.bind(fd, &v4(OWN.octets(), 0)).unwrap();
        self.process.listen(fd, 16).unwrap();
        let name = self.process.getsockname(fd).unwrap();
        (fd, addr_of(name))
    }

    /// A connected pair: the client's number and the server's.
    pub fn pair(&self) -> (i32, i32) {
        let (listener, addr) = self.listener(0);
        let client = self.socket(STREAM);
        // A listener is an intent until a thread waits on it.
        self.poll_in(listener, 0);
        self.process.connect(client, &bytes_of(addr)).unwrap();
        let server = self.process.accept4(listener, 0).unwrap();
        self.process.close(listener).unwrap();
        (client, server.fd)
    }

    pub fn nonblock(&self, fd: i32) {
        self.process
            .fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK as usize)
            .unwrap();
    }

    pub fn send(&self, fd: i32, bytes: &[u8]) -> Outcome<usize> {
        self.process
            .sendmsg(fd, &[IoSlice::new(bytes)], None, &[], 0)
    }

    pub fn recv(&self, fd: i32, len: usize, flags: i32) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = self
            .process
            .recvmsg(fd, &mut [IoSliceMut::new(&mut bytes)], &mut [], flags)?;
        bytes.truncate(got.len);
        Ok(bytes)
    }

    /// Returns poll's events of one descriptor at once.
    pub fn poll_in(&self, fd: i32, events: i16) -> i16 {
        let mut fds = [libc::pollfd {
            fd,
            events,
            revents: 0,
        }];
        let now = Some(std::time::Duration::ZERO);
        self.process.poll(&mut fds, now, None).unwrap();
        fds[0].revents
    }

    pub fn int_option(&self, fd: i32, level: i32, name: i32) -> i32 {
        let mut value = [0; 4];
        assert_eq!(self.process.getsockopt(fd, level, name, &mut value), Ok(4));
        i32::from_ne_bytes(value)
    }
}

pub fn v4(ip: [u8; 4], port: u16) -> Vec<u8> {
    bytes_of(SocketAddr::from((ip, port)))
}

pub fn bytes_of(addr: SocketAddr) -> Vec<u8> {
    let family = match addr {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    };
    AddrBytes::new(addr, family).as_bytes().to_vec()
}

pub fn addr_of(bytes: AddrBytes) -> SocketAddr {
    let bytes = bytes.as_bytes();
    let family = match bytes.len() {
        16 => Family::V4,
        _ => Family::V6,
    };
    match slipstack_posix::addr::parse(bytes, family).unwrap() {
        slipstack_posix::addr::Given::Addr(addr) => addr,
        other => panic!("{other:?}"),
    }
}

pub fn fails<T: std::fmt::Debug + PartialEq>(outcome: Outcome<T>, errno: Errno) {
    assert_eq!(outcome, Err(Divert::Errno(errno)));
}
