//! Keepers that have few descriptors, or none.

use std::process::Stdio;
use std::time::Duration;

use slipstack_channel::control::connect;

use super::{Running, command, first_line, greet, lease, take_descriptors};

/// Processor time of a process in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let (_, fields) = stat.rsplit_once(')').expect("fields");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let at = |index: usize| fields[index].parse::<u64>().expect("number");
    at(11) + at(12)
}

pub fn no_descriptors() {
    let running = Running::start("deaf");
    let (client, _) = greet(&running.control(), 1);
    let keeper = running.child.id();
    take_descriptors(keeper);
    let stranger = connect(&running.control()).expect("connect");
    let before = ticks(keeper);
    std::thread::sleep(Duration::from_millis(500));
    let used = ticks(keeper) - before;
    assert!(used < 10, "{used} of 50 ticks");
    drop((stranger, client));
    running.ends_cleanly();
}

pub fn few_descriptors() {
    let base = std::env::temp_dir().join(format!("ss-keeper-few-{}", std::process::id()));
    let mut refused = 0;
    for most in 16.. {
        assert!(most < 100);
        let mut bounded = command("bounded", &base);
        bounded.arg(most.to_string()).stderr(Stdio::null());
        let mut child = bounded.spawn().expect("spawn");
        let said = first_line(&mut child);
        if said != "ready" {
            // A program that has inherited descriptors cannot even be loaded under the lowest
            // limit.
            assert!(
                said.is_empty() || said.contains("limit of open files is too low"),
                "{said}"
            );
            refused += u32::from(said.starts_with("a keeper of 4 slots needs"));
            assert!(!child.wait().expect("wait").success());
            continue;
        }
        let running = Running { base, child };
        let (first, _) = greet(&running.control(), 1);
        lease(&first);
        let others: Vec<_> = (2..5).map(|it| greet(&running.control(), it)).collect();
        drop((first, others));
        running.ends_cleanly();
        break;
    }
    assert!(refused > 0, "the first that starts has no room to spare");
}
