//! The result of reading a file.

use std::fmt;
use std::path::PathBuf;

use slipstack_terms::LogLevel;

/// A sentence about one line of a file, beside the options' values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub line: usize,
    /// Section and key, as `[dpdk] channel`.
    pub key: String,
    pub kind: NoteKind,
    pub sentence: String,
}

/// Importance of a note for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// The key is unknown.
    Unknown,
    /// The key requests something that works differently here.
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
    /// Returns the sentences about the file at a level: one for each line with an important request
    /// that has no effect, and the number of the others.
    #[must_use]
    pub fn sentences(&self, log: LogLevel) -> Vec<String> {
        let file = self.file.display();
        let is_said = |note: &&Note| note.kind != NoteKind::Moot || log >= LogLevel::Info;
        if log < LogLevel::Warn {
            return Vec::new();
        }
        let said = self.notes.iter().filter(is_said);
        let mut sentences: Vec<String> = said.map(|note| format!("{file} {note}")).collect();
        let rest = self.notes.len() - sentences.len();
        if rest > 0 {
            let keys = if rest == 1 {
                "1 key has"
            } else {
                &format!("{rest} keys have")
            };
            sentences.push(format!(
                "{file}: {keys} no meaning here (slipstack config check {file} lists them)"
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
