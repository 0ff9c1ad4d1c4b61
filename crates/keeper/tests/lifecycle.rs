//! A keeper as a process, in a network namespace of its own: it starts, leases, answers the wire,
//! survives its own death, notices that of its clients, and leaves nothing behind.
//!
//! The same program plays all parts: `inside` runs the tests, `keeper` is the keeper, `client` is a
//! program that leases a slot and sleeps. Without root, or without `unshare`, it says so and passes.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use slipstack_channel::control::{
    CONTROL_VERSION, ControlSocket, Hello, Protocol, Refusal, Reply, Request, SlotLease,
    StatusReport, Welcome, connect,
};
use slipstack_keeper::{DeviceChoice, Options, run};

fn main() -> ExitCode {
    let role: Vec<String> = std::env::args().skip(1).collect();
    match role.first().map(String::as_str) {
        Some("keeper") => keeper(Path::new(&role[1])),
        Some("client") => client(Path::new(&role[1])),
        Some("inside") => inside(),
        _ => outside(),
    }
}

fn outside() -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return ExitCode::SUCCESS;
    }
    let own = std::env::current_exe().expect("own path");
    let Ok(status) = Command::new("unshare")
        .arg("-n")
        .arg(own)
        .arg("inside")
        .status()
    else {
        println!("skipped: needs unshare");
        return ExitCode::SUCCESS;
    };
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn inside() -> ExitCode {
    type Test = fn();
    let tests: [(&str, Test); 6] = [
        ("a_keeper_leases_slots_and_refuses_taken_ports", leases),
        (
            "a_keeper_answers_arp_and_refuses_datagrams",
            answers_the_wire,
        ),
        ("a_second_keeper_of_a_device_is_refused", second_keeper),
        ("a_killed_client_frees_its_leases_at_once", killed_client),
        (
            "a_killed_keeper_has_a_successor_that_knows_the_clients",
            killed_keeper,
        ),
        ("fifty_starts_leave_nothing_behind", fifty_starts),
    ];
    for (name, test) in tests {
        let began = Instant::now();
        test();
        println!("{name}: {} ms", began.elapsed().as_millis());
    }
    ExitCode::SUCCESS
}

/// The keeper's part.
fn keeper(base: &Path) -> ExitCode {
    let options = Options {
        base: Some(base.to_owned()),
        device: DeviceChoice::OwnTap("slip0".to_owned()),
        addresses: Vec::new(),
        gateways: Vec::new(),
        slots: 4,
        is_autoconfigured: false,
        routes: Vec::new(),
        rules: Vec::new(),
        is_forwarding: false,
        vlan: 0,
        is_persistent: false,
    };
    match run(options, || {
        println!("ready");
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .expect("null");
        rustix::stdio::dup2_stdout(&null).expect("dup2");
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
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

/// A running keeper and where it lives.
struct Running {
    base: PathBuf,
    child: Child,
}

impl Running {
    fn start(topic: &str) -> Running {
        let base = std::env::temp_dir().join(format!("ss-keeper-{topic}-{}", std::process::id()));
        let mut child = spawn("keeper", &base);
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

    /// Waits until the keeper has gone by itself, and looks what is left.
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
    Command::new(std::env::current_exe().expect("own path"))
        .arg(role)
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn")
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
        instance: None,
        capability: None,
        resume,
        is_shared: false,
    })
}

fn greet(control: &Path, family: u64) -> (ControlSocket, Welcome) {
    let socket = connect(control).expect("connect");
    match ask(&socket, &hello(family, None)) {
        Reply::Welcome(welcome) => (socket, welcome),
        other => panic!("{other:?}"),
    }
}

fn ask(socket: &ControlSocket, request: &Request) -> Reply {
    socket.send(request, &[]).expect("send");
    socket.receive::<Reply>(5000).expect("receive").0
}

fn lease(socket: &ControlSocket) -> (SlotLease, Vec<OwnedFd>) {
    socket.send(&Request::LeaseSlot, &[]).expect("send");
    match socket.receive::<Reply>(5000).expect("receive") {
        (Reply::Slot(lease), fds) => (*lease, fds),
        other => panic!("{other:?}"),
    }
}

fn listen_on(port: u16) -> Request {
    Request::ListenOn {
        protocol: Protocol::Tcp,
        address: Ipv4Addr::UNSPECIFIED.into(),
        port,
        is_reuse_port: false,
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
    let families = welcome.addresses.iter().map(|(ip, _)| ip.is_ipv4());
    assert_eq!(families.collect::<Vec<_>>(), [true, false]);
    let (lease_a, fds) = lease(&a);
    assert_eq!(lease_a.descriptors.len(), fds.len());
    drop(fds);
    assert_eq!(lease_a.slot, 1);
    assert_eq!(ask(&a, &listen_on(80)), Reply::Done);
    let (b, _) = greet(&running.control(), 2);
    assert_eq!(lease(&b).0.slot, 2);
    assert!(is_refused(&ask(&b, &listen_on(80)), Refusal::AddressInUse));
    let (sibling, _) = greet(&running.control(), 1);
    lease(&sibling);
    assert_eq!(ask(&sibling, &listen_on(80)), Reply::Done);
    let (fourth, _) = greet(&running.control(), 4);
    lease(&fourth);
    let (fifth, _) = greet(&running.control(), 5);
    assert!(is_refused(
        &ask(&fifth, &Request::LeaseSlot),
        Refusal::Exhausted
    ));
    assert_eq!(status(&fifth).engines.len(), 4);
    for socket in [a, b, sibling, fourth, fifth] {
        assert_eq!(ask(&socket, &Request::Goodbye), Reply::Done);
    }
    running.ends_cleanly();
}

fn answers_the_wire() {
    let running = Running::start("wire");
    let (socket, welcome) = greet(&running.control(), 1);
    let (address, _) = welcome.addresses[0];
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
    assert_eq!(ask(&watcher, &Request::Goodbye), Reply::Done);
    drop(watcher);
    running.ends_cleanly();
}

fn killed_keeper() {
    let mut running = Running::start("succession");
    let (socket, welcome) = greet(&running.control(), 1);
    lease(&socket);
    assert_eq!(ask(&socket, &listen_on(80)), Reply::Done);
    for _ in 0..3 {
        let (admin, _) = greet(&running.control(), 99);
        let keeper_pid = status(&admin).keeper_pid;
        let pid = rustix::process::Pid::from_raw(keeper_pid as i32).expect("pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
        let _ = admin.receive::<Reply>(2000).expect_err("hangs up");
        let began = Instant::now();
        let (again, _) = greet(&running.control(), 98);
        assert!(began.elapsed() < Duration::from_millis(500));
        let report = status(&again);
        assert_ne!(report.keeper_pid, keeper_pid);
        assert_eq!(report.engines.len(), 1);
        assert!(is_refused(
            &ask(&again, &listen_on(80)),
            Refusal::AddressInUse
        ));
    }
    let _ = running.child.wait();
    let back = connect(&running.control()).expect("connect");
    assert!(matches!(
        ask(&back, &hello(1, Some(welcome.client))),
        Reply::Welcome(_)
    ));
    assert_eq!(ask(&back, &listen_on(81)), Reply::Done);
    assert_eq!(ask(&back, &Request::Goodbye), Reply::Done);
    drop((socket, back));
    running.left_nothing();
}

fn fifty_starts() {
    for _ in 0..50 {
        let running = Running::start("fifty");
        let (socket, _) = greet(&running.control(), 1);
        lease(&socket);
        assert_eq!(ask(&socket, &Request::Goodbye), Reply::Done);
        let admin = connect(&running.control()).expect("connect");
        assert_eq!(
            ask(&admin, &Request::Stop { is_forced: false }),
            Reply::Done
        );
        drop((socket, admin));
        running.ends_cleanly();
    }
}
