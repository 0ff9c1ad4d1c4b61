//! The counters of each engine at the last run of `nstat`, in a file of the user's own.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, OFlags, flock};

use super::engines::{Sample, Values};
use crate::failure::Failure;

/// Environment variable that names another file.
const NAME_BY: &str = "SLIPSTACK_NSTAT_HISTORY";
/// Larger files are none of ours.
const BYTES_MAX: u64 = 64 << 20;

/// Open and locked.
pub struct History {
    file: File,
    path: PathBuf,
    engines: BTreeMap<String, Values>,
}

impl History {
    /// # Errors
    /// The file cannot be opened, or belongs to another user.
    pub fn open() -> Result<History, Failure> {
        let uid = rustix::process::getuid().as_raw();
        let path = std::env::var_os(NAME_BY).map_or_else(
            || std::env::temp_dir().join(format!(".slipstack-nstat.u{uid}")),
            PathBuf::from,
        );
        let failed = |what: &dyn std::fmt::Display| {
            Failure::new(format!("the history {}: {what}", path.display()))
        };
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path);
        let mut file = opened.map_err(|error| failed(&error))?;
        let about = file.metadata().map_err(|error| failed(&error))?;
        if about.uid() != uid || !about.is_file() {
            return Err(failed(&"it is not a file of this user"));
        }
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(&error))?;
        let mut text = String::new();
        let read = (&mut file).take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| failed(&error))?;
        // An unreadable file counts as none.
        let engines = serde_json::from_str(&text).unwrap_or_default();
        Ok(History {
            file,
            path,
            engines,
        })
    }

    pub fn forget(&mut self) {
        self.engines.clear();
    }

    /// Returns the increase of an engine's sample since the last run.
    pub fn since(&self, sample: &Sample) -> Values {
        let before = self.engines.get(&key(sample));
        let before = |name| before.and_then(|it| it.get(name)).copied().unwrap_or(0);
        let values = sample.values.iter();
        values
            .map(|(name, value)| (name.clone(), value.saturating_sub(before(name))))
            .collect()
    }

    /// Stores the samples; engines that have ended are forgotten if all have been asked.
    pub fn keep(mut self, samples: &[Sample], are_all: bool) -> Result<(), Failure> {
        if are_all {
            self.engines.clear();
        }
        let seen = samples.iter().map(|it| (key(it), it.values.clone()));
        self.engines.extend(seen);
        let text = serde_json::to_string(&self.engines).unwrap_or_default();
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| self.file.write_all(text.as_bytes()));
        written
            .map_err(|error| Failure::new(format!("the history {}: {error}", self.path.display())))
    }
}

/// An engine by its process and when that began: numbers of processes come again.
fn key(sample: &Sample) -> String {
    let pid = sample.engine.pid;
    let begun = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Field 22; the second is a name in parentheses that may hold spaces.
    let begun = begun.rsplit(')').next().unwrap_or_default();
    let begun = begun.split_whitespace().nth(19).unwrap_or("0");
    let Sample {
        interface, engine, ..
    } = sample;
    format!("{interface}/{}/{pid}/{begun}", engine.slot)
}
