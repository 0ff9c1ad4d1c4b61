//! The places in the source that cite an RFC.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;

use super::pieces;
use super::table::Section;
use crate::sources;

const FOLDERS: &[&str] = &["crates/", "tests/", "fuzz/"];
const EXTENSIONS: &[&str] = &[".rs", ".py", ".c", ".pkt"];
/// Files whose citations concern the network around the stack under test: neither a part of it nor
/// a test of it.
const MODELS: &[&str] = &[
    "crates/drill/",
    "crates/emulator/",
    "crates/packetdrill/",
    "crates/sim/",
];

/// `RFC 9293 3.10.7.4 (first)`, `RFC 9293 3.5, 3.6 and 3.7.1`, `RFC 6298 5.1 to 5.3`, `RFC 1191`.
const CITATION: &str = r"RFC (\d{3,5})((?:(?:,| and| to)? (?:§ ?)?\d+(?:\.\d+)*[a-z]?\b)*)";
const SECTION: &str = r"\d+(?:\.\d+)*";
/// `DEVIATION(RFC 9293 3.4.1): reason`, `DEVIATION(Linux): reason`, `DEVIATION from Linux, which
/// …`.
const DEVIATION: &str = r"DEVIATION(?:\(([^)]*)\):| from (\w+),) (.*)";
const TEST_MODULE: &str = r"#\[cfg\(test\)\]\s+mod \w+ \{";

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    pub file: String,
    pub is_test: bool,
}

/// A choice against an RFC or against Linux.
pub struct Deviation {
    /// The text in the parentheses.
    pub from: String,
    pub sections: Vec<(u32, Option<Section>)>,
    pub reason: String,
    pub file: String,
}

#[derive(Default)]
pub struct Citations {
    /// A citation without a section stands under `None`.
    places: BTreeMap<u32, BTreeMap<Option<Section>, Vec<Location>>>,
    pub deviations: Vec<Deviation>,
}

struct Patterns {
    citation: Regex,
    section: Regex,
    deviation: Regex,
    test_module: Regex,
}

impl Patterns {
    fn new() -> Result<Self, String> {
        let new = |pattern| Regex::new(pattern).map_err(|error| error.to_string());
        Ok(Self {
            citation: new(CITATION)?,
            section: new(SECTION)?,
            deviation: new(DEVIATION)?,
            test_module: new(TEST_MODULE)?,
        })
    }

    fn cited(&self, text: &str) -> Vec<(u32, Option<Section>)> {
        let mut cited = Vec::new();
        for found in self.citation.captures_iter(text) {
            let Ok(number) = found[1].parse() else {
                continue;
            };
            let list = &found[2];
            let mut last: Option<Section> = None;
            for at in self.section.find_iter(list) {
                let section = Section::parse(at.as_str());
                let between = last.filter(|_| list[..at.start()].ends_with(" to "));
                let between = between.map_or(Vec::new(), |first| first.up_to(&section));
                cited.extend(between.into_iter().map(|section| (number, Some(section))));
                cited.push((number, Some(section.clone())));
                last = Some(section);
            }
            if last.is_none() {
                cited.push((number, None));
            }
        }
        cited
    }
}

impl Citations {
    pub fn collect(root: &Path) -> Result<Self, String> {
        let patterns = Patterns::new()?;
        let mut citations = Self::default();
        for file in sources::tracked_files(root)? {
            let is_read = FOLDERS.iter().any(|folder| file.starts_with(folder))
                && EXTENSIONS.iter().any(|extension| file.ends_with(extension));
            if let (true, Ok(text)) = (is_read, std::fs::read_to_string(root.join(&file))) {
                citations.read(&file, &text, &patterns);
            }
        }
        Ok(citations)
    }

    #[cfg(test)]
    pub fn of_file(file: &str, text: &str) -> Self {
        let mut citations = Self::default();
        let patterns = Patterns::new().unwrap_or_else(|error| panic!("{error}"));
        citations.read(file, text, &patterns);
        citations
    }

    fn read(&mut self, file: &str, text: &str, patterns: &Patterns) {
        let tests_from = patterns.test_module.find(text);
        let tests_from = tests_from.map_or(text.len(), |found| found.start());
        let is_model = MODELS.iter().any(|folder| file.starts_with(folder));
        for piece in pieces::split(text) {
            let is_test = is_test_file(file) || piece.at >= tests_from;
            if is_model && !is_test {
                continue;
            }
            let deviation = patterns.deviation.captures(&piece.text);
            let deviates_from = deviation.as_ref().and_then(|found| found.get(0));
            let kept = deviates_from.map_or(piece.text.len(), |found| found.start());
            for (number, section) in patterns.cited(&piece.text[..kept]) {
                self.note(number, section, file, is_test);
            }
            if let Some(found) = deviation.filter(|_| !is_test) {
                let from = found.get(1).or(found.get(2));
                let from = from.map_or("", |found| found.as_str());
                self.deviations.push(Deviation {
                    from: from.to_owned(),
                    sections: patterns.cited(from),
                    reason: found[3].trim_end_matches('.').to_owned(),
                    file: file.to_owned(),
                });
            }
        }
    }

    fn note(&mut self, number: u32, section: Option<Section>, file: &str, is_test: bool) {
        let places = self.places.entry(number).or_default();
        let places = places.entry(section).or_default();
        let place = Location {
            file: file.to_owned(),
            is_test,
        };
        if !places.contains(&place) {
            places.push(place);
        }
    }

    /// Each RFC that is cited or deviated from, and each of its sections.
    pub fn all(&self) -> impl Iterator<Item = (u32, Option<&Section>)> {
        let places = self.places.iter();
        let cited = places.flat_map(|(number, of_rfc)| {
            of_rfc
                .keys()
                .map(move |section| (*number, section.as_ref()))
        });
        let deviations = self.deviations.iter();
        cited.chain(deviations.flat_map(|deviation| {
            let sections = deviation.sections.iter();
            sections.map(|(number, section)| (*number, section.as_ref()))
        }))
    }

    /// The places that cite a section or a part of it.
    pub fn of<'a>(
        &'a self,
        number: u32,
        section: &'a Section,
    ) -> impl Iterator<Item = &'a Location> {
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

    pub fn is_implemented(&self, number: u32, section: &Section) -> bool {
        self.of(number, section).any(|place| !place.is_test)
    }

    pub fn is_tested(&self, number: u32, section: &Section) -> bool {
        self.of(number, section).any(|place| place.is_test)
    }

    /// Returns the deviations from a section or a part of it.
    pub fn deviations_from<'a>(
        &'a self,
        number: u32,
        section: &'a Section,
    ) -> impl Iterator<Item = &'a Deviation> {
        self.deviations.iter().filter(move |deviation| {
            deviation.sections.iter().any(|(of, from)| {
                *of == number && from.as_ref().is_some_and(|from| from.is_within(section))
            })
        })
    }

    /// The places that cite the document as a whole.
    pub fn of_document(&self, number: u32) -> impl Iterator<Item = &Location> {
        self.places
            .get(&number)
            .and_then(|of_rfc| of_rfc.get(&None))
            .into_iter()
            .flatten()
    }
}

fn is_test_file(file: &str) -> bool {
    file.starts_with("tests/")
        || file.starts_with("fuzz/")
        || file.contains("/tests/")
        || file.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether 9293 3.5 is implemented, and whether it is tested.
    fn state(citations: &Citations) -> (bool, bool) {
        let section = Section::parse("3.5");
        (
            citations.is_implemented(9293, &section),
            citations.is_tested(9293, &section),
        )
    }

    #[test]
    fn a_file_implements_tests_or_models() {
        for (file, expected) in [
            ("crates/stack/src/slaac/mod.rs", (true, false)),
            ("crates/stack/src/slaac/tests.rs", (false, true)),
            ("crates/stack/tests/below_tcp/forward.rs", (false, true)),
            ("tests/packetdrill/close/fin.pkt", (false, true)),
            ("crates/sim/src/link/ecn.rs", (false, false)),
            ("crates/sim/tests/congestion.rs", (false, true)),
        ] {
            assert_eq!(
                state(&Citations::of_file(file, "// RFC 9293 3.5.1\n")),
                expected,
                "{file}"
            );
        }
    }

    #[test]
    fn code_after_a_test_module_is_a_test_and_code_after_its_name_is_not() {
        let file = "crates/stack/src/lib.rs";
        let inline = "#[cfg(test)]\nmod tests {\n// RFC 9293 3.5\n}\n";
        assert_eq!(state(&Citations::of_file(file, inline)), (false, true));
        let apart = "#[cfg(test)]\nmod tests;\n// RFC 9293 3.5\n";
        assert_eq!(state(&Citations::of_file(file, apart)), (true, false));
    }

    #[test]
    fn a_citation_on_two_lines_names_all_its_sections() {
        let text = "// RFC 9293 3.4.1,\n// 3.5 and 3.8.1 to 3.8.4: all\n";
        let citations = Citations::of_file("crates/stack/src/a.rs", text);
        let sections: Vec<_> = citations
            .all()
            .map(|(_, section)| section.unwrap().to_string())
            .collect();
        let expected = ["3.4.1", "3.5", "3.8.1", "3.8.2", "3.8.3", "3.8.4"];
        assert_eq!(sections, expected);
    }

    #[test]
    fn a_deviation_is_no_implementation_and_keeps_its_reason() {
        let text = "// RFC 1122 4.2. DEVIATION(RFC 9293 3.5, RFC 5961 3.2): the reason is\n// long \
            (RFC 793).\nf();\n";
        let citations = Citations::of_file("crates/stack/src/a.rs", text);
        assert_eq!(state(&citations), (false, false));
        assert!(citations.is_implemented(1122, &Section::parse("4.2")));
        for (number, section) in [(9293, "3.5"), (5961, "3")] {
            let section = Section::parse(section);
            let reasons: Vec<_> = citations
                .deviations_from(number, &section)
                .map(|deviation| deviation.reason.as_str())
                .collect();
            assert_eq!(reasons, ["the reason is long (RFC 793)"]);
        }
    }

    #[test]
    fn a_deviation_from_linux_names_no_section() {
        for text in [
            "// DEVIATION(Linux): why\n",
            "// DEVIATION from Linux, why\n",
        ] {
            let citations = Citations::of_file("crates/posix/src/a.rs", text);
            let [deviation] = &citations.deviations[..] else {
                panic!("{text}");
            };
            assert_eq!((&*deviation.from, &*deviation.reason), ("Linux", "why"));
            assert!(deviation.sections.is_empty());
        }
    }
}
