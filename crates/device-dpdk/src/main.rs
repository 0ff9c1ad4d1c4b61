//! The process that runs DPDK: started by the keeper with a device of kind `dpdk`, as DPDK's
//! primary process. It ends with the last process that holds the device.
//!
//! Requests arrive on standard input, which is a socket; standard error is read by the keeper while
//! the port starts.

mod eal;
mod pump;
mod start;
mod sys;
mod worker;

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags, open};
use slipstack_device::dpdk::{Answer, Setup};
use slipstack_mem::process::{Forked, end_signals, fork};

use pump::Pump;

fn main() -> ExitCode {
    // The keeper waits for the process that it has started, and is to have no child.
    match fork() {
        Ok(Forked::Parent(_)) => return ExitCode::SUCCESS,
        Ok(Forked::Child) => {}
        Err(error) => return failed(&error),
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    eprintln!("slipstack-dpdk: {error}; it is started by slipstack, with --device dpdk:…");
    ExitCode::FAILURE
}

fn run() -> io::Result<()> {
    let socket = io::stdin();
    let setup = Setup::receive(&socket)?;
    let _ = rustix::process::setsid();
    // Before DPDK's threads are made: they are not to take signals.
    let signals = end_signals()?;
    let life = setup.life.try_clone()?;
    let ends: [OwnedFd; 2] = [signals, life];
    // Its end is how the keeper learns that this process has ended.
    let _alive = setup.alive.try_clone()?;
    let started = match start::start(&setup.order) {
        Ok(started) => started,
        Err(sentence) => return Answer::Failed(sentence).send(&socket),
    };
    let told = started.told.clone();
    let pump = Pump::new(started, setup, ends)?;
    pump.set_running(true);
    Answer::Ready(told).send(&socket)?;
    leave_starter()?;
    pump.run()?.stop();
    Ok(())
}

/// Closes the pipes that the keeper reads only at the start.
fn leave_starter() -> io::Result<()> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
