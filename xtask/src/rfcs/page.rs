//! The generated page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::citations::{Citations, Location};
use super::table::{Rfc, Section};

const HEAD: &str = "# RFCs

Written by `make reference` from `docs/reference/rfcs.toml` and the citations in the source. A
section counts as implemented where the source cites it, and as tested where a test does; a choice
against a section (`DEVIATION` in the source) stands beside it with its reason and implements
nothing. `make test` fails when a listed section is neither cited nor left out with a reason, when
one is both and the reason does not say that it is left out in part, and when a section is cited and
not listed.

";

pub fn render(rfcs: &[Rfc], citations: &Citations) -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "| RFC | sections | implemented | tested by name | deviates | left out \
         |\n|---|--:|--:|--:|--:|--:|\n",
    );
    for rfc in rfcs {
        summary(&mut page, rfc, citations);
    }
    for rfc in rfcs {
        document(&mut page, rfc, citations);
    }
    others(&mut page, citations);
    page
}

fn summary(page: &mut String, rfc: &Rfc, citations: &Citations) {
    let number = rfc.number;
    let count = |is_so: &dyn Fn(&Section) -> bool| {
        let sections = rfc.sections.keys();
        sections.filter(|section| is_so(section)).count()
    };
    let _ = writeln!(
        page,
        "| [{number}](#rfc-{number}) {} | {} | {} | {} | {} | {} |",
        rfc.title,
        rfc.sections.len(),
        count(&|section| citations.is_implemented(number, section)),
        count(&|section| citations.is_tested(number, section)),
        count(&|section| citations.deviations_from(number, section).next().is_some()),
        rfc.left_out.len()
    );
}

fn document(page: &mut String, rfc: &Rfc, citations: &Citations) {
    let _ = writeln!(page, "\n## RFC {}\n\n{}\n", rfc.number, rfc.title);
    let whole: Vec<_> = citations.of_document(rfc.number).collect();
    if !whole.is_empty() {
        let _ = writeln!(
            page,
            "Cited as a whole:\n\n- {}\n",
            files(whole.into_iter(), None).replace(", ", "\n- ")
        );
    }
    if rfc.sections.is_empty() {
        return;
    }
    page.push_str(
        "| section | implemented in | tested in | deviates | left out |\n|---|---|---|---|---|\n",
    );
    for (section, title) in &rfc.sections {
        let places: Vec<_> = citations.of(rfc.number, section).collect();
        let deviations: Vec<_> = citations
            .deviations_from(rfc.number, section)
            .map(|deviation| format!("{} ({})", deviation.reason, short(&deviation.file)))
            .collect();
        let _ = writeln!(
            page,
            "| {section} {title} | {} | {} | {} | {} |",
            files(places.iter().copied(), Some(false)),
            files(places.iter().copied(), Some(true)),
            deviations.join("; "),
            rfc.left_out.get(section).map_or("", String::as_str),
        );
    }
}

/// Deviations from documents other than RFCs: from Linux, from drafts.
fn others(page: &mut String, citations: &Citations) {
    page.push_str(
        "\n## Deviations from Linux and from drafts\n\n| from | in | what and why \
        |\n|---|---|---|\n",
    );
    let others = citations.deviations.iter();
    let mut others: Vec<_> = others
        .filter(|deviation| deviation.sections.is_empty())
        .map(|deviation| (&deviation.from, &deviation.file, &deviation.reason))
        .collect();
    others.sort_unstable();
    for (from, file, reason) in others {
        let _ = writeln!(page, "| {from} | {} | {reason} |", short(file));
    }
}

/// Returns the files of the places, each once, without their common prefix.
fn files<'a>(places: impl Iterator<Item = &'a Location>, is_test: Option<bool>) -> String {
    let names: BTreeSet<_> = places
        .filter(|place| is_test.is_none_or(|is_test| place.is_test == is_test))
        .map(|place| short(&place.file))
        .collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn short(file: &str) -> String {
    let file = file.strip_prefix("crates/").unwrap_or(file);
    file.replace("/src/", "/")
}
