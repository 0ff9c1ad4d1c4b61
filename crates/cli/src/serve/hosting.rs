//! What every server of the command has: its settings, its place, its end.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use clap::ArgMatches;
use slipstack_attach::{Place, Serving, Signals, Watch};
use slipstack_config::Settings;
use slipstack_service::{Control, Host, Hosting, Limits, Pool, Refusal, Refused, Service};

use crate::failure::{Failure, settings};
use crate::host;

/// Jobs that wait for each worker at most.
const JOBS_PER_WORKER: usize = 64;

/// What every server has.
pub struct Common {
    pub settings: Settings,
    signals: Signals,
    pub pool: Option<Arc<Pool>>,
    pub limits: Limits,
    pub port: u16,
}

impl Common {
    pub fn new(matches: &ArgMatches) -> Result<Common, Failure> {
        let (_, mut settings) = settings(matches)?;
        settings.instances = Vec::new();
        settings.bin = std::env::current_exe().ok();
        host::check(&settings)?;
        // Before the workers' threads.
        let signals =
            slipstack_attach::hold_signals().map_err(|error| Failure::new(error.to_string()))?;
        let workers = *matches.get_one::<usize>("workers").unwrap_or(&0);
        let pool = match workers {
            0 => None,
            threads => Some(Pool::new(threads, threads * JOBS_PER_WORKER)),
        };
        let pool = pool
            .transpose()
            .map_err(|error| Failure::new(format!("cannot start {workers} workers: {error}")))?;
        let connections = matches.get_one::<usize>("connections");
        let limits = Limits {
            connections_max: connections
                .copied()
                .unwrap_or(Limits::default().connections_max),
            ..Limits::default()
        };
        Ok(Common {
            settings,
            signals,
            pool: pool.map(Arc::new),
            limits,
            port: *matches.get_one::<u16>("port").unwrap_or(&0),
        })
    }

    /// Runs the service that `make` makes for each engine until the process is ended.
    pub fn serve<S: Service>(
        self,
        name: &str,
        make: impl Fn(&Place) -> S + Sync,
    ) -> Result<ExitCode, Failure> {
        let Common {
            settings,
            signals,
            pool,
            limits,
            port,
        } = self;
        let make = |place: Place| {
            let hosting = Hosting {
                limits,
                pool: pool.clone(),
                bell: Some(place.bell.clone()),
                shares_ports: place.engines > 1,
            };
            let (inside, control) = Host::inside(make(&place), hosting)?;
            let watch = Box::new(Watched { control, port });
            Ok(Serving {
                inside,
                watch,
                ends_itself: false,
            })
        };
        let engines = settings.cores.len().max(1);
        let served = slipstack_attach::serve(&settings, signals, &make, &mut |welcome| {
            let addresses: Vec<String> = welcome
                .network
                .addresses()
                .iter()
                .map(|(ip, _)| SocketAddr::new(*ip, port).to_string())
                .collect();
            let plural = if engines == 1 { "" } else { "s" };
            // Nobody may be left to hear it.
            let _ = writeln!(
                std::io::stdout(),
                "{name} is served on {} at {} by {engines} engine{plural}",
                welcome.interface,
                addresses.join(", ")
            );
        });
        served.map_err(|error| {
            host::missing_privilege(&settings).unwrap_or_else(|| Failure::new(error.to_string()))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The wildcard addresses of the families that the stack has.
pub fn wildcards(place: &Place, port: u16) -> Vec<SocketAddr> {
    let addresses = place.welcome.network.addresses();
    let has = |is_v6: bool| addresses.iter().any(|(ip, _)| ip.is_ipv6() == is_v6);
    let any = [
        (false, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        (true, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    ];
    any.into_iter()
        .filter(|(is_v6, _)| has(*is_v6))
        .map(|(_, ip)| SocketAddr::new(ip, port))
        .collect()
}

struct Watched {
    control: Control,
    port: u16,
}

impl Watch for Watched {
    fn is_ready(&self) -> bool {
        self.control.is_ready() && self.control.refusal().is_none()
    }

    fn refusal(&self) -> Option<String> {
        let port = self.port;
        let (what, refusal) = match self.control.refusal()? {
            Refused::Listen(_, refusal) => ("TCP", refusal),
            Refused::Bind(_, refusal) => ("UDP", refusal),
            Refused::Connect(..) => return None,
        };
        Some(match refusal {
            Refusal::AddrInUse => format!(
                "{what} port {port} is in use by another program on this stack; \
                 choose one with --port"
            ),
            Refusal::NotPermitted => {
                format!("{what} port {port} is not for this user; choose one with --port")
            }
            other => format!("{what} port {port} cannot be listened on: {other:?}"),
        })
    }

    fn stop(&self) {
        self.control.stop();
    }

    fn is_over(&self) -> bool {
        self.control.is_over()
    }
}
