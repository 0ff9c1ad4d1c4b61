//! Several instances from one command, and instances in the background.
//!
//! Each instance is a process of its own, started with the same command line and its number. This
//! process waits until all of them are ready. Then it stays until they end, and ends them when it
//! ends; with `--daemon` it leaves at once and they go on.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slipstack_attach::{HangupSignals, Signals};

use crate::failure::Failure;
use crate::output::{print, say};

/// Tells an instance that it is one of several: it ends when its starter does.
pub const MEMBER: &str = "SLIPSTACK_MEMBER";
/// Marks an instance whose starter leaves: it detaches from the terminal.
pub const DETACHED: &str = "SLIPSTACK_DETACHED";

/// Longest time in which an instance gets ready: a router may have to be waited for.
const READY_MAX: Duration = Duration::from_secs(30);

/// The instances to be started.
pub struct Plan {
    /// Numbers of the processes; empty: one that has a name.
    pub ids: Vec<u32>,
    pub is_daemon: bool,
}

/// Starts the instances, the first before the others: it starts the keeper that all of them use.
pub fn run(plan: &Plan) -> Result<ExitCode, Failure> {
    let held = match plan.is_daemon {
        true => None,
        false => Some(GroupSignals::new()?),
    };
    let mut members: Vec<Member> = Vec::new();
    let ids: Vec<Option<u32>> = match plan.ids.as_slice() {
        [] => vec![None],
        ids => ids.iter().copied().map(Some).collect(),
    };
    let (first, others) = ids.split_at(1);
    for part in [first, others] {
        let begun = members.len();
        for id in part {
            members.push(Member::start(*id, plan.is_daemon)?);
        }
        for at in begun..members.len() {
            if let Err(failure) = members[at].wait_until_ready() {
                members.iter_mut().for_each(Member::end);
                return Err(failure);
            }
        }
    }
    crate::notify::ready();
    match held {
        None => Ok(ExitCode::SUCCESS),
        Some(held) => stay(members, held),
    }
}

/// Signals that come before the instances are ready, and later.
struct GroupSignals {
    ends: Signals,
    hang_ups: HangupSignals,
}

impl GroupSignals {
    fn new() -> Result<GroupSignals, Failure> {
        let failed = |error: slipstack_attach::Error| Failure::new(error.to_string());
        let (ends, hang_ups) = slipstack_attach::hold_signals_and_hang_ups().map_err(failed)?;
        Ok(GroupSignals { ends, hang_ups })
    }

    /// Ends with the signals that end a process, and passes SIGHUP to the first running instance:
    /// it reloads settings of the device, which all of them share.
    fn act_on(self, running: &Running) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::new(format!("cannot wait for signals: {error}"));
        let ends = self.ends.on_end(|| std::process::exit(0));
        ends.map_err(failed)?;
        let running = Arc::clone(running);
        let pass_on = move || {
            let running = running.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(first) = running.first() {
                let _ = rustix::process::kill_process(*first, rustix::process::Signal::HUP);
            }
        };
        self.hang_ups.on_each(pass_on).map_err(failed)
    }
}

/// The instances that have not ended.
type Running = Arc<Mutex<Vec<rustix::process::Pid>>>;

/// One instance.
struct Member {
    child: Child,
    ready: Receiver<String>,
}

impl Member {
    fn start(id: Option<u32>, is_daemon: bool) -> Result<Member, Failure> {
        let cannot = |error| Failure::new(format!("an instance cannot be started: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command
            .arg0("slipstack")
            .args(
                crate::names::words()
                    .into_iter()
                    .skip(1)
                    .filter(is_for_member),
            )
            .env_remove("NOTIFY_SOCKET")
            .env(if is_daemon { DETACHED } else { MEMBER }, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(id) = id {
            command.arg("--proc-id").arg(id.to_string());
        }
        let mut child = command.spawn().map_err(cannot)?;
        let (tell, ready) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let _ = tell.send(line);
                }
            });
        }
        Ok(Member { child, ready })
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        match self.ready.recv_timeout(READY_MAX) {
            Ok(line) => print(&format!("{line}\n")),
            Err(RecvTimeoutError::Timeout) => Err(Failure::new(format!(
                "an instance is not ready after {} seconds",
                READY_MAX.as_secs()
            ))),
            // The instance has written the reason to standard error.
            Err(RecvTimeoutError::Disconnected) => Err(Failure::new("an instance has ended")),
        }
    }

    fn end(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Words of this command line that are an instance's too.
fn is_for_member(word: &OsString) -> bool {
    word != "--daemon"
}

/// Waits until the last instance has ended.
fn stay(members: Vec<Member>, held: GroupSignals) -> Result<ExitCode, Failure> {
    let pids = members
        .iter()
        .map(|it| rustix::process::Pid::from_child(&it.child));
    let running: Running = Arc::new(Mutex::new(pids.collect()));
    held.act_on(&running)?;
    let mut code = ExitCode::SUCCESS;
    for mut member in members {
        let pid = rustix::process::Pid::from_child(&member.child);
        let outcome = member.child.wait();
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|it| *it != pid);
        drop(running);
        match outcome {
            Ok(status) if status.success() => {}
            Ok(status) => {
                say(&format!(
                    "slipstack: instance {} has ended: {status}",
                    member.child.id()
                ));
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(Failure::new(format!("instances are lost: {error}"))),
        }
    }
    Ok(code)
}
