//! F-Stack's `config.ini`, read as it is.
//!
//! [`reader`] gives the lines' keys, [`keys`] says what each of them means here, and [`port`] turns
//! a file into values of options. A key that has no meaning here becomes a [`Note`] with a sentence
//! that says why, and an unknown one a note with the nearest known key: nothing is passed over.

mod fields;
mod freebsd;
mod keys;
mod machine;
mod network;
mod port;
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

pub use machine::{Interfaces, Machine};

use crate::choice::Log;
use crate::layers::{ConfigError, Layers, Source, read_text};

/// What a file says beside the options' values: a sentence about one of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub line: usize,
    /// Section and key, as `[dpdk] channel`.
    pub key: String,
    pub kind: NoteKind,
    pub sentence: String,
}

/// How much a user should care about a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// Nobody knows the key.
    Unknown,
    /// The key asks for something that is done otherwise here.
    Differs,
    /// The key has no meaning here, and its absence is not felt.
    Moot,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.key, self.sentence)
    }
}

/// One value that a file gives an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub option: &'static str,
    pub text: String,
    pub line: usize,
}

/// An F-Stack configuration in our terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FstackFile {
    pub file: PathBuf,
    /// The cores of `lcore_mask` in ascending order: process N runs on the N-th.
    pub cores: Vec<usize>,
    pub given: Vec<Given>,
    /// In the order of their lines.
    pub notes: Vec<Note>,
    /// Log files are this and the process's number.
    pub log_prefix: Option<String>,
}

impl FstackFile {
    /// Reads the file at `file` for this machine.
    ///
    /// # Errors
    /// The first line that cannot be used, or why the file cannot be read.
    pub fn read(file: &Path) -> Result<FstackFile, ConfigError> {
        let text = read_text(file)?;
        FstackFile::parse(&text, file, &Machine)
    }

    /// As [`FstackFile::read`] with the file's text and the machine's interfaces given.
    ///
    /// # Errors
    /// The first line that cannot be used.
    pub fn parse(
        text: &str,
        file: &Path,
        interfaces: &dyn Interfaces,
    ) -> Result<FstackFile, ConfigError> {
        let entries = reader::read(text).map_err(|(line, reason)| ConfigError::Ini {
            file: file.to_owned(),
            line,
            reason,
        })?;
        port::port(entries, file, interfaces)
    }

    /// Returns what is to be said about the file at a level: each line that asks in vain for
    /// something that matters, and how many there are of the others.
    #[must_use]
    pub fn sentences(&self, log: Log) -> Vec<String> {
        let file = self.file.display();
        let is_said = |note: &&Note| note.kind != NoteKind::Moot || log >= Log::Info;
        if log < Log::Warn {
            return Vec::new();
        }
        let said = self.notes.iter().filter(is_said);
        let mut sentences: Vec<String> = said.map(|note| format!("{file} {note}")).collect();
        let rest = self.notes.len() - sentences.len();
        if rest > 0 {
            sentences.push(format!(
                "{file}: {rest} keys have no meaning here (slipstack config check {file} lists them)"
            ));
        }
        sentences
    }

    /// Returns how many processes F-Stack would start: one for each bit of `lcore_mask`.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.cores.len().max(1)
    }
}

impl Layers {
    /// Takes the file's values; `process` is the number of one of its processes, which gets its core
    /// of `lcore_mask` and its log file.
    ///
    /// # Errors
    /// There is no such process, or a value is not valid.
    pub fn take_fstack(
        &mut self,
        ini: &FstackFile,
        process: Option<u32>,
    ) -> Result<(), ConfigError> {
        for given in &ini.given {
            let source = Source::Line(ini.file.clone(), given.line);
            self.set(given.option, given.text.clone(), source)?;
        }
        let Some(process) = process else {
            return Ok(());
        };
        let source = || Source::File(ini.file.clone());
        if let Some(prefix) = &ini.log_prefix {
            self.set("log-file", format!("{prefix}{process}.log"), source())?;
        }
        match ini.cores.get(process as usize) {
            Some(core) => self.set("cores", core.to_string(), source()),
            None if ini.cores.is_empty() && process == 0 => Ok(()),
            None => Err(ConfigError::Combination(format!(
                "{}: lcore_mask has {} bits, so there is no process {process} (they count from 0)",
                ini.file.display(),
                ini.processes()
            ))),
        }
    }
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
