//! Certificates of a server: read when it starts and at SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ArgMatches;
use slipstack_apps::tls::Keys;
use slipstack_attach::HangupSignals;

use super::hosting::Common;
use crate::failure::Failure;
use crate::output;

/// Returns the common settings of all servers, with the keys for TLS if there are any; clients
/// negotiate one of the protocols.
pub fn common(
    matches: &ArgMatches,
    protocols: &[&[u8]],
) -> Result<(Common, Option<Arc<Keys>>), Failure> {
    let files = files(matches)?;
    if files.is_empty() {
        return Ok((Common::new(matches)?, None));
    }
    let (common, hang_ups) = Common::with_reload(matches)?;
    if common.pool.is_none() {
        return Err(Failure::new(
            "handshakes of TLS are the workers': --workers 1 or more",
        ));
    }
    let keys = Arc::new(Keys::load(files, protocols).map_err(Failure::new)?);
    reload_at(hang_ups, Arc::clone(&keys))?;
    Ok((common, Some(keys)))
}

/// Chains and keys, each chain with the key that is given at the same place.
fn files(matches: &ArgMatches) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
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

fn reload_at(hang_ups: HangupSignals, keys: Arc<Keys>) -> Result<(), Failure> {
    let reload = move || match keys.reload() {
        Ok(()) => output::say("slipstack: the certificates have been reloaded"),
        Err(why) => output::say(&format!(
            "slipstack: the old certificates stay in use: {why}"
        )),
    };
    let started = hang_ups.on_each(reload);
    started.map_err(|error| Failure::new(format!("cannot wait for SIGHUP: {error}")))
}
