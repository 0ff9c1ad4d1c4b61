//! The keeper's log.

use slipstack_channel::control::{Reply, Request, StatusReport};

use super::{Running, ask, greet, ip, status, wait_until};

/// As the command does: lines that the log does not take are lost.
pub fn start() {
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    let lines = lines.with_writer(std::io::stderr);
    lines.log_internal_errors(false).init();
}

/// The kernel takes our address, and announces it.
pub fn takes_nothing() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("full");
    let running = Running::logging("log", full.into());
    let (socket, welcome) = greet(&running.control(), 1);
    let (own, len) = welcome.network.own().addresses[0];
    std::fs::write("/proc/sys/net/ipv4/conf/slip0/arp_notify", "1").expect("sysctl");
    let before = status(&socket);
    ip(&["addr", "add", &format!("{own}/{len}"), "dev", "slip0"]);
    ip(&["link", "set", "slip0", "down"]);
    ip(&["link", "set", "slip0", "up"]);
    let is_heard = |report: &StatusReport| {
        let mut counters = report.counters.iter();
        counters.any(|(name, _)| name == "drop_arp_conflict")
    };
    wait_until("the claim is heard", || is_heard(&status(&socket)));
    assert_eq!(status(&socket).keeper_pid, before.keeper_pid);
    assert_eq!(ask(&socket, &Request::EndSession), Reply::Done);
    drop(socket);
    running.ends_cleanly();
}
