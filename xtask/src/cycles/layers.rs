//! Layers inside a crate: which modules may not name which.

use std::collections::HashSet;

use super::modules::Crate;

/// A crate, and its layers from the bottom up: the modules of each, which may name one another and
/// those of the layers below.
type Layers = (&'static str, &'static [&'static [&'static str]]);

const LAYERS: &[Layers] = &[
    (
        "posix",
        &[
            &["addr", "errno", "idhash", "kernel", "outcome"],
            &["ready"],
            &["attachment"],
            &["socket"],
            &["interfaces", "kqueue", "epoll"],
            &["lending"],
            &["process"],
            &["calls"],
        ],
    ),
    (
        "preload",
        &[
            &["heap", "lock", "next", "thread"],
            &["cancel", "signals"],
            &["kernel"],
            &["process"],
            &["call"],
            &[
                "descriptors",
                "exec",
                "interfaces",
                "io",
                "kqueue",
                "life",
                "loading",
                "messages",
                "privileges",
                "readiness",
                "sockets",
                "stdio",
                "terminals",
            ],
            &["syscall"],
            &["symbols"],
            &["start"],
        ],
    ),
];

/// Arrows of the crate `name` that lead upwards, as sentences.
pub fn upwards(name: &str, parsed: &Crate, arrows: &[HashSet<usize>]) -> Vec<String> {
    let Some((_, layers)) = LAYERS.iter().find(|(krate, _)| *krate == name) else {
        return Vec::new();
    };
    let layer = |file: usize| {
        let module = parsed.files[file].path.first()?.as_str();
        layers.iter().position(|layer| layer.contains(&module))
    };
    let mut findings = Vec::new();
    for (from, named) in arrows.iter().enumerate() {
        let is_above = |to: &&usize| layer(from).is_some_and(|own| layer(**to) > Some(own));
        findings.extend(named.iter().filter(is_above).map(|to| {
            let (from, to) = (parsed.name_of(from), parsed.name_of(*to));
            format!("crates/{name}: {from} names {to}, which is a layer above it")
        }));
    }
    findings.sort();
    findings
}
