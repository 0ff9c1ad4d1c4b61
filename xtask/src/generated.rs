//! Files that are generated from tables in the code.

use std::path::Path;

type Generator = fn() -> String;

const FILES: &[(&str, Generator)] = &[
    (
        "docs/reference/options.md",
        slipstack_config::options_reference,
    ),
    (
        "docs/reference/slipstack.toml",
        slipstack_config::sample_file,
    ),
    (
        "docs/reference/sysctl.md",
        slipstack_config::sysctl_reference,
    ),
];

pub fn write(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, generate) in FILES {
        let path = root.join(name);
        let folder = path.parent().unwrap_or(root);
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, generate()));
        if let Err(error) = written {
            findings.push(format!("{name}: {error}"));
        }
    }
    findings
}

pub fn check(root: &Path) -> Vec<String> {
    let is_current = |name: &str, generate: Generator| {
        std::fs::read_to_string(root.join(name)).is_ok_and(|text| text == generate())
    };
    FILES
        .iter()
        .filter(|(name, generate)| !is_current(name, *generate))
        .map(|(name, _)| format!("{name} is not current: run `make reference`"))
        .collect()
}
