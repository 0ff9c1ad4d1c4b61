//! Limits and forbidden words in the files that git tracks or would track.

use std::path::Path;
use std::process::Command;

use crate::{lexer, options, width, wording};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const SCAN_LEN_MAX: usize = 4 << 20;

const UNSAFE_CRATES: &[&str] = &[
    "mem",
    "device",
    "device-dpdk",
    "abi",
    "preload",
    "capi",
    "packetdrill",
    "service",
];
const UNSAFE_FILES: &[&str] = &["sys.rs", "raw.rs", "abi.rs"];

/// Spelt in two halves so that this file passes its own check.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("todo", "!("), "unfinished code"),
    (concat!("unimplemented", "!("), "unfinished code"),
    (concat!("FIX", "ME"), "unfinished code"),
    (concat!("allow(dead", "_code)"), "dead code"),
    (concat!("allow(unu", "sed"), "dead code"),
];

/// Paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

pub fn check(root: &Path) -> Vec<String> {
    let files = match tracked_files(root) {
        Ok(files) => files,
        Err(reason) => return vec![format!("git ls-files: {reason}")],
    };
    let mut findings = Vec::new();
    for name in files {
        let Ok(text) = std::fs::read_to_string(root.join(&name)) else {
            continue;
        };
        if text.len() > SCAN_LEN_MAX {
            continue;
        }
        check_paths(&name, &text, &mut findings);
        width::check(&name, &text, &mut findings);
        wording::check(&name, &text, &mut findings);
        if is_code(&name) {
            check_length(&name, &text, &mut findings);
        }
        if name.ends_with(".rs") {
            check_rust(&name, &text, &mut findings);
            options::check(&name, &text, &mut findings);
        }
    }
    findings
}

fn is_code(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "c" | "h" | "sh" | "py")) || name.starts_with("scripts/")
}

fn check_length(name: &str, text: &str, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.push(format!("{name}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
}

fn check_paths(name: &str, text: &str, findings: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let is_found = MACHINE_PATHS.iter().any(|path| {
            let after = |at: usize| line.as_bytes().get(at + path.len());
            let before = |at: usize| at.checked_sub(1).map(|at| line.as_bytes()[at]);
            line.match_indices(path).any(|(at, _)| {
                after(at).is_some_and(u8::is_ascii_alphanumeric)
                    && !before(at)
                        .is_some_and(|byte| lexer::is_word(byte) || b".}$-".contains(&byte))
            })
        });
        if is_found {
            findings.push(format!("{name}:{}: a path of one machine", number + 1));
        }
    }
}

fn check_rust(name: &str, text: &str, findings: &mut Vec<String>) {
    for (word, why) in FORBIDDEN {
        for (at, _) in text.match_indices(word) {
            findings.push(format!("{name}:{}: `{word}` ({why})", line_of(text, at)));
        }
    }
    let blanked = lexer::blank(text);
    for function in lexer::functions(&blanked) {
        let first = line_of(&blanked, function.start);
        let lines = line_of(&blanked, function.end) - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let function = function.name;
            findings.push(format!(
                "{name}:{first}: fn {function} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            ));
        }
    }
    if !may_be_unsafe(name) {
        for at in lexer::words(&blanked, "unsafe") {
            findings.push(format!(
                "{name}:{}: unsafe belongs in sys.rs, raw.rs or abi.rs of a crate that may have it",
                line_of(&blanked, at)
            ));
        }
    }
}

fn may_be_unsafe(name: &str) -> bool {
    let mut parts = name.split('/');
    let is_crate = parts.next() == Some("crates")
        && parts
            .next()
            .is_some_and(|part| UNSAFE_CRATES.contains(&part));
    let file = name.rsplit('/').next().unwrap_or_default();
    is_crate && UNSAFE_FILES.contains(&file)
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

pub fn tracked_files(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}
