//! A conversion in progress: the file's keys, and the options they have become.

use std::collections::BTreeMap;
use std::path::Path;

use super::file::{FstackFile, Given, Note, NoteKind};
use super::machine::Interfaces;
use super::reader::Entry;
use crate::error::ConfigError;

/// A file that is being read into options.
pub(crate) struct FileImport<'a> {
    file: &'a Path,
    pub(crate) interfaces: &'a dyn Interfaces,
    /// The last value of each key of each section.
    keys: BTreeMap<(String, String), Entry>,
    /// The ports are DPDK's and not the kernel's.
    pub(crate) is_dpdk: bool,
    pub(crate) out: FstackFile,
}

impl<'a> FileImport<'a> {
    pub(crate) fn new(
        entries: Vec<Entry>,
        file: &'a Path,
        interfaces: &'a dyn Interfaces,
        is_dpdk: bool,
    ) -> FileImport<'a> {
        let keyed = |entry: Entry| ((entry.section.clone(), entry.key.clone()), entry);
        FileImport {
            file,
            interfaces,
            keys: entries.into_iter().map(keyed).collect(),
            is_dpdk,
            out: FstackFile {
                file: file.to_owned(),
                ..FstackFile::default()
            },
        }
    }
}

impl FileImport<'_> {
    /// Returns a value's error: the line, the key and the requirement.
    pub(crate) fn wrong(&self, entry: &Entry, must: &str) -> ConfigError {
        let Entry {
            section,
            key,
            value,
            ..
        } = entry;
        self.refusal(
            entry.line,
            format!("[{section}] {key} is '{value}' but must be {must}"),
        )
    }

    pub(crate) fn refusal(&self, line: usize, reason: String) -> ConfigError {
        ConfigError::Ini {
            file: self.file.to_owned(),
            line,
            reason,
        }
    }

    pub(crate) fn entry(&self, section: &str, key: &str) -> Option<&Entry> {
        self.keys.get(&(section.to_owned(), key.to_owned()))
    }

    pub(crate) fn entries_of<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.keys
            .values()
            .filter(move |entry| entry.section == section)
    }

    /// The value of a key, read by `parse`; `None`: the file does not have it.
    pub(crate) fn parsed<T>(
        &self,
        section: &str,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let entry = self.entry(section, key);
        let read = |entry: &Entry| parse(&entry.value).map_err(|must| self.wrong(entry, &must));
        entry.map(read).transpose()
    }

    pub(crate) fn line(&self, section: &str, key: &str) -> usize {
        self.entry(section, key).map_or(0, |entry| entry.line)
    }

    pub(crate) fn give(&mut self, option: &'static str, text: String, line: usize) {
        self.out.given.push(Given { option, text, line });
    }

    pub(crate) fn note(&mut self, entry: &Entry, kind: NoteKind, sentence: impl Into<String>) {
        self.out.notes.push(Note {
            line: entry.line,
            key: format!("[{}] {}", entry.section, entry.key),
            kind,
            sentence: sentence.into(),
        });
    }

    /// Notes that a key means something else here, if the file has it.
    pub(crate) fn note_difference(&mut self, (section, key): (&str, &str), text: &str) {
        if let Some(entry) = self.entry(section, key).cloned() {
            self.note(&entry, NoteKind::Differs, text);
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.keys.values()
    }
}
