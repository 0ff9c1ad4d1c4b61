//! `slipstack serve dns`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::dns::{Chaos, Dns, DnsOptions, Identity, Store, Zones, load};

use super::hosting::Common;
use crate::failure::Failure;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let mut zones = Zones::default();
    for text in matches.get_many::<String>("zone").into_iter().flatten() {
        let (origin, file) = text
            .split_once('=')
            .ok_or_else(|| Failure::new(format!("--zone {text}: ORIGIN=FILE is wanted")))?;
        let zone = load(origin, Path::new(file));
        zones.insert(Arc::new(
            zone.map_err(|error| Failure::new(error.to_string()))?,
        ));
    }
    let store = Arc::new(Store::new(zones));
    let mut common = Common::new(matches)?;
    let number = |name: &str| *matches.get_one::<u32>(name).unwrap_or(&0);
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let idle = Duration::from_secs(number("idle").into());
    let identity = Arc::new(Identity {
        nsid: text("nsid").into_bytes(),
        cookie_secret: random()?,
        idle,
    });
    let chaos = Arc::new(Chaos {
        version: concat!("Slipstack ", env!("CARGO_PKG_VERSION")).to_owned(),
        identity: text("identity"),
    });
    let seed = u64::from_le_bytes(random()?);
    let options = |listen: Vec<SocketAddr>| DnsOptions {
        listen,
        backlog: number("backlog"),
        store: Arc::clone(&store),
        identity: Arc::clone(&identity),
        chaos: Arc::clone(&chaos),
        seed,
        idle,
    };
    common.dispatch(matches, |_| Box::new(Dns::new(options(Vec::new()))))?;
    common.serve("dns", |site| Dns::new(options(site.listen.clone())))
}

/// Bytes that nobody else knows.
fn random<const LEN: usize>() -> Result<[u8; LEN], Failure> {
    let mut bytes = [0; LEN];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::new(format!("the kernel gives no random bytes: {error}")))?;
    Ok(bytes)
}
