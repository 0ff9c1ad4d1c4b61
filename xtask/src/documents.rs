//! Paths that the documents name exist.

use std::path::Path;

use crate::sources;

/// A document points at a place of the tree when it names one of these folders in code quotes.
const FOLDERS: &[&str] = &[
    "benches/", "crates/", "docs/", "fuzz/", "scripts/", "tests/", "xtask/",
];

pub fn check(root: &Path) -> Vec<String> {
    let files = match sources::tracked_files(root) {
        Ok(files) => files,
        Err(reason) => return vec![format!("git ls-files: {reason}")],
    };
    let mut findings = Vec::new();
    for name in files.iter().filter(|name| name.ends_with(".md")) {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for path in named_paths(line).filter(|path| !root.join(path).exists()) {
                findings.push(format!("{name}:{}: {path} does not exist", number + 1));
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
