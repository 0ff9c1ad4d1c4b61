//! The body of `slipstack instance`: one engine for any number of programs.

mod clients;
mod lent;
mod reception;

use std::path::PathBuf;
use std::sync::Arc;

use slipstack_channel::control::{Request, listen};
use slipstack_channel::{Heuristics, Placement, REGION_BYTES, Rule, Spin};
use slipstack_config::Settings;
use slipstack_engine::instance::run;
use slipstack_keeper::process::raise_descriptor_limit;
use slipstack_mem::{Region, process};

use crate::assembly::{Assembled, assemble};
use crate::door::{Identity, options};
use crate::error::Error;
use crate::launch::{check_network, meet_as_asked, other_slots};
use crate::link::KeeperClient;
use reception::ControlServer;

/// The socket's file goes with the instance.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Finds or starts the keeper, leases a slot, and serves programs until SIGTERM, SIGINT or
/// `slipstack stop`. SIGHUP is the caller's. Calls `on_ready` with a sentence when programs can
/// attach.
///
/// # Errors
/// Why it could not start; nothing is left behind then.
pub fn instance_main(settings: &Settings, on_ready: impl FnOnce(&str)) -> Result<(), Error> {
    let name = settings.name.clone().unwrap_or_default();
    let directory = options(settings).directory()?;
    let path = directory.instance_socket(&name)?;
    raise_descriptor_limit();
    // From here on the signals wait until the loop handles them.
    let signals = process::term_signals().map_err(Error::io("receive signals"))?;
    let mut settings = settings.clone();
    settings.control_fds = Vec::new();
    settings.instances = Vec::new();
    let identity = Identity {
        instance: Some(name.clone()),
        ..Identity::of_this_process()
    };
    let mut hello = Identity::of_this_process().hello(None, None);
    hello.is_shared = true;
    let held = meet_as_asked(&settings, &hello)?;
    // The keeper knows every instance by name and refuses a second one.
    let link = Arc::new(KeeperClient::open(&settings, &identity, None)?);
    check_network(&settings, &link.welcome())?;
    drop(held);
    let flows = Region::create("slipstack-flows", REGION_BYTES)
        .map_err(Error::io("create shared memory"))?;
    let Assembled {
        mut engine,
        bell,
        slot,
        held: _,
    } = assemble(&settings, &link, flows, Placement::Instance)?;
    let listener = listen(&path)?;
    let _file = SocketFile(path.clone());
    rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o666))
        .map_err(|error| Error::io("open the instance's socket to programs")(error.into()))?;
    let welcome = link.welcome();
    let mut server = ControlServer::new(
        name.clone(),
        welcome.clone(),
        slot,
        listener,
        signals,
        Arc::clone(&link),
        bell.clone(),
    )
    .map_err(Error::io("wait for programs"))?;
    let addresses: Vec<String> = welcome
        .network
        .addresses()
        .iter()
        .map(|(ip, len)| format!("{ip}/{len}"))
        .collect();
    on_ready(&format!(
        "instance {name} is ready on {} with {}{}",
        welcome.interface,
        addresses.join(", "),
        other_slots(&settings, &welcome)
    ));
    // The programs report an invalid name.
    let rules = Heuristics::of_environment().unwrap_or_default();
    let spin = match settings.spin {
        Spin::Adaptive if !rules.has(Rule::Spin) => Spin::FixedUs(0),
        spin => spin,
    };
    run(&mut engine, &bell, spin, &mut server).map_err(Error::io("wait for programs"))?;
    // The programs' sockets fail with ENETDOWN; the keeper delivers data already sent.
    server.close(&mut engine);
    let _ = link.ask(&Request::EndSession, &[]);
    Ok(())
}
