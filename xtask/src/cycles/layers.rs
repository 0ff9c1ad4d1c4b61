//! Layers inside a crate: which modules may not name which.

use std::collections::HashSet;

use super::modules::Crate;

/// A crate, modules at the bottom of it, and modules above those that they may not name.
type Layer = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const LAYERS: &[Layer] = &[
    (
        "posix",
        &["ready"],
        &[
            "socket",
            "description",
            "lending",
            "epoll",
            "kqueue",
            "process",
        ],
    ),
    (
        "posix",
        &["socket", "description", "link", "station"],
        &["epoll", "kqueue", "poll", "select", "wait", "process"],
    ),
];

/// Arrows of the crate `name` that lead upwards, as sentences.
pub fn upwards(name: &str, parsed: &Crate, arrows: &[HashSet<usize>]) -> Vec<String> {
    let top = |file: usize| parsed.files[file].path.first().map(String::as_str);
    let mut findings = Vec::new();
    for (_, below, above) in LAYERS.iter().filter(|(krate, ..)| *krate == name) {
        let is_below = |file: &usize| top(*file).is_some_and(|module| below.contains(&module));
        for from in (0..arrows.len()).filter(is_below) {
            let is_above = |to: &&usize| top(**to).is_some_and(|module| above.contains(&module));
            findings.extend(arrows[from].iter().filter(is_above).map(|to| {
                let (from, to) = (parsed.name_of(from), parsed.name_of(*to));
                format!("crates/{name}: {from} names {to}, which is a layer above it")
            }));
        }
    }
    findings.sort();
    findings
}
