//! Which sections of which RFCs are implemented where, tested where, and which are left out and why.
//!
//! `docs/reference/rfcs.toml` lists the sections that bind an implementation; the citations in the
//! source say where each one is kept. A section that nobody cites and nobody excuses is a finding.

mod citations;
mod page;
mod table;

use std::path::Path;

use citations::Citations;
use table::Rfc;

const TABLE: &str = "docs/reference/rfcs.toml";
const PAGE: &str = "docs/reference/rfcs.md";

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
        for (section, title) in &rfc.sections {
            let is_cited = citations
                .of(rfc.number, section)
                .any(|place| !place.is_test);
            let excuse = rfc.left_out.contains_key(section);
            if !is_cited && !excuse {
                findings.push(format!(
                    "{TABLE}: RFC {} {section} ({title}) is neither cited in the source nor left out with a reason",
                    rfc.number
                ));
            }
        }
        for section in rfc
            .left_out
            .keys()
            .filter(|key| !rfc.sections.contains_key(*key))
        {
            findings.push(format!(
                "{TABLE}: RFC {} leaves out {section}, which is not listed",
                rfc.number
            ));
        }
    }
    for number in citations.numbers() {
        if !rfcs.iter().any(|rfc| rfc.number == number) {
            findings.push(format!(
                "{TABLE}: RFC {number} is cited in the source and not listed"
            ));
        }
    }
    findings
}
