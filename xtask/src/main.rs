//! Checks of the repository that no compiler makes, and generated files.
//!
//! `cargo run -p xtask -- check` checks the dependencies between the crates, the size of files and
//! functions, the width and the words of lines, names of options outside of their table, the places
//! of `unsafe`, forbidden words, import cycles inside a crate, numbers of parameters, whether
//! generated files and the lock file of fuzz/ are current, and whether the paths that documents
//! name exist.
//! `cargo run -p xtask -- reference` writes the generated files, `-- cycles CRATE` prints the
//! imports that make the cycles of a crate.

mod cycles;
mod documents;
mod functions;
mod fuzz_lock;
mod generated;
mod layering;
mod lexer;
mod options;
mod rfcs;
mod sources;
mod width;
mod wording;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

fn main() -> ExitCode {
    let root = repository_root();
    let command = std::env::args().nth(1).unwrap_or_default();
    let findings = match command.as_str() {
        "check" => check(&root),
        "reference" => reference(&root),
        "cycles" => cycles::show(&root, &std::env::args().nth(2).unwrap_or_default()),
        _ => vec!["usage: cargo run -p xtask -- check | reference | cycles CRATE".to_owned()],
    };
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn check(root: &Path) -> Vec<String> {
    let metadata = match metadata(root) {
        Ok(metadata) => metadata,
        Err(reason) => return vec![format!("cargo metadata: {reason}")],
    };
    let mut findings = layering::check(root, &metadata);
    findings.extend(fuzz_lock::check(root, &metadata));
    findings.extend(sources::check(root));
    findings.extend(cycles::check(root));
    findings.extend(generated::check(root));
    findings.extend(rfcs::check(root));
    findings.extend(functions::check(root));
    findings.extend(documents::check(root));
    if findings.is_empty() {
        println!("layering, limits, places of unsafe and generated files are in order");
    }
    findings
}

/// Returns what cargo knows of the workspace's packages.
fn metadata(root: &Path) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

fn reference(root: &Path) -> Vec<String> {
    let mut findings = generated::write(root);
    findings.extend(rfcs::write(root));
    findings.extend(functions::write(root));
    findings
}

fn repository_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}
