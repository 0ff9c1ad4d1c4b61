//! Processes: resetting state that a keeper inherits from the program that starts it, and checks of
//! whether other processes live.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::leases::ProcessKey;

/// Line of a thread's status with its processors.
const CORES: &str = "Cpus_allowed_list:";
/// Line with its numbers, from the outermost PID namespace that is visible to its own.
const NUMBERS: &str = "NSpid:";
/// Threads of a process among which one is looked for: the keeper does nothing else meanwhile.
const LOOKED_AT_MAX: usize = 256;
/// Descriptors that a keeper or instance with all its clients may need.
const DESCRIPTORS: u64 = 65_536;

/// Lifts the limit of open descriptors as far as this process may: each client takes several.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(DESCRIPTORS, |hard| hard.min(DESCRIPTORS));
    if limit.current.is_some_and(|soft| soft < wanted) {
        let current = Some(wanted);
        // Without it there is room for fewer clients, and further ones get an error.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Number of descriptors that this process has, and that it may have.
pub fn descriptors() -> io::Result<(u64, u64)> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // One of the descriptors is that of the list itself.
    let listed = fs::read_dir("/proc/self/fd")?.count() as u64;
    Ok((listed.saturating_sub(1), limit))
}

/// Limits that were set for the program that starts a keeper, not for the keeper of all programs.
const LEFT_BEHIND: [Resource; 7] = [
    Resource::As,
    Resource::Cpu,
    Resource::Data,
    Resource::Fsize,
    Resource::Nofile,
    Resource::Nproc,
    Resource::Stack,
];

/// Resets the limits, processor affinity, priority and umask that this process inherited. A setting
/// that it may not change stays.
pub fn leave_starters_bounds() {
    for resource in LEFT_BEHIND {
        leave_limit(resource);
    }
    slipstack_mem::process::survive_file_limit();
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel ignores processors that the machine does not have.
    let _ = sched_setaffinity(None, &all);
    let _ = slipstack_mem::process::take_ordinary_priority();
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

/// Returns the processors on which the thread of a process may run, as the kernel lists them: those
/// of its first thread if `thread` has ended, or is 0. Empty: the process has ended.
#[must_use]
pub fn cores_of(process: u32, thread: u32) -> String {
    let list = |thread| {
        let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(CORES));
        line.map(|cores| cores.trim().to_owned())
    };
    list(thread).or_else(|| list(process)).unwrap_or_default()
}

/// Returns the thread of a process that calls itself `told`, which may be in a PID namespace of its
/// own, by its number here. `None`: it has ended, or is not among the first of very many.
#[must_use]
pub fn thread_of(process: u32, told: u32) -> Option<u32> {
    let is_it = |thread: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status"));
        let status = status.unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix(NUMBERS));
        let own = numbers.and_then(|numbers| numbers.split_ascii_whitespace().last());
        own.and_then(|own| own.parse().ok()) == Some(told)
    };
    Some(told).filter(is_it).or_else(|| {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
        let number = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
        tasks
            .flatten()
            .take(LOOKED_AT_MAX)
            .filter_map(number)
            .find(is_it)
    })
}

/// Returns the name of a process's thread as a terminal may show it.
#[must_use]
pub fn thread_name(process: u32, thread: u32) -> String {
    let name = fs::read(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    name.chars().filter(|c| !c.is_control()).collect()
}

fn leave_limit(resource: Resource) {
    let limit = getrlimit(resource);
    // A process may not have more descriptors than fs.nr_open, whose default is sufficient.
    let most = matches!(resource, Resource::Nofile).then_some(DESCRIPTORS);
    let enough =
        |value: Option<u64>| value.is_none() || most.is_some_and(|most| value >= Some(most));
    let maximum = if enough(limit.maximum) {
        limit.maximum
    } else {
        most
    };
    let current = if enough(limit.current) {
        limit.current
    } else {
        most
    };
    if setrlimit(resource, Rlimit { current, maximum }).is_err() {
        let current = limit.maximum;
        let _ = setrlimit(resource, Rlimit { current, ..limit });
    }
}

/// Returns whether a thread of a process waits for a processor or a disk, or runs.
pub fn is_ready(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let state = |task: &fs::DirEntry| fs::read(task.path().join("stat")).ok();
    let mut stats = tasks.flatten().filter_map(|task| state(&task));
    stats.any(|stat| {
        fields(&stat).is_some_and(|mut fields| matches!(fields.next(), Some("R" | "D")))
    })
}

/// The fields of `/proc/PID/stat` from the third one on, which is the state. The name before it, in
/// parentheses, may contain anything, bytes that are no text too: the kernel cuts it where its room
/// ends.
fn fields(stat: &[u8]) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[end + 1..]).ok()?;
    Some(fields.split_ascii_whitespace())
}

/// A process that lives now.
pub fn find_process(pid: u32) -> Option<ProcessKey> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Start time is field 22.
    let mut fields = fields(&stat)?;
    if fields.next()? == "Z" {
        return None;
    }
    let started = fields.nth(18)?.parse().ok()?;
    Some(ProcessKey { pid, started })
}

/// A descriptor that becomes readable when the process ends; `None`: it has already.
pub fn watch(process: ProcessKey) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(process.pid as i32)?, PidfdFlags::empty()).ok()?;
    // Looked at after the descriptor was opened, so that it names the same process.
    (find_process(process.pid) == Some(process)).then_some(pidfd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_pid_and_its_start_time() {
        let key = find_process(std::process::id()).expect("we live");
        assert!(watch(key).is_some());
        assert!(
            watch(ProcessKey {
                started: key.started + 1,
                ..key
            })
            .is_none()
        );
        assert!(find_process(u32::MAX / 2).is_none());
    }

    #[test]
    fn a_running_process_is_ready_and_a_sleeping_or_ended_one_is_not() {
        assert!(is_ready(std::process::id()));
        let mut sleeper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let is_asleep = || !is_ready(sleeper.id());
        assert!((0..1000).any(|_| {
            std::thread::yield_now();
            is_asleep()
        }));
        sleeper.kill().expect("it runs");
        sleeper.wait().expect("it has ended");
        assert!(!is_ready(u32::MAX / 2));
    }

    #[test]
    fn a_thread_is_found_while_it_runs_and_has_a_name_without_control_characters() {
        let (pid, own) = (std::process::id(), slipstack_mem::thread::thread_id());
        let comm = format!("/proc/{pid}/task/{own}/comm");
        fs::write(&comm, b"a\x1b[31mb").expect("rename");
        assert_eq!(thread_of(pid, own), Some(own));
        assert_eq!(thread_name(pid, own), "a[31mb");
        let ended = std::thread::spawn(slipstack_mem::thread::thread_id);
        let ended = ended.join().expect("it ends");
        let is_gone = || thread_of(pid, ended).is_none();
        assert!((0..1000).any(|_| {
            std::thread::yield_now();
            is_gone()
        }));
        assert_eq!(thread_name(pid, u32::MAX), "");
    }

    #[test]
    fn a_process_is_found_with_any_bytes_in_its_name() {
        let before = fs::read("/proc/self/comm").expect("name");
        fs::write("/proc/self/comm", b"caf\xc3 ) R").expect("rename");
        let found = find_process(std::process::id());
        fs::write("/proc/self/comm", before).expect("rename back");
        assert!(found.is_some());
    }
}
