//! Coverage of RFCs: the sections that are implemented, where, where they are tested, and the
//! reasons why others are left out.
//!
//! `docs/reference/rfcs.toml` lists the sections that bind an implementation; citations in the
//! source say where each one is implemented. A section without a citation or a reason is an error,
//! and so is a cited section that is not listed.

mod citations;
mod page;
mod pieces;
mod table;

use std::collections::BTreeSet;
use std::path::Path;

use citations::Citations;
use table::Rfc;

const TABLE: &str = "docs/reference/rfcs.toml";
const PAGE: &str = "docs/reference/rfcs.md";
/// Beginning of the reason for which a section is left out that is cited all the same.
const IN_PART: &str = "in part";

pub fn write(root: &Path) -> Vec<String> {
    match load(root) {
        Ok((rfcs, citations)) => {
            match std::fs::write(root.join(PAGE), page::render(&rfcs, &citations)) {
                Ok(()) => findings(&rfcs, &citations),
                Err(error) => vec![format!("{PAGE}: {error}")],
            }
        }
        Err(reason) => vec![reason],
    }
}

pub fn check(root: &Path) -> Vec<String> {
    let (rfcs, citations) = match load(root) {
        Ok(loaded) => loaded,
        Err(reason) => return vec![reason],
    };
    let mut findings = findings(&rfcs, &citations);
    let is_current = std::fs::read_to_string(root.join(PAGE))
        .is_ok_and(|text| text == page::render(&rfcs, &citations));
    if !is_current {
        findings.push(format!("{PAGE} is not current: run `make reference`"));
    }
    findings
}

fn load(root: &Path) -> Result<(Vec<Rfc>, Citations), String> {
    Ok((table::load(&root.join(TABLE))?, Citations::collect(root)?))
}

fn findings(rfcs: &[Rfc], citations: &Citations) -> Vec<String> {
    let mut findings = Vec::new();
    for rfc in rfcs {
        let number = rfc.number;
        for (section, title) in &rfc.sections {
            let is_implemented = citations.is_implemented(number, section);
            let deviates = citations.deviations_from(number, section).next().is_some();
            match rfc.left_out.get(section) {
                None if !is_implemented && !deviates => findings.push(format!(
                    "{TABLE}: RFC {number} {section} ({title}) is neither cited in the source nor \
                     left out with a reason"
                )),
                Some(reason) if is_implemented && !reason.starts_with(IN_PART) => {
                    findings.push(format!(
                        "{TABLE}: RFC {number} {section} ({title}) is cited in the source and left \
                     out: the reason begins with \"{IN_PART}\" if both are true"
                    ))
                }
                _ => {}
            }
        }
        let left_out = rfc.left_out.keys();
        for section in left_out.filter(|section| !rfc.sections.contains_key(*section)) {
            findings.push(format!(
                "{TABLE}: RFC {number} leaves out {section}, which is not listed"
            ));
        }
    }
    findings.extend(unlisted(rfcs, citations));
    findings
}

/// Returns citations of the source that the page would not show.
fn unlisted(rfcs: &[Rfc], citations: &Citations) -> BTreeSet<String> {
    let mut unlisted = BTreeSet::new();
    for (number, section) in citations.all() {
        let rfc = rfcs.iter().find(|rfc| rfc.number == number);
        let is_listed = match (rfc, section) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(rfc), Some(section)) => rfc.sections.keys().any(|key| section.is_within(key)),
        };
        if !is_listed {
            let section = section.map_or(String::new(), |section| format!(" {section}"));
            unlisted.insert(format!(
                "{TABLE}: RFC {number}{section} is cited in the source and not listed"
            ));
        }
    }
    unlisted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(left_out: &str) -> Vec<Rfc> {
        let text = format!(
            "[[rfc]]\nnumber = 9293\ntitle = \"\"\n[rfc.sections]\n\"3.5\" = \
             \"Open\"\n[rfc.left_out]\n{left_out}\n"
        );
        table::parse(&text).unwrap()
    }

    fn found(left_out: &str, source: &str) -> usize {
        let citations = Citations::of_file("crates/stack/src/a.rs", source);
        findings(&table(left_out), &citations).len()
    }

    #[test]
    fn a_listed_section_is_cited_or_deviated_from_or_left_out_and_not_twice() {
        assert_eq!(found("", ""), 1);
        assert_eq!(found("", "// RFC 9293 3.5"), 0);
        assert_eq!(found("", "// DEVIATION(RFC 9293 3.5): why"), 0);
        assert_eq!(found("\"3.5\" = \"why\"", ""), 0);
        assert_eq!(found("\"3.5\" = \"why\"", "// RFC 9293 3.5"), 1);
        assert_eq!(found("\"3.5\" = \"in part: why\"", "// RFC 9293 3.5"), 0);
    }

    #[test]
    fn citations_and_deviations_are_listed() {
        for (source, expected) in [
            ("// RFC 9293 3.5.1 and 3.5", 0),
            ("// RFC 9293 3.5 and 3.6", 1),
            ("// RFC 9293 3.5 and 3", 1),
            ("// RFC 9293 3.5, RFC 1122", 1),
            ("// RFC 9293 3.5. DEVIATION(RFC 9293 3.6): why", 1),
        ] {
            assert_eq!(found("", source), expected, "{source}");
        }
    }
}
