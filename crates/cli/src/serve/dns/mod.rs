//! `slipstack serve dns`.

mod config;
mod loader;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use slipstack_apps::dns::{self, Book, Chaos, Dns, DnsOptions, Identity, Mailbox, Store};

use super::hosting;
use crate::failure::Failure;
use config::File;
use loader::Loader;

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let mut loader = Loader::new(matches)?;
    let store = Arc::new(Store::default());
    let file = loader.load(&store)?;
    let (mut common, hang_ups) = hosting::Common::with_reload(matches)?;
    let number = |name: &str| *matches.get_one::<u32>(name).unwrap_or(&0);
    let idle = Duration::from_secs(number("idle").into());
    let shared = dns::Common {
        store: Arc::clone(&store),
        mailbox: Arc::new(Mailbox::default()),
        identity: Arc::new(identity(matches, &file, idle)?),
        chaos: Arc::new(chaos(matches, &file)),
        rate: file.rate(),
        book: Arc::new(Book::default()),
        seed: u64::from_le_bytes(random()?),
    };
    let reload = move || match loader.load(&store) {
        Ok(_) => log("the zones have been reloaded"),
        Err(error) => log(&format!("{error}; the zones stay as they are")),
    };
    hang_ups
        .on_each(reload)
        .map_err(|error| Failure::new(format!("no thread for SIGHUP: {error}")))?;
    if let Some(every) = matches.get_one::<u32>("stats") {
        tell_stats(&shared.book, Duration::from_secs((*every).into()))?;
    }
    let options = |listen: Vec<SocketAddr>, is_manager| DnsOptions {
        listen,
        backlog: number("backlog"),
        common: shared.clone(),
        idle,
        is_manager,
        log,
    };
    common.dispatch(matches, |_| Box::new(Dns::new(options(Vec::new(), false))))?;
    common.serve("dns", |site| {
        Dns::new(options(site.listen.clone(), site.number == 0))
    })
}

/// Writes the figures to standard output, as often as this.
fn tell_stats(book: &Arc<Book>, every: Duration) -> Result<(), Failure> {
    let book = Arc::clone(book);
    let body = move || {
        loop {
            std::thread::sleep(every);
            if writeln!(std::io::stdout(), "{}", book.json()).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("stats".to_owned());
    let spawned = thread.spawn(body).map(|_| ());
    spawned.map_err(|error| Failure::new(format!("no thread for --stats: {error}")))
}

/// Writes a line for the operator; there may be no reader left.
fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "slipstack: {line}");
}

fn identity(matches: &ArgMatches, file: &File, idle: Duration) -> Result<Identity, Failure> {
    let nsid = matches.get_one::<String>("nsid").cloned();
    Ok(Identity {
        nsid: nsid.or(file.nsid.clone()).unwrap_or_default().into_bytes(),
        cookie_secret: match file.cookie_secret()? {
            Some(secret) => secret,
            None => random()?,
        },
        idle,
    })
}

fn chaos(matches: &ArgMatches, file: &File) -> Chaos {
    let version = concat!("Slipstack ", env!("CARGO_PKG_VERSION")).to_owned();
    let identity = matches.get_one::<String>("identity").cloned();
    Chaos {
        version: file.version.clone().unwrap_or(version),
        identity: identity.or(file.identity.clone()).unwrap_or_default(),
    }
}

/// Returns random bytes.
fn random<const LEN: usize>() -> Result<[u8; LEN], Failure> {
    let mut bytes = [0; LEN];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::new(format!("the kernel gives no random bytes: {error}")))?;
    Ok(bytes)
}
