//! The table of the C library's functions checked against its headers and its source, and the page
//! generated from it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use regex::Regex;

const TABLE: &str = "docs/reference/functions.toml";
const PAGE: &str = "docs/reference/functions.md";
const HEADERS: &str = "crates/capi/include";
/// The library's source, and that of the parts of `libslipstack.so` which F-Stack's adapter has.
const SOURCES: &[&str] = &["crates/capi/src", "crates/preload/src/kqueue"];
/// Names of functions, and declarations of variables; the name is the one group.
const DECLARED: &[&str] = &[
    r"\b((?:ff|slipstack|fstack|is_fstack|alarm)_\w+|kqueue|kevent)\(",
    r"\bextern [\w ]+?[ *](\w+)(?:\[[^\]]*\])?;",
];
const EXPORTED: &[&str] = &[
    r#"extern "C" fn ((?:ff|slipstack|fstack|is_fstack|alarm)_\w+|kqueue|kevent)\("#,
    r"pub static mut (\w+):",
];
const WORDS: &[&str] = &["same", "better", "other", "ours", "none"];

struct Row {
    family: String,
    name: String,
    is: String,
    note: String,
}

pub fn check(root: &Path) -> Vec<String> {
    let rows = match rows(root) {
        Ok(rows) => rows,
        Err(reason) => return vec![reason],
    };
    let mut findings = Vec::new();
    let declared = names(root, &[HEADERS], "h", DECLARED);
    let exported = names(root, SOURCES, "rs", EXPORTED);
    for row in &rows {
        let name = &row.name;
        if !WORDS.contains(&row.is.as_str()) {
            findings.push(format!("{TABLE}: {name}: there is no word '{}'", row.is));
        }
        let is_there = declared.contains(name) && (exported.contains(name) || name == "ff_log");
        if row.is != "none" && !is_there {
            findings.push(format!("{TABLE}: {name} is not declared and exported"));
        }
        if row.is == "none" && row.note.is_empty() {
            findings.push(format!("{TABLE}: {name}: why is it not there?"));
        }
    }
    for name in declared.union(&exported) {
        if !rows.iter().any(|row| row.name == *name) {
            findings.push(format!("{TABLE}: {name} has no row"));
        }
    }
    let is_current = std::fs::read_to_string(root.join(PAGE)).is_ok_and(|text| text == page(&rows));
    if !is_current {
        findings.push(format!("{PAGE} is not current: run `make reference`"));
    }
    findings
}

pub fn write(root: &Path) -> Vec<String> {
    let written = rows(root).and_then(|rows| {
        std::fs::write(root.join(PAGE), page(&rows)).map_err(|error| format!("{PAGE}: {error}"))
    });
    written.err().into_iter().collect()
}

fn rows(root: &Path) -> Result<Vec<Row>, String> {
    let text = std::fs::read_to_string(root.join(TABLE)).map_err(|it| format!("{TABLE}: {it}"))?;
    let table: toml::Table = text.parse().map_err(|it| format!("{TABLE}: {it}"))?;
    let mut rows = Vec::new();
    for (family, functions) in &table {
        for (name, value) in functions.as_table().into_iter().flatten() {
            let part = |at: usize| {
                let text = value.get(at).and_then(toml::Value::as_str);
                text.map(str::to_owned)
                    .ok_or_else(|| format!("{TABLE}: {name}: a word and a note"))
            };
            rows.push(Row {
                family: family.clone(),
                name: name.clone(),
                is: part(0)?,
                note: part(1)?,
            });
        }
    }
    Ok(rows)
}

/// Returns the names that patterns find in the files of folders.
fn names(root: &Path, folders: &[&str], extension: &str, patterns: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let patterns = patterns.iter().filter_map(|it| Regex::new(it).ok());
    let patterns: Vec<Regex> = patterns.collect();
    for file in crate::sources::tracked_files(root).unwrap_or_default() {
        if !folders.iter().any(|folder| file.starts_with(folder)) || !file.ends_with(extension) {
            continue;
        }
        let text = std::fs::read_to_string(root.join(&file)).unwrap_or_default();
        for hit in patterns.iter().flat_map(|it| it.captures_iter(&text)) {
            let Some(name) = hit.get(1) else {
                continue;
            };
            // In a comment a function is named as a call of it.
            let before = text[..name.start()].lines().last().unwrap_or_default();
            if extension == "rs" || !before.trim_start().starts_with(['*', '/']) {
                found.insert(name.as_str().to_owned());
            }
        }
    }
    found
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from(
        "# Functions of the C library\n\n\
         Written from `functions.toml` by `make reference`. Compared with F-Stack 1.25: *same*;\n\
         *better*; *other*, the effect is had in another way; *ours*, F-Stack has none; *none*,\n\
         why it is not there.\n",
    );
    let mut families: Vec<&str> = Vec::new();
    for row in rows {
        if !families.contains(&row.family.as_str()) {
            families.push(&row.family);
        }
    }
    for family in families {
        let _ = write!(
            text,
            "\n## {family}\n\n| function | is | |\n|---|---|---|\n"
        );
        for row in rows.iter().filter(|row| row.family == family) {
            let _ = writeln!(text, "| `{}` | {} | {} |", row.name, row.is, row.note);
        }
    }
    text
}
