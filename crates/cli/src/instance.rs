//! `slipstack instance`: a stack in a process of its own, or several.

use std::process::ExitCode;

use clap::ArgMatches;
use slipstack_config::{Layers, LogLevel, Settings};

use crate::failure::Failure;
use crate::given::settings;
use crate::group::{self, Plan};
use crate::output::print;
use crate::{host, log, notify, reload, run};

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (layers, mut settings) = settings(matches)?;
    let process: Option<u32> = matches.get_one("proc-id").copied();
    let is_daemon = matches.get_flag("daemon");
    let ids = ids(matches, &layers, &settings);
    let is_member = !is_daemon && (process.is_some() || settings.name.is_some());
    if !is_member && (ids.len() > 1 || is_daemon) {
        say_of_file(&layers, &settings);
        return group::run(&Plan { ids, is_daemon });
    }
    if settings.name.is_none() {
        settings.name = process.or(ids.first().copied()).map(|id| id.to_string());
    }
    if settings.name.is_none() {
        return Err(Failure::new(
            "an instance needs a name: slipstack instance --name NAME",
        ));
    }
    if let Some(id) = process {
        take_core(&mut settings, matches, id);
    } else {
        say_of_file(&layers, &settings);
    }
    serve(settings, matches)
}

/// Returns the numbers of the requested instances: those of `--count`, or one for each bit of a
/// config.ini's lcore_mask.
fn ids(matches: &ArgMatches, layers: &Layers, settings: &Settings) -> Vec<u32> {
    let count = matches.get_one::<u32>("count").copied();
    let of_file = layers.fstack().map(|file| file.processes() as u32);
    match count.or(of_file) {
        Some(count) if settings.name.is_none() && !matches.contains_id("proc-id") => {
            (0..count).collect()
        }
        _ => Vec::new(),
    }
}

/// With `--count`, the N-th instance runs on the N-th core.
fn take_core(settings: &mut Settings, matches: &ArgMatches, id: u32) {
    let count = matches.get_one::<u32>("count").copied();
    if count.is_some_and(|count| settings.cores.len() == count as usize)
        && let Some(core) = settings.cores.get(id as usize).copied()
    {
        settings.cores = vec![core];
    }
}

fn say_of_file(layers: &Layers, settings: &Settings) {
    for sentence in layers
        .fstack()
        .iter()
        .flat_map(|file| file.sentences(settings.log))
    {
        log::say(settings, LogLevel::Warn, &sentence);
    }
}

fn serve(mut settings: Settings, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    notify::act_on_starter();
    // SLIPSTACK_INSTANCE is for programs; an instance does not use another one.
    settings.instances = Vec::new();
    settings.bin = std::env::current_exe().ok();
    host::check(&settings)?;
    run::pin(&settings)?;
    log::start(settings.log, settings.log_file.as_deref())?;
    reload_at_hang_ups(matches)?;
    let on_ready = |sentence: &str| {
        // There may be no reader left.
        let _ = print(&format!("{sentence}\n"));
        notify::ready();
        notify::let_go();
    };
    slipstack_attach::instance_main(&settings, on_ready).map_err(|error| {
        host::missing_privilege(&settings).unwrap_or_else(|| Failure::new(error.to_string()))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// SIGHUP does what `slipstack reload` does.
fn reload_at_hang_ups(matches: &ArgMatches) -> Result<(), Failure> {
    let hang_ups = slipstack_attach::hold_hang_ups();
    let hang_ups = hang_ups.map_err(|error| Failure::new(error.to_string()))?;
    let matches = matches.clone();
    let started = hang_ups.on_each(move || reload::at_hang_up(&matches));
    started.map_err(|error| Failure::new(format!("cannot wait for SIGHUP: {error}")))
}
