//! A keeper as a process, each test in a network namespace of its own: it starts, leases, answers
//! frames, survives its own death, notices that of its clients, and leaves nothing behind.
//!
//! One program plays all parts: `inside` runs the tests, `keeper` is the keeper, `client` is a
//! program that leases a slot and sleeps. Without root or `unshare` it says so and passes.

mod descriptors;
mod log;
mod succession;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use slipstack_channel::control::net::NetworkState;
use slipstack_channel::control::{
    CONTROL_VERSION, ControlSocket, Hello, Refusal, Reply, Request, SlotLease, StatusReport,
    TIME_WAITS_PER_MESSAGE, TimeWaitEntry, Welcome, connect,
};
use slipstack_keeper::{DeviceChoice, Options, Spread, run};

fn main() -> ExitCode {
    let role: Vec<String> = std::env::args().skip(1).collect();
    match role.first().map(String::as_str) {
        Some("keeper") => keeper(Path::new(&role[1])),
        Some("bounded") => bounded(Path::new(&role[1]), &role[2]),
        Some("client") => client(Path::new(&role[1])),
        Some("crowd") => crowd(Path::new(&role[1])),
        Some("inside") => inside(&role[1]),
        _ => outside(),
    }
}

type Test = fn();

const TESTS: [(&str, Test); 16] = [
    ("a_keeper_leases_slots_and_refuses_taken_ports", leases),
    (
        "a_keeper_answers_arp_and_refuses_datagrams",
        answers_the_wire,
    ),
    (
        "a_keeper_takes_the_time_wait_of_engines_only",
        time_wait_of_engines,
    ),
    ("a_second_keeper_of_a_device_is_refused", second_keeper),
    ("a_killed_client_frees_its_leases_at_once", killed_client),
    (
        "a_killed_keeper_has_a_successor_that_knows_the_clients",
        succession::killed_keeper,
    ),
    (
        "a_slot_for_which_there_are_no_ports_is_not_leased",
        slot_without_ports,
    ),
    (
        "a_log_that_takes_nothing_ends_no_keeper",
        log::takes_nothing,
    ),
    (
        "a_keeper_without_descriptors_sleeps_while_somebody_knocks",
        descriptors::no_descriptors,
    ),
    (
        "a_keeper_starts_where_it_can_let_programs_in_or_not_at_all",
        descriptors::few_descriptors,
    ),
    (
        "a_successor_without_descriptors_ends_and_leaves_nothing",
        succession::successor_without_descriptors,
    ),
    (
        "a_standby_that_could_not_be_forked_is_tried_for_again",
        succession::standby_in_time,
    ),
    (
        "a_standby_that_dies_at_once_is_not_forked_again_at_once",
        succession::standby_that_dies,
    ),
    (
        "an_instance_has_a_name_that_a_terminal_can_show",
        name_of_an_instance,
    ),
    ("a_crowd_at_the_door_keeps_nobody_out", crowd_at_the_door),
    ("fifty_starts_leave_nothing_behind", fifty_starts),
];

/// Tests that run at a time: mostly they wait.
const AT_ONCE: usize = 4;

fn outside() -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return ExitCode::SUCCESS;
    }
    if !Command::new("unshare")
        .arg("-n")
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("skipped: needs unshare");
        return ExitCode::SUCCESS;
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some((name, _)) = TESTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !in_namespace(name) {
                failed.push(*name);
            }
        }
        failed
    };
    let failed: Vec<&str> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let failed = workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("worker"));
        failed.collect()
    });
    for name in &failed {
        println!("{name}: FAILED");
    }
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs one test in a network namespace of its own.
fn in_namespace(name: &str) -> bool {
    let own = std::env::current_exe().expect("own path");
    let mut command = Command::new("unshare");
    let status = command.arg("-n").arg(own).args(["inside", name]).status();
    status.expect("unshare").success()
}

fn inside(wanted: &str) -> ExitCode {
    let (name, test) = TESTS
        .iter()
        .find(|(name, _)| *name == wanted)
        .expect("name");
    let began = Instant::now();
    test();
    println!("{name}: {} ms", began.elapsed().as_millis());
    ExitCode::SUCCESS
}

/// The keeper's part.
fn keeper(base: &Path) -> ExitCode {
    let options = Options {
        base: Some(base.to_owned()),
        device: DeviceChoice {
            kind: Some("tap".to_owned()),
            ..DeviceChoice::of_interface("slip0")
        },
        network: NetworkState::default(),
        spread: Spread::default(),
        slots: 4,
        ports: (32_768, 60_999),
        is_autoconfigured: false,
        is_persistent: false,
        filter: Default::default(),
        tunables: Vec::new(),
    };
    log::start();
    match run(options, || {
        println!("ready");
        let null = std::fs::File::create("/dev/null").expect("null");
        rustix::stdio::dup2_stdout(&null).expect("dup2");
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A keeper that may have so many descriptors.
fn bounded(base: &Path, most: &str) -> ExitCode {
    bound_descriptors(most.parse().expect("number"));
    keeper(base)
}

fn bound_descriptors(most: u64) {
    let limit = rustix::process::Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("limit");
}

/// A program that leases a slot, listens on port 80 and waits to be killed.
fn client(control: &Path) -> ExitCode {
    let (socket, _) = greet(control, 77);
    lease(&socket);
    assert_eq!(ask(&socket, &listen_on(80)), Reply::Done);
    println!("leased");
    std::thread::sleep(Duration::from_secs(30));
    ExitCode::FAILURE
}

/// An unauthorised user that connects as often as possible.
fn crowd(control: &Path) -> ExitCode {
    bound_descriptors(4096);
    let nobody = rustix::process::Uid::from_raw(65534);
    rustix::thread::set_thread_uid(nobody).expect("setuid");
    let held: Vec<_> = (0..2200).map(|_| connect(control)).collect();
    println!("in");
    std::thread::sleep(Duration::from_secs(30));
    drop(held);
    ExitCode::FAILURE
}

/// A running keeper and where it lives.
struct Running {
    base: PathBuf,
    child: Child,
}

impl Running {
    fn start(topic: &str) -> Running {
        Running::logging(topic, Stdio::inherit())
    }

    fn logging(topic: &str, log: Stdio) -> Running {
        let base = std::env::temp_dir().join(format!("ss-keeper-{topic}-{}", std::process::id()));
        let mut child = command("keeper", &base).stderr(log).spawn().expect("spawn");
        let first = first_line(&mut child);
        assert_eq!(first, "ready");
        Running { base, child }
    }

    fn control(&self) -> PathBuf {
        let dir = std::fs::read_dir(&self.base)
            .expect("base")
            .flatten()
            .next()
            .expect("one directory");
        dir.path().join("control")
    }

    /// Waits until the keeper has ended by itself, and checks that nothing is left.
    fn ends_cleanly(mut self) {
        let status = self.child.wait().expect("wait");
        assert!(status.success());
        self.left_nothing();
    }

    fn left_nothing(&self) {
        wait_until("the directory is gone", || !self.base.exists());
        wait_until("the device is gone", || !device_exists());
    }
}

fn device_exists() -> bool {
    Path::new("/proc/self/net/dev").exists()
        && std::fs::read_to_string("/proc/self/net/dev")
            .expect("devices")
            .contains("slip0")
}

fn spawn(role: &str, path: &Path) -> Child {
    command(role, path).spawn().expect("spawn")
}

fn command(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.arg(role).arg(path).stdout(Stdio::piped());
    command
}

fn ip(words: &[&str]) {
    let status = Command::new("ip").args(words).status().expect("ip");
    assert!(status.success(), "ip {words:?}");
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout"))
        .read_line(&mut line)
        .expect("a line");
    line.trim().to_owned()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn hello(family: u64, resume: Option<u64>) -> Request {
    Request::Hello(Hello {
        version: CONTROL_VERSION,
        program: "test".to_owned(),
        family,
        heirs: 0,
        instance: None,
        capability: None,
        resume,
        is_shared: false,
    })
}

fn greet(control: &Path, family: u64) -> (ControlSocket, Welcome) {
    let socket = connect(control).expect("connect");
    match ask(&socket, &hello(family, None)) {
        Reply::Welcome(welcome) => (socket, *welcome),
        other => panic!("{other:?}"),
    }
}

fn ask(socket: &ControlSocket, request: &Request) -> Reply {
    socket.send(request, &[]).expect("send");
    socket.receive::<Reply>(5000).expect("receive").0
}

fn lease(socket: &ControlSocket) -> (SlotLease, Vec<OwnedFd>) {
    socket
        .send(&Request::LeaseSlot { thread: 0 }, &[])
        .expect("send");
    match socket.receive::<Reply>(5000).expect("receive") {
        (Reply::Slot(lease), fds) => (*lease, fds),
        other => panic!("{other:?}"),
    }
}

fn listen_on(port: u16) -> Request {
    Request::ListenOn {
        protocol: slipstack_channel::Transport::Tcp,
        address: Ipv4Addr::UNSPECIFIED.into(),
        port,
        is_v6_only: false,
        is_reuse_port: false,
        link: 0,
    }
}

fn status(socket: &ControlSocket) -> StatusReport {
    match ask(socket, &Request::Status) {
        Reply::Status(report) => *report,
        other => panic!("{other:?}"),
    }
}

fn is_refused(reply: &Reply, why: Refusal) -> bool {
    matches!(reply, Reply::Refused { refusal, .. } if *refusal == why)
}

fn leases() {
    let running = Running::start("leases");
    let (a, welcome) = greet(&running.control(), 1);
    // A TAP without options has an address of each family.
    let families = welcome.network.configured().map(|(ip, _)| ip.is_ipv4());
    assert_eq!(families.collect::<Vec<_>>(), [true, false]);
    let (lease_a, fds) = lease(&a);
    assert_eq!(lease_a.descriptors.len(), fds.len());
    drop(fds);
    assert_eq!(lease_a.slot, 1);
    assert_eq!(ask(&a, &listen_on(80)), Reply::Done);
    let (b, _) = greet(&running.control(), 2);
    let (lease_b, _) = lease(&b);
    assert_eq!(lease_b.slot, 2);
    assert_eq!(lease_b.sequence_key, lease_a.sequence_key);
    assert_ne!(lease_b.sequence_key[0], lease_b.sequence_key[1]);
    assert!(is_refused(&ask(&b, &listen_on(80)), Refusal::AddressInUse));
    let (sibling, _) = greet(&running.control(), 1);
    lease(&sibling);
    assert_eq!(ask(&sibling, &listen_on(80)), Reply::Done);
    let (fourth, _) = greet(&running.control(), 4);
    lease(&fourth);
    let (fifth, _) = greet(&running.control(), 5);
    // Its second request is that of any other process of its family.
    for refusal in [Refusal::Exhausted, Refusal::StillExhausted] {
        assert!(is_refused(
            &ask(&fifth, &Request::LeaseSlot { thread: 0 }),
            refusal
        ));
    }
    assert_eq!(status(&fifth).engines.len(), 4);
    for socket in [a, b, sibling, fourth, fifth] {
        assert_eq!(ask(&socket, &Request::EndSession), Reply::Done);
    }
    running.ends_cleanly();
}

fn answers_the_wire() {
    let running = Running::start("wire");
    let (socket, welcome) = greet(&running.control(), 1);
    let (address, _) = welcome.network.own().addresses[0];
    let udp = UdpSocket::bind("0.0.0.0:0").expect("bind");
    udp.connect((address, 9)).expect("connect");
    udp.set_read_timeout(Some(Duration::from_secs(2)))
        .expect("timeout");
    udp.send(b"hello").expect("send");
    let error = udp.recv(&mut [0; 16]).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    drop(socket);
    running.ends_cleanly();
}

fn time_wait_of_engines() {
    let running = Running::start("waits");
    let (socket, welcome) = greet(&running.control(), 1);
    let told = |local: std::net::IpAddr, remote: std::net::IpAddr, port| TimeWaitEntry {
        local: (local, 80).into(),
        remote: (remote, port).into(),
        snd_nxt: 1,
        rcv_nxt: 2,
        window: 3,
        stamps: None,
        left_ms: 60_000,
    };
    let own = welcome.network.own();
    let (ours, peer) = (own.addresses[0].0, own.hosts[0]);
    let entries: Vec<_> = (1..=TIME_WAITS_PER_MESSAGE as u16)
        .map(|port| told(ours, peer, port))
        .chain([told(peer, ours, 1)])
        .collect();
    let request = Request::TimeWaits { entries };
    assert!(is_refused(&ask(&socket, &request), Refusal::Unknown));
    lease(&socket);
    assert_eq!(ask(&socket, &request), Reply::Done);
    let counters = status(&socket).counters;
    let count = |wanted: &str| {
        let row = counters.iter().find(|(name, _)| name == wanted);
        row.map_or(0, |(_, value)| *value)
    };
    assert_eq!(count("time_waits_taken_over"), 512);
    assert_eq!(count("time_waits_refused"), 1);
    assert_eq!(ask(&socket, &Request::EndSession), Reply::Done);
    running.ends_cleanly();
}

fn second_keeper() {
    let running = Running::start("second");
    let mut second = spawn("keeper", &running.base);
    assert!(first_line(&mut second).starts_with("another keeper holds slip0"));
    assert!(!second.wait().expect("wait").success());
    let (socket, _) = greet(&running.control(), 1);
    assert_eq!(status(&socket).keeper_pid, running.child.id());
    drop(socket);
    running.ends_cleanly();
}

fn killed_client() {
    let running = Running::start("killed");
    let (watcher, _) = greet(&running.control(), 1);
    lease(&watcher);
    let mut victim = spawn("client", &running.control());
    assert_eq!(first_line(&mut victim), "leased");
    assert!(is_refused(
        &ask(&watcher, &listen_on(80)),
        Refusal::AddressInUse
    ));
    victim.kill().expect("kill");
    victim.wait().expect("wait");
    let began = Instant::now();
    wait_until("the port is free", || {
        ask(&watcher, &listen_on(80)) == Reply::Done
    });
    assert!(began.elapsed() < Duration::from_millis(500));
    assert_eq!(status(&watcher).engines.len(), 1);
    assert_eq!(ask(&watcher, &Request::EndSession), Reply::Done);
    drop(watcher);
    running.ends_cleanly();
}

fn slot_without_ports() {
    let running = Running::start("ports");
    let (rich, _) = greet(&running.control(), 1);
    let (other, _) = greet(&running.control(), 2);
    let (poor, _) = greet(&running.control(), 3);
    for client in [&rich, &other] {
        lease(client);
        while matches!(ask(client, &Request::LeasePorts), Reply::Ports { .. }) {}
    }
    for _ in 0..2 {
        assert!(is_refused(
            &ask(&poor, &Request::LeaseSlot { thread: 0 }),
            Refusal::Exhausted
        ));
    }
    assert_eq!(status(&poor).engines.len(), 2);
    assert_eq!(ask(&other, &Request::EndSession), Reply::Done);
    lease(&poor);
    drop((rich, other, poor));
    running.ends_cleanly();
}

fn keeper_process(pid: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid as i32).expect("pid")
}

/// Lets a process have no descriptor more than it has.
fn take_descriptors(pid: u32) {
    let names = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let used: std::collections::BTreeSet<u64> = names
        .filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let lowest_free = (0..).find(|number| !used.contains(number));
    limit_descriptors(pid, lowest_free);
}

fn limit_descriptors(pid: u32, most: Option<u64>) {
    let (pid, what) = (keeper_process(pid), rustix::process::Resource::Nofile);
    // The hard limit stays: not every process may raise it again.
    let limit = rustix::process::Rlimit {
        current: most,
        ..rustix::process::getrlimit(what)
    };
    rustix::process::prlimit(Some(pid), what, limit).expect("prlimit");
}

fn name_of_an_instance() {
    let running = Running::start("name");
    let (client, _) = greet(&running.control(), 1);
    for name in ["\u{1b}[2J", "a\nb", "../x", ""] {
        let Request::Hello(hello) = hello(2, None) else {
            unreachable!("a greeting");
        };
        let named = Request::Hello(Hello {
            instance: Some(name.to_owned()),
            ..hello
        });
        let socket = connect(&running.control()).expect("connect");
        let reply = ask(&socket, &named);
        assert!(is_refused(&reply, Refusal::BadRequest), "{reply:?}");
        assert!(!refusal_text(&reply).contains(char::is_control));
    }
    drop(client);
    running.ends_cleanly();
}

fn refusal_text(reply: &Reply) -> &str {
    match reply {
        Reply::Refused { message, .. } => message,
        _ => "",
    }
}

fn crowd_at_the_door() {
    let running = Running::start("crowd");
    let mut crowd = spawn("crowd", &running.control());
    assert_eq!(first_line(&mut crowd), "in");
    let (client, _) = greet(&running.control(), 1);
    lease(&client);
    crowd.kill().expect("kill");
    crowd.wait().expect("wait");
    assert_eq!(ask(&client, &Request::EndSession), Reply::Done);
    drop(client);
    running.ends_cleanly();
}

fn fifty_starts() {
    for _ in 0..50 {
        let running = Running::start("fifty");
        let (socket, _) = greet(&running.control(), 1);
        lease(&socket);
        assert_eq!(ask(&socket, &Request::EndSession), Reply::Done);
        let admin = connect(&running.control()).expect("connect");
        assert_eq!(
            ask(&admin, &Request::Stop { is_forced: false }),
            Reply::Done
        );
        drop((socket, admin));
        running.ends_cleanly();
    }
}
