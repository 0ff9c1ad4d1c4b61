//! `slipstack serve http`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::http::{Http, HttpOptions, Log, Root};
use slipstack_apps::tls::Keys;
use slipstack_attach::HangUps;

use super::hosting::{Common, Site};
use crate::failure::Failure;
use crate::output;

/// How long the end waits for the access log.
const LOG_MOST: Duration = Duration::from_secs(2);
/// Longest file that the cache takes whole.
const WHOLE_MAX: u64 = 1 << 20;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let files = tls_files(matches)?;
    let (common, keys) = match files.is_empty() {
        true => (Common::new(matches)?, None),
        false => {
            let (common, hang_ups) = Common::with_reload(matches)?;
            let keys = Arc::new(Keys::load(files).map_err(Failure::new)?);
            reload_at(hang_ups, Arc::clone(&keys))?;
            (common, Some(keys))
        }
    };
    if common.pool.is_none() {
        return Err(Failure::new(
            "files are read by workers: --workers 1 or more",
        ));
    }
    let Some(path) = matches.get_one::<PathBuf>("root") else {
        return Err(Failure::new("no directory is named"));
    };
    let lists = !matches.get_flag("no-listing");
    let root = Root::open(path, lists, WHOLE_MAX)
        .map_err(|error| Failure::new(format!("{} cannot be served: {error}", path.display())))?;
    let log = matches.get_one::<PathBuf>("access-log");
    let log = log
        .map(|path| {
            Log::open(path).map_err(|error| {
                Failure::new(format!("{} cannot be written: {error}", path.display()))
            })
        })
        .transpose()?;
    let root = Arc::new(root);
    let number = |name: &str| *matches.get_one::<u32>(name).unwrap_or(&0);
    let seconds = |name: &str| Duration::from_secs(number(name).into());
    let options = |site: &Site| HttpOptions {
        listen: site.listen.clone(),
        backlog: number("backlog"),
        root: Arc::clone(&root),
        cache: number("cache-mb") as usize * 1024 * 1024,
        idle: seconds("idle"),
        head: seconds("head-timeout"),
        per_address: matches.get_one::<usize>("connections-per-address").copied(),
        log: log.clone(),
        keys: keys.clone(),
    };
    let served = common.serve("http", |site| Http::new(options(site)));
    if let Some(log) = log {
        log.flush(LOG_MOST);
        let lost = log.lost();
        if lost > 0 {
            output::say(&format!(
                "slipstack: {lost} lines of the access log were lost"
            ));
        }
    }
    served
}

/// Chains and keys, each chain with the key that is given at the same place.
fn tls_files(matches: &ArgMatches) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let all = |name: &str| -> Vec<PathBuf> {
        let given = matches.get_many::<PathBuf>(name).unwrap_or_default();
        given.cloned().collect()
    };
    let (chains, keys) = (all("tls-cert"), all("tls-key"));
    match chains.len() == keys.len() {
        true => Ok(chains.into_iter().zip(keys).collect()),
        false => Err(Failure::new("each --tls-cert needs its --tls-key")),
    }
}

fn reload_at(hang_ups: HangUps, keys: Arc<Keys>) -> Result<(), Failure> {
    let reload = move || match keys.reload() {
        Ok(()) => output::say("slipstack: the certificates have been read again"),
        Err(why) => output::say(&format!("slipstack: the old certificates stay: {why}")),
    };
    let started = hang_ups.on_each(reload);
    started.map_err(|error| Failure::new(format!("cannot wait for SIGHUP: {error}")))
}
