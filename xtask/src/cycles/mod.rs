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
    let mut findings = layers::check(name, &parsed, &names::arrows(&parsed));
    findings.extend(parts::check(name, &parsed));
    findings.extend(above_limits(name, &parsed));
    findings
}

/// Cycles and functions that are above the limits.
fn above_limits(name: &str, parsed: &Crate) -> Vec<String> {
    let mut findings = Vec::new();
    let cycles = graph::cycles(&names::arrows(parsed));
    for cycle in cycles.iter().filter(|cycle| cycle.len() > CYCLE_FILES_MAX) {
        let files: Vec<&str> = cycle.iter().map(|file| parsed.name_of(*file)).collect();
        let count = files.len();
        let files = files.join(" ");
        findings.push(format!(
            "crates/{name}: {count} files import each other in a circle, at most \
             {CYCLE_FILES_MAX}: {files}"
        ));
    }
    let long = arity::above(parsed, ARITY_MAX);
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

#[cfg(test)]
mod tests {
    use super::modules::Module;
    use super::*;

    fn parsed(files: impl IntoIterator<Item = (String, String)>) -> Crate {
        let modules = files.into_iter().map(|(name, text)| Module {
            path: vec![name.clone()],
            name: format!("{name}.rs"),
            syntax: syn::parse_file(&text).unwrap(),
        });
        Crate::of(modules.collect())
    }

    /// A crate of `count` files, each of which imports the next, and the last the first.
    fn circle(count: usize) -> Crate {
        parsed((0..count).map(|file| {
            let next = (file + 1) % count;
            (
                format!("m{file}"),
                format!("use crate::m{next}::Thing{next};"),
            )
        }))
    }

    #[test]
    fn a_circle_of_imports_is_refused_from_one_file_above_the_limit() {
        const { assert!(CYCLE_FILES_MAX <= 5) };
        assert_eq!(above_limits("it", &circle(CYCLE_FILES_MAX)), [""; 0]);
        let found = above_limits("it", &circle(CYCLE_FILES_MAX + 1));
        assert_eq!(found.len(), 1, "{found:?}");
        let count = CYCLE_FILES_MAX + 1;
        assert!(found[0].contains(&format!("{count} files import each other")));
        assert!(found[0].contains("m0.rs m1.rs"));
    }

    #[test]
    fn a_function_is_refused_from_one_parameter_above_the_limit() {
        const { assert!(ARITY_MAX <= 7) };
        let function = |count: usize| {
            let pair = "(u8, u8)";
            let list: Vec<_> = (2..count).map(|at| format!("p{at}: u8")).collect();
            format!("fn long({}, pair: Option<{pair}>) {{}}", list.join(", "))
        };
        let of = |text: String| above_limits("it", &parsed([("m".to_owned(), text)]));
        assert_eq!(of(function(ARITY_MAX)), [""; 0]);
        let found = of(function(ARITY_MAX + 1));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&format!("m.rs:long({})", ARITY_MAX + 1)));
        let text = format!("impl It {{ {} }}", function(ARITY_MAX + 1));
        assert_eq!(of(text).len(), 1);
        let text = format!("extern \"C\" {}", function(ARITY_MAX + 1));
        assert_eq!(of(text), [""; 0]);
    }
}
