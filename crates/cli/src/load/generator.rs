//! The common part of the load generators: placement and the server to be measured.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use clap::ArgMatches;
use slipstack_attach::{ServiceContext, Serving, Watch};
use slipstack_service::{
    Control, Doorbell, Host, Hosting, Limits, Service, doorbell, run_on_kernel,
};

use crate::failure::Failure;
use crate::given::settings;
use crate::host;

/// Time between two requests of one thread at a rate of all.
pub(super) fn interval(rate: u64, threads: usize) -> u64 {
    (1_000_000_000 * threads as u64 / rate).max(1)
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::new(format!("{} cannot be written: {error}", path.display())))
}

/// Finds the addresses of `HOST:PORT`, or of `HOST` with a port by default.
pub(super) fn resolve(
    target: &str,
    port: u16,
    is_wanted: impl Fn(&SocketAddr) -> bool,
) -> Result<SocketAddr, Failure> {
    let none = || Failure::new(format!("{target} has no usable address"));
    // A name or an IPv4 address, and what is no port: else the whole of it is looked up as a name.
    if let Some((host, after)) = target.rsplit_once(':')
        && (!host.contains(':') || host.ends_with(']'))
        && !after.parse::<u16>().is_ok_and(|port| port > 0)
    {
        return Err(Failure::new(format!(
            "{target}: \"{after}\" is not a port between 1 and 65535"
        )));
    }
    let found = match target.to_socket_addrs() {
        Ok(found) => found.collect::<Vec<_>>(),
        Err(_) => {
            let bare = target.trim_start_matches('[').trim_end_matches(']');
            let found = (bare, port).to_socket_addrs();
            found
                .map_err(|error| Failure::new(format!("{target} cannot be resolved: {error}")))?
                .collect()
        }
    };
    found.into_iter().find(is_wanted).ok_or_else(none)
}

/// Runs a generator on `engines` engines of the stack, or threads on the kernel's sockets, until
/// all of them are done.
pub(super) fn generate<S: Service>(
    matches: &ArgMatches,
    engines: usize,
    make: &(dyn Fn() -> S + Sync),
) -> Result<(), Failure> {
    match matches.get_flag("kernel") {
        true => on_kernel(engines, make),
        false => on_stack(matches, engines, make),
    }
}

fn hosting(bell: Doorbell) -> Hosting {
    Hosting {
        limits: Limits::default(),
        bell: Some(bell),
        ..Hosting::default()
    }
}

fn on_kernel<S: Service>(engines: usize, make: &(dyn Fn() -> S + Sync)) -> Result<(), Failure> {
    let body = || -> std::io::Result<()> {
        let bell = doorbell()?;
        let (inside, control) = Host::inside(make(), hosting(bell.clone()))?;
        run_on_kernel(inside, &control, &bell)
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..engines).map(|_| scope.spawn(body)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for outcome in outcomes {
        let outcome = outcome.map_err(|_| Failure::new("a thread of the generator panicked"))?;
        outcome.map_err(|error| Failure::new(format!("the kernel refuses: {error}")))?;
    }
    Ok(())
}

fn on_stack<S: Service>(
    matches: &ArgMatches,
    engines: usize,
    make: &(dyn Fn() -> S + Sync),
) -> Result<(), Failure> {
    let (_, mut settings) = settings(matches)?;
    settings.instances = Vec::new();
    settings.bin = std::env::current_exe().ok();
    if settings.cores.is_empty() && engines > 1 {
        settings.cores = (0..engines).collect();
    }
    host::check(&settings)?;
    let failed = |error: slipstack_attach::Error| Failure::new(error.to_string());
    let signals = slipstack_attach::hold_signals().map_err(failed)?;
    let make = |place: ServiceContext| {
        let (inside, control) = Host::inside(make(), hosting(place.bell))?;
        Ok(Serving {
            inside,
            watch: Box::new(Watched(control)),
            ends_itself: true,
        })
    };
    slipstack_attach::serve(&settings, signals, &make, &mut |_| {}).map_err(|error| {
        host::missing_privilege(&settings).unwrap_or_else(|| Failure::new(error.to_string()))
    })
}

/// A generator listens on nothing: there is nothing to wait for or to be refused.
struct Watched(Control);

impl Watch for Watched {
    fn is_ready(&self) -> bool {
        true
    }

    fn refusal(&self) -> Option<String> {
        None
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}
