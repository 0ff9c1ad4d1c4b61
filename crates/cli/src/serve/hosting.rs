//! The common part of all servers: engines, workers, limits, and the end.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::ArgMatches;
use slipstack_attach::{HangupSignals, ServiceContext, Serving, Signals, Watch};
use slipstack_config::{LogLevel, Settings};
use slipstack_service::{
    Answerer, Control, Counts, Dispatch, Host, Hosting, Limits, Pool, Refused, Service, Shape,
    SocketError, Tally, doorbell, run_on_kernel,
};
use tracing::warn;

use super::dispatch;
use crate::failure::Failure;
use crate::given::settings;
use crate::host;
use crate::log;

/// Jobs that wait for each worker at most.
const JOBS_PER_WORKER: usize = 64;

/// Interval of checks whether servers on the kernel's sockets listen.
const LOOK: Duration = Duration::from_millis(5);

/// Place of one engine's service.
#[derive(Clone, Debug)]
pub struct Site {
    pub number: usize,
    /// The wildcard addresses of its families, with the port of `--port`.
    pub listen: Vec<SocketAddr>,
}

/// Settings of every server.
pub struct Common {
    pub settings: Settings,
    signals: Signals,
    pub pool: Option<Arc<Pool>>,
    dispatch: Option<Dispatch>,
    limits: Limits,
    pub port: u16,
    is_on_kernel: bool,
}

impl Common {
    pub fn new(matches: &ArgMatches) -> Result<Common, Failure> {
        let hold = || slipstack_attach::hold_signals().map(|signals| (signals, ()));
        Common::with(matches, hold).map(|(common, ())| common)
    }

    /// As [`Common::new`], for a server that reads something again at SIGHUP instead of ending.
    pub fn with_reload(matches: &ArgMatches) -> Result<(Common, HangupSignals), Failure> {
        Common::with(matches, slipstack_attach::hold_signals_and_hang_ups)
    }

    fn with<T>(
        matches: &ArgMatches,
        hold: impl FnOnce() -> Result<(Signals, T), slipstack_attach::Error>,
    ) -> Result<(Common, T), Failure> {
        let (_, mut settings) = settings(matches)?;
        if matches.try_get_one("debug").ok().flatten() == Some(&true) {
            settings.log = LogLevel::Debug;
        }
        settings.instances = Vec::new();
        settings.bin = std::env::current_exe().ok();
        let is_on_kernel = matches.get_flag("kernel");
        if !is_on_kernel {
            host::check(&settings)?;
        }
        log::start(settings.log, settings.log_file.as_deref())?;
        // Before the workers' threads.
        let (signals, others) = hold().map_err(|error| Failure::new(error.to_string()))?;
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
        let common = Common {
            settings,
            signals,
            pool: pool.map(Arc::new),
            dispatch: None,
            limits,
            port: *matches.get_one::<u16>("port").unwrap_or(&0),
            is_on_kernel,
        };
        Ok((common, others))
    }

    /// Sets up answering of datagrams according to `--shape`, by workers that `make` equips.
    pub fn dispatch(
        &mut self,
        matches: &ArgMatches,
        make: impl FnMut(usize) -> Box<dyn Answerer>,
    ) -> Result<Shape, Failure> {
        self.dispatch = dispatch::start(matches, make)?;
        Ok(self.dispatch.as_ref().map_or(Shape::Run, |it| it.shape))
    }

    /// Runs the service that `make` makes for each engine until the process is ended, and prints
    /// the work of the workers.
    pub fn serve<S: Service>(
        self,
        name: &str,
        make: impl Fn(&Site) -> S + Sync,
    ) -> Result<ExitCode, Failure> {
        let dispatch = self.dispatch.clone();
        let controls = Mutex::default();
        let served = self.serve_all(name, make, &controls);
        log_refused(&lock(&controls));
        if let (Some(dispatch), Ok(_)) = (dispatch, &served) {
            let report = dispatch::report(&dispatch, &lock(&controls));
            // There may be no reader left.
            let _ = write!(std::io::stdout(), "{report}");
        }
        served
    }

    /// `controls` gets one for each engine.
    fn serve_all<S: Service>(
        self,
        name: &str,
        make: impl Fn(&Site) -> S + Sync,
        controls: &Mutex<Vec<Control>>,
    ) -> Result<ExitCode, Failure> {
        if self.is_on_kernel {
            return self.serve_on_kernel(name, &make, controls);
        }
        let Common {
            settings,
            signals,
            pool,
            dispatch,
            limits,
            port,
            is_on_kernel: _,
        } = self;
        let make = |place: ServiceContext| {
            let site = Site {
                number: place.number,
                listen: wildcards(&place, port),
            };
            let hosting = Hosting {
                limits,
                pool: pool.clone(),
                dispatch: dispatch.clone(),
                bell: Some(place.bell.clone()),
                shares_ports: place.engines > 1,
                region_bytes: None,
            };
            let (inside, control) = Host::inside(make(&site), hosting)?;
            lock(controls).push(control.clone());
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
            // There may be no reader left.
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

    /// Runs the service on the kernel's sockets, a thread for each engine, to compare with.
    fn serve_on_kernel<S: Service>(
        self,
        name: &str,
        make: &(dyn Fn(&Site) -> S + Sync),
        all: &Mutex<Vec<Control>>,
    ) -> Result<ExitCode, Failure> {
        let count = self.settings.cores.len().max(1);
        let any = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        let listen: Vec<SocketAddr> = any.map(|ip| SocketAddr::new(ip, self.port)).to_vec();
        let (sender, rows) = channel::<Control>();
        let run = |number: usize| -> std::io::Result<()> {
            let bell = doorbell()?;
            let hosting = Hosting {
                limits: self.limits,
                pool: self.pool.clone(),
                dispatch: self.dispatch.clone(),
                bell: Some(bell.clone()),
                shares_ports: count > 1,
                region_bytes: None,
            };
            let listen = listen.clone();
            let (inside, control) = Host::inside(make(&Site { number, listen }), hosting)?;
            let _ = sender.send(control.clone());
            run_on_kernel(inside, &control, &bell)
        };
        let controls: Arc<Mutex<Vec<Control>>> = Arc::default();
        let to_stop = Arc::clone(&controls);
        let cannot = |error: std::io::Error| Failure::new(format!("the kernel refuses: {error}"));
        self.signals
            .on_end(move || lock(&to_stop).iter().for_each(Control::stop))
            .map_err(cannot)?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|number| scope.spawn(move || run(number)))
                .collect();
            let found: Vec<Control> = rows.iter().take(count).collect();
            lock(&controls).extend(found.iter().cloned());
            lock(all).extend(found.iter().cloned());
            let refusal = await_ready(&found, self.port);
            if refusal.is_some() {
                found.iter().for_each(Control::stop);
            } else {
                let plural = if count == 1 { "" } else { "s" };
                // There may be no reader left.
                let _ = writeln!(
                    std::io::stdout(),
                    "{name} is served on the kernel's sockets at port {} by {count} thread{plural}",
                    self.port
                );
            }
            for thread in threads {
                let outcome = thread.join();
                outcome
                    .map_err(|_| Failure::new("a thread of the server panicked"))?
                    .map_err(cannot)?;
            }
            refusal.map_or(Ok(ExitCode::SUCCESS), |why| Err(Failure::new(why)))
        })
    }
}

/// Logs at the end the services' refusals and errors.
fn log_refused(controls: &[Control]) {
    let sum = |count: fn(&Counts) -> &Tally| -> u64 {
        controls.iter().map(|it| count(it.counts()).get()).sum()
    };
    let rows = [
        (
            sum(|counts| &counts.refused),
            "connections were refused because a limit was reached",
        ),
        (
            sum(|counts| &counts.panics),
            "connections were reset: their handlers panicked",
        ),
    ];
    for (count, what) in rows.into_iter().filter(|(count, _)| *count > 0) {
        warn!(count, "{what}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until all listen; returns why one cannot.
fn await_ready(controls: &[Control], port: u16) -> Option<String> {
    let watched = controls.iter().cloned();
    let watched: Vec<Watched> = watched.map(|control| Watched { control, port }).collect();
    while !watched.iter().all(|it| it.is_ready() || it.is_over()) {
        if let Some(refusal) = watched.iter().find_map(Watch::refusal) {
            return Some(refusal);
        }
        std::thread::sleep(LOOK);
    }
    watched.iter().find_map(Watch::refusal)
}

/// The wildcard addresses of the families that the stack has.
fn wildcards(place: &ServiceContext, port: u16) -> Vec<SocketAddr> {
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
            SocketError::AddrInUse => format!(
                "{what} port {port} is in use by another program here; \
                 choose one with --port"
            ),
            SocketError::NotPermitted => {
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
