//! Check that the paths and options that documents name exist.

use std::collections::HashSet;
use std::path::Path;

use regex::Regex;

use crate::sources;

/// A document points at a place of the tree when it names one of these folders in code quotes.
const FOLDERS: &[&str] = &[
    "benches/", "crates/", "docs/", "fuzz/", "scripts/", "tests/", "xtask/",
];

/// Folders of the programs whose options the documents name.
const PROGRAMS: &[&str] = &["benches/", "crates/", "examples/", "scripts/", "tests/"];

pub fn check(root: &Path) -> Vec<String> {
    let files = match sources::tracked_files(root) {
        Ok(files) => files,
        Err(reason) => return vec![format!("git ls-files: {reason}")],
    };
    let words = words_of_programs(root, &files);
    let mut findings = Vec::new();
    for name in files.iter().filter(|name| name.ends_with(".md")) {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for path in named_paths(line).filter(|path| !root.join(path).exists()) {
                findings.push(format!("{name}:{}: {path} does not exist", number + 1));
            }
            // Decision records describe the past.
            let options = named_options(line).filter(|_| !name.starts_with("docs/adr/"));
            for option in options.filter(|option| !words.contains(*option)) {
                findings.push(format!("{name}:{}: no --{option} anywhere", number + 1));
            }
        }
    }
    findings
}

/// The first word inside of each pair of backticks, where it is a path of the tree.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|quoted| quoted.split_whitespace().next())
        .filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
        .filter(|word| !word.contains(['*', '{', '<', '…']))
}

fn named_options(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split([
        ' ', '`', '=', '"', ',', '(', ')', '[', ']', '|', '/', ';', ':', '.',
    ]);
    parts
        .filter_map(|part| part.strip_prefix("--"))
        .filter(|name| name.starts_with(|it: char| it.is_ascii_lowercase()))
        .filter(|name| {
            name.bytes()
                .all(|it| it.is_ascii_alphanumeric() || it == b'-')
        })
}

/// Returns all words of the programs' sources, spelt as options are: fields of arguments, rows of
/// the table of options, and options of other programs that tests start.
fn words_of_programs(root: &Path, files: &[String]) -> HashSet<String> {
    let pattern = Regex::new("[a-z][a-z0-9_-]+").expect("a valid pattern");
    let is_program = |name: &&String| {
        PROGRAMS.iter().any(|folder| name.starts_with(folder)) && !name.ends_with(".md")
    };
    let texts = files.iter().filter(is_program);
    let mut words = HashSet::new();
    for text in texts.filter_map(|name| std::fs::read_to_string(root.join(name)).ok()) {
        let found = pattern.find_iter(&text);
        words.extend(found.map(|word| word.as_str().replace('_', "-")));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_text_code_and_tables() {
        let line = "| `--if NAME` | with (--log=debug), `[--udp]`; -- nginx --- a--b |";
        let found: Vec<_> = named_options(line).collect();
        assert_eq!(found, ["if", "log", "udp"]);
    }
}
