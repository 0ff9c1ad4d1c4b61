//! Import cycles and layers inside a crate, functions with too many parameters, and methods that
//! belong to a part.
//!
//! A file is a node; an arrow leads from a file to the file that defines what it names by a path
//! from `crate`, `self` or `super`. Names that a `mod.rs` or `lib.rs` passes on by `use` count for
//! the file they come from, so that a facade adds no arrows of its own. Tests are left out.

mod arity;
mod graph;
mod layers;
mod modules;
mod names;
mod parts;

use std::path::Path;

use modules::Crate;

/// The largest number of files that may import each other in a circle.
const CYCLE_FILES_MAX: usize = 3;

/// The largest number of parameters, a tuple counted by its elements.
const ARITY_MAX: usize = 7;

pub fn check(root: &Path) -> Vec<String> {
    let Ok(folders) = std::fs::read_dir(root.join("crates")) else {
        return vec!["crates/ cannot be read".to_owned()];
    };
    let mut names: Vec<String> = folders
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.iter().flat_map(|name| of_crate(root, name)).collect()
}

/// Prints the arrows inside a crate's cycles: each file with those it names.
pub fn show(root: &Path, name: &str) -> Vec<String> {
    let parsed = match Crate::read(&root.join("crates").join(name).join("src")) {
        Ok(parsed) => parsed,
        Err(reason) => return vec![format!("crates/{name}: {reason}")],
    };
    let arrows = names::arrows(&parsed);
    for cycle in graph::cycles(&arrows) {
        println!("{} files:", cycle.len());
        for &from in &cycle {
            let to = cycle.iter().filter(|to| arrows[from].contains(to));
            let to: Vec<&str> = to.map(|to| parsed.name_of(*to)).collect();
            println!("  {} -> {}", parsed.name_of(from), to.join(" "));
        }
    }
    for function in arity::above(&parsed, ARITY_MAX) {
        println!("{function}");
    }
    Vec::new()
}

fn of_crate(root: &Path, name: &str) -> Vec<String> {
    let parsed = match Crate::read(&root.join("crates").join(name).join("src")) {
        Ok(parsed) => parsed,
        Err(reason) => return vec![format!("crates/{name}: {reason}")],
    };
    let mut findings = Vec::new();
    let arrows = names::arrows(&parsed);
    findings.extend(layers::check(name, &parsed, &arrows));
    findings.extend(parts::check(name, &parsed));
    let cycles = graph::cycles(&arrows);
    for cycle in cycles.iter().filter(|cycle| cycle.len() > CYCLE_FILES_MAX) {
        let files: Vec<&str> = cycle.iter().map(|file| parsed.name_of(*file)).collect();
        let count = files.len();
        let files = files.join(" ");
        findings.push(format!(
            "crates/{name}: {count} files import each other in a circle, at most \
             {CYCLE_FILES_MAX}: {files}"
        ));
    }
    let long = arity::above(&parsed, ARITY_MAX);
    if !long.is_empty() {
        findings.push(format!(
            "crates/{name}: {} functions have more than {ARITY_MAX} parameters (tuples counted): \
             {}",
            long.len(),
            long.join(" ")
        ));
    }
    findings
}
