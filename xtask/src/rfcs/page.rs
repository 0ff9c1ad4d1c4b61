//! The page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::citations::{Citations, Place};
use super::table::Rfc;

const HEAD: &str = "# RFCs

Written by `make reference` from `docs/reference/rfcs.toml` and the citations in the source. A section counts as
implemented where the source cites it; `make test` fails when a listed section is neither cited nor left out with a reason.

";

pub fn render(rfcs: &[Rfc], citations: &Citations) -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "| RFC | sections | implemented | tested by name | left out |\n|---|--:|--:|--:|--:|\n",
    );
    for rfc in rfcs {
        summary(&mut page, rfc, citations);
    }
    for rfc in rfcs {
        document(&mut page, rfc, citations);
    }
    page
}

fn summary(page: &mut String, rfc: &Rfc, citations: &Citations) {
    let count = |is_test: bool| {
        let is_cited = |section| {
            citations
                .of(rfc.number, section)
                .any(|place| place.is_test == is_test)
        };
        rfc.sections
            .keys()
            .filter(|section| is_cited(section))
            .count()
    };
    let _ = writeln!(
        page,
        "| [{0}](#rfc-{0}) {1} | {2} | {3} | {4} | {5} |",
        rfc.number,
        rfc.title,
        rfc.sections.len(),
        count(false),
        count(true),
        rfc.left_out.len()
    );
}

fn document(page: &mut String, rfc: &Rfc, citations: &Citations) {
    let _ = writeln!(page, "\n## RFC {}\n\n{}\n", rfc.number, rfc.title);
    let whole: Vec<_> = citations.of_document(rfc.number).collect();
    if !whole.is_empty() {
        let _ = writeln!(
            page,
            "Cited as a whole: {}\n",
            files(whole.into_iter(), None)
        );
    }
    if rfc.sections.is_empty() {
        return;
    }
    page.push_str("| section | implemented in | tested in | left out |\n|---|---|---|---|\n");
    for (section, title) in &rfc.sections {
        let places: Vec<_> = citations.of(rfc.number, section).collect();
        let _ = writeln!(
            page,
            "| {section} {title} | {} | {} | {} |",
            files(places.iter().copied(), Some(false)),
            files(places.iter().copied(), Some(true)),
            rfc.left_out.get(section).map_or("", String::as_str),
        );
    }
}

/// The files of the places, each once, without what their names have in common.
fn files<'a>(places: impl Iterator<Item = &'a Place>, is_test: Option<bool>) -> String {
    let names: BTreeSet<_> = places
        .filter(|place| is_test.is_none_or(|is_test| place.is_test == is_test))
        .map(|place| {
            place
                .file
                .strip_prefix("crates/")
                .unwrap_or(&place.file)
                .replace("/src/", "/")
        })
        .collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
