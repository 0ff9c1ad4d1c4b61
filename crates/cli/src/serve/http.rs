//! `slipstack serve http`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::http::{Http, HttpOptions, Log, Root};
use slipstack_apps::tls::HTTP11;

use super::hosting::Site;
use super::tls;
use crate::failure::Failure;
use crate::output;

/// Time for which the end waits for the access log.
const LOG_MOST: Duration = Duration::from_secs(2);
/// Longest file that the cache takes whole.
const WHOLE_MAX: u64 = 1 << 20;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (common, keys) = tls::common(matches, &[HTTP11])?;
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
