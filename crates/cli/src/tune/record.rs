//! The former values of changed settings, in a file that `--undo` reads.

use std::fs;
use std::path::PathBuf;

use slipstack_config::Settings;
use slipstack_keeper::runtime::{base_directory, network_namespace};

use super::item::Location;
use crate::failure::Failure;

/// The file of one interface. It lives no longer than the settings: until the machine is restarted.
pub struct Record {
    path: PathBuf,
    /// In the order in which they were changed.
    entries: Vec<(Location, String)>,
}

impl Record {
    /// # Errors
    /// There is one that cannot be read.
    pub fn of(settings: &Settings, interface: &str) -> Result<Record, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let base = match &settings.run_dir {
            Some(base) => base.clone(),
            None => base_directory().map_err(|error| failed(&error))?,
        };
        let namespace = network_namespace().map_err(|error| failed(&error))?;
        let path = base.join(format!("tune-{namespace}-{interface}.json"));
        let entries = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Failure::new(format!("{}: {error}", path.display()))),
        };
        Ok(Record { path, entries })
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The last change first.
    pub fn entries(&self) -> Vec<(Location, String)> {
        self.entries.iter().rev().cloned().collect()
    }

    /// Records the old value of a setting; returns false if it has been changed before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self, place: &Location, before: &str) -> Result<bool, Failure> {
        if self.entries.iter().any(|(known, _)| known == place) {
            return Ok(false);
        }
        self.entries.push((place.clone(), before.to_owned()));
        self.write().map(|()| true)
    }

    /// Removes a restored setting. The file is removed with the last one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&mut self, place: &Location) -> Result<(), Failure> {
        self.entries.retain(|(known, _)| known != place);
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::new(format!("{}: {error}", self.path.display()));
        if self.entries.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec_pretty(&self.entries).map_err(std::io::Error::other);
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
