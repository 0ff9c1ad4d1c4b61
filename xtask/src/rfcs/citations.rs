//! The places in the source that cite an RFC.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;

use super::table::Section;
use crate::sources;

const FOLDERS: &[&str] = &["crates/", "tests/", "fuzz/"];
const EXTENSIONS: &[&str] = &[".rs", ".py", ".c", ".pkt"];

/// `RFC 9293 3.10.7.4 (first)`, `RFC 9293 3.5, 3.6 and 3.7.1`, `RFC 1191`.
const CITATION: &str = r"RFC (\d{3,5})((?:(?:,| and|;)? (?:§ ?)?\d+(?:\.\d+)*[a-z]?\b)*)";

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: String,
    pub is_test: bool,
}

#[derive(Default)]
pub struct Citations {
    /// A citation without a section stands under `None`.
    places: BTreeMap<u32, BTreeMap<Option<Section>, Vec<Place>>>,
}

impl Citations {
    pub fn collect(root: &Path) -> Result<Self, String> {
        let citation = Regex::new(CITATION).map_err(|error| error.to_string())?;
        let section = Regex::new(r"\d+(?:\.\d+)*").map_err(|error| error.to_string())?;
        let mut citations = Self::default();
        for file in sources::tracked_files(root)? {
            let is_read = FOLDERS.iter().any(|folder| file.starts_with(folder))
                && EXTENSIONS.iter().any(|extension| file.ends_with(extension));
            if let (true, Ok(text)) = (is_read, std::fs::read_to_string(root.join(&file))) {
                citations.read(&file, &joined(&text), &citation, &section);
            }
        }
        Ok(citations)
    }

    fn read(&mut self, file: &str, text: &str, citation: &Regex, section: &Regex) {
        let tests_from = text.find("#[cfg(test)]").unwrap_or(text.len());
        let is_test_file =
            file.starts_with("tests/") || file.starts_with("fuzz/") || file.contains("/tests/");
        for found in citation.captures_iter(text) {
            let (whole, list) = (found.get(0).map_or(0, |at| at.start()), &found[2]);
            let Ok(number) = found[1].parse() else {
                continue;
            };
            let place = Place {
                file: file.to_owned(),
                is_test: is_test_file || whole >= tests_from,
            };
            let sections = section
                .find_iter(list)
                .map(|at| Some(Section::parse(at.as_str())));
            let mut keys: Vec<_> = sections.collect();
            if keys.is_empty() {
                keys.push(None);
            }
            let of_rfc = self.places.entry(number).or_default();
            for key in keys {
                let places = of_rfc.entry(key).or_default();
                if !places.contains(&place) {
                    places.push(place.clone());
                }
            }
        }
    }

    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.places.keys().copied()
    }

    /// The places that cite a section or a part of it.
    pub fn of<'a>(&'a self, number: u32, section: &'a Section) -> impl Iterator<Item = &'a Place> {
        self.places
            .get(&number)
            .into_iter()
            .flatten()
            .filter_map(move |(cited, places)| {
                cited
                    .as_ref()
                    .is_some_and(|cited| cited.is_within(section))
                    .then_some(places)
            })
            .flatten()
    }

    /// The places that cite the document as a whole.
    pub fn of_document(&self, number: u32) -> impl Iterator<Item = &Place> {
        self.places
            .get(&number)
            .and_then(|of_rfc| of_rfc.get(&None))
            .into_iter()
            .flatten()
    }
}

/// The text with comments that run over a line's end made one line, so that no citation is cut in two.
fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        let trimmed = line.trim_start();
        let comment = ["///", "//!", "//", "#"]
            .iter()
            .find_map(|mark| trimmed.strip_prefix(mark));
        joined.push_str(match comment {
            Some(comment) if !trimmed.starts_with("#[") => comment,
            _ => line,
        });
        joined.push(if comment.is_some() { ' ' } else { '\n' });
    }
    joined
}
