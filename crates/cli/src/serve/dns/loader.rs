//! Zones as the command line and the configuration file name them, at the start and at SIGHUP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use slipstack_apps::dns::{Policy, Store, Zone, follow_catalog, load, parse_name};
use slipstack_config::{OPTION, SYSTEM_FILE};

use super::config::File;
use super::log;
use crate::failure::Failure;

/// See the [module documentation](self).
pub struct Loader {
    config: Option<PathBuf>,
    /// Zones of the command line.
    given: Vec<(Vec<u8>, Policy)>,
    is_started: bool,
}

/// A zone to be loaded: its file, its policy, and its contents if there is a file.
struct Loaded {
    apex: Vec<u8>,
    policy: Policy,
    zone: Option<Zone>,
}

impl Loader {
    pub fn new(matches: &ArgMatches) -> Result<Loader, Failure> {
        let mut given = Vec::new();
        for text in matches.get_many::<String>("zone").into_iter().flatten() {
            let (origin, file) = text
                .split_once('=')
                .ok_or_else(|| Failure::new(format!("--zone {text}: ORIGIN=FILE is wanted")))?;
            let apex = parse_name(origin).map_err(|error| Failure::new(error.to_string()))?;
            let policy = Policy {
                origin: origin.to_owned(),
                file: Some(file.into()),
                ..Policy::default()
            };
            given.push((apex, policy));
        }
        Ok(Loader {
            config: config_file(matches),
            given,
            is_started: false,
        })
    }

    /// Reads everything and puts it in force. After the start, an unreadable zone is reported and
    /// stays unchanged.
    pub fn load(&mut self, store: &Store) -> Result<File, Failure> {
        let file = match &self.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let keys = file.keys()?;
        let mut wanted = self.given.clone();
        wanted.extend(file.policies(&keys)?);
        if wanted.is_empty() {
            let hint = "there is no zone: give --zone ORIGIN=FILE, or [[dns.zone]] in a file that \
                        --config names";
            return Err(Failure::new(hint.to_owned()));
        }
        let mut loaded = Vec::new();
        for (apex, policy) in wanted {
            let zone = self.zone(&policy)?;
            loaded.push(Loaded { apex, policy, zone });
        }
        store.change(|zones| {
            zones.keys = Arc::new(keys);
            // A zone from a catalog stays as long as the catalog.
            zones.retain(|apex, policy| {
                let named = policy.member_of.as_deref().unwrap_or(apex);
                loaded.iter().any(|it| it.apex == named)
            });
            for Loaded { apex, policy, zone } in loaded {
                let old = zones.at(&apex).and_then(|served| served.zone.clone());
                // A zone transferred from a primary is newer than its copy on disk.
                let zone = zone.filter(|_| old.is_none() || policy.primaries.is_empty());
                let zone = zone.map(|mut zone| {
                    old.iter().for_each(|old| zone.follow(old));
                    Arc::new(zone)
                });
                zones.set(&apex, zone.or(old), Arc::new(policy));
                if let Err(why) = follow_catalog(zones, &apex) {
                    log(&format!("catalog: {why}"));
                }
            }
        });
        self.is_started = true;
        Ok(file)
    }

    fn zone(&self, policy: &Policy) -> Result<Option<Zone>, Failure> {
        let is_secondary = !policy.primaries.is_empty();
        let file = policy.file.as_deref();
        let Some(file) = file.filter(|file| !is_secondary || file.exists()) else {
            return Ok(None);
        };
        match load(&policy.origin, file) {
            Ok(zone) => Ok(Some(zone)),
            Err(error) if self.is_started || is_secondary => {
                log(&format!(
                    "zone {}: {error}; it stays as it is",
                    policy.origin
                ));
                Ok(None)
            }
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }
}

/// The file in force, as for the other options.
fn config_file(matches: &ArgMatches) -> Option<PathBuf> {
    let given = matches
        .try_get_one::<String>(OPTION.config.name)
        .ok()
        .flatten();
    let named = given.map(PathBuf::from).or_else(|| {
        let named = std::env::var_os(OPTION.config.env);
        named.filter(|name| !name.is_empty()).map(PathBuf::from)
    });
    let system = || Some(PathBuf::from(SYSTEM_FILE)).filter(|path| path.exists());
    named
        .or_else(system)
        .filter(|path| path != Path::new("/dev/null"))
}
