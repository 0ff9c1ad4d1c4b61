//! F-Stack's `config.ini`, read unchanged.
//!
//! [`reader`] splits lines into keys, [`keys`] gives the meaning of each key here, and [`port`]
//! turns a file into values of options. A key that has no meaning here becomes a [`Note`] with a
//! sentence that says why, and an unknown one a note with the nearest known key: nothing is ignored
//! silently.

mod dpdk;
mod fields;
mod file;
mod freebsd;
mod import;
mod keys;
mod machine;
mod network;
mod port;
mod reader;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use file::{FstackFile, Given, Note, NoteKind};
pub use machine::{Interfaces, Machine};

use crate::error::{ConfigError, read_text};

impl FstackFile {
    /// Reads the file at `file` for this machine.
    ///
    /// # Errors
    /// The first line that cannot be used, or why the file cannot be read.
    pub fn read(file: &Path) -> Result<FstackFile, ConfigError> {
        FstackFile::parse(&text_of(file)?, file, &Machine, false)
    }

    /// As [`FstackFile::read`], with the file's ports being DPDK's.
    ///
    /// # Errors
    /// As [`FstackFile::read`].
    pub fn read_for_dpdk(file: &Path) -> Result<FstackFile, ConfigError> {
        FstackFile::parse(&text_of(file)?, file, &Machine, true)
    }

    /// As [`FstackFile::read`] with the file's text and the machine's interfaces given.
    ///
    /// # Errors
    /// The first line that cannot be used.
    pub fn parse(
        text: &str,
        file: &Path,
        interfaces: &dyn Interfaces,
        is_dpdk: bool,
    ) -> Result<FstackFile, ConfigError> {
        let entries = reader::read(text).map_err(|(line, reason)| ConfigError::Ini {
            file: file.to_owned(),
            line,
            reason,
        })?;
        port::port(entries, file, interfaces, is_dpdk)
    }
}

/// Reads a file that must be F-Stack's.
fn text_of(file: &Path) -> Result<String, ConfigError> {
    let text = read_text(file)?;
    if is_fstack(file, &text) {
        return Ok(text);
    }
    Err(ConfigError::Ini {
        file: file.to_owned(),
        line: 0,
        reason: "this is no config.ini of F-Stack's, which has a [dpdk] section; a \
                 slipstack.toml is used as it is"
            .to_owned(),
    })
}

/// Returns whether a configuration file is F-Stack's: by its name's end, or because it has a
/// `[dpdk]` section.
#[must_use]
pub fn is_fstack(file: &Path, text: &str) -> bool {
    let is_ini = file
        .extension()
        .is_some_and(|it| it.eq_ignore_ascii_case("ini"));
    is_ini || text.lines().any(|line| line.trim() == "[dpdk]")
}
