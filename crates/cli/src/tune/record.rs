//! The former values of changed settings, in a file that `--undo` reads.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipstack_config::Settings;
use slipstack_device::ethtool::Ethtool;
use slipstack_device::iface::KernelInterface;
use slipstack_keeper::runtime::{base_directory, network_namespace};

use super::item::Location;
use crate::failure::Failure;

/// The file of one interface. It lives no longer than the settings: until the machine is restarted.
pub struct Record {
    path: PathBuf,
    content: Content,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    identity: Identity,
    /// In the order in which they were changed.
    entries: Vec<(Location, String)>,
}

/// An interface, also where a later one has its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    /// Number of its network namespace; inodes are used again. `None` before Linux 5.14.
    namespace: Option<u64>,
    index: u32,
}

impl Record {
    /// # Errors
    /// There is one that cannot be read.
    pub fn of(settings: &Settings, interface: &KernelInterface) -> Result<Record, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let base = match &settings.run_dir {
            Some(base) => base.clone(),
            None => base_directory().map_err(|error| failed(&error))?,
        };
        let namespace = network_namespace().map_err(|error| failed(&error))?;
        let path = base.join(format!("tune-{namespace}-{}.json", interface.name));
        let mut content: Content = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(Failure::new(format!("{}: {error}", path.display()))),
        };
        let identity = Identity {
            namespace: Ethtool::new().ok().and_then(|it| it.namespace().ok()),
            index: interface.index,
        };
        let former = std::mem::replace(&mut content.identity, identity);
        // Settings of an interface go with it, those of a namespace too.
        if former.namespace != identity.namespace {
            content.entries.clear();
        } else if former.index != identity.index {
            content
                .entries
                .retain(|(place, _)| !place.is_of_interface());
        }
        Ok(Record { path, content })
    }

    pub fn is_empty(&self) -> bool {
        self.content.entries.is_empty()
    }

    /// The last change first.
    pub fn entries(&self) -> Vec<(Location, String)> {
        self.content.entries.iter().rev().cloned().collect()
    }

    /// Records the old value of a setting; returns false if it has been changed before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self, place: &Location, before: &str) -> Result<bool, Failure> {
        if self.content.entries.iter().any(|(known, _)| known == place) {
            return Ok(false);
        }
        self.content
            .entries
            .push((place.clone(), before.to_owned()));
        self.write().map(|()| true)
    }

    /// Removes a restored setting. The file is removed with the last one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&mut self, place: &Location) -> Result<(), Failure> {
        self.content.entries.retain(|(known, _)| known != place);
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::new(format!("{}: {error}", self.path.display()));
        if self.content.entries.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec_pretty(&self.content).map_err(std::io::Error::other);
        let folder = self.path.parent().unwrap_or(&self.path);
        let written = text.and_then(|text| {
            fs::create_dir_all(folder)?;
            let fresh = self.path.with_extension("new");
            fs::write(&fresh, text)?;
            fs::rename(&fresh, &self.path)
        });
        written.map_err(failed)
    }
}
