//! Layers inside a crate: the modules that each module may import.

use std::collections::HashSet;

use super::modules::Crate;

/// A crate, and its layers from the bottom up: the modules of each, which may name one another and
/// those of the layers below.
type Layers = (&'static str, &'static [&'static [&'static str]]);

const LAYERS: &[Layers] = &[
    (
        "stack",
        &[
            &[
                "bound", "chooser", "error", "ids", "ip", "options", "rng", "scatter", "time",
                "traffic",
            ],
            &[
                "choices",
                "counters",
                "fib",
                "filter",
                "fragments",
                "icmp_limit",
                "path_mtu",
                "rate",
                "wheel",
            ],
            &["config", "route", "route6", "slaac"],
            &["configured"],
            &[
                "announce",
                "default_router",
                "destination",
                "effects",
                "groups",
                "held",
                "identification",
                "ndp",
                "neighbour",
                "network_layer",
            ],
            &[
                "arp", "icmp", "icmpv6", "ipv4", "ipv6", "router", "stray", "tcp", "udp",
            ],
            &["reassembly", "stack"],
            &[
                "filtering",
                "forward",
                "frames",
                "ipv6_input",
                "network",
                "sockets",
                "transparent",
                "tunable",
            ],
        ],
    ),
    (
        "engine",
        &[
            &[
                "accept_queue",
                "authority",
                "departed",
                "drained",
                "filter_log",
                "filtering",
                "frames",
                "load",
                "local",
                "partial",
                "remote",
                "supervisor",
            ],
            &["client", "owners", "stats"],
            &["waiting"],
            &["environment"],
            &["effects", "groups", "outgoing", "sharers", "strays"],
            &["engine", "inquiry", "views"],
            &[
                "alone",
                "arriving",
                "carrying",
                "choosing",
                "chores",
                "commands",
                "datagrams",
                "detach",
                "homing",
                "inprocess",
                "inside",
                "instance",
                "late",
                "lent",
                "neighbours",
                "network",
                "options",
                "passing",
                "ports",
                "records",
                "streams",
                "yielding",
            ],
        ],
    ),
    (
        "keeper",
        &[
            &[
                "device_state",
                "directory",
                "journal",
                "kernel_flows",
                "leases",
                "limits",
                "log",
                "neighbours",
                "network",
                "port_bits",
                "random",
                "runtime",
            ],
            &[
                "claims",
                "error",
                "local_ports",
                "maps",
                "notices",
                "orphans",
                "process",
                "regions",
                "steer",
            ],
            &["interfaces", "pair", "routes", "slots"],
            &["autoconf", "conflict", "net"],
            &["resources"],
            &["standby"],
            &["server"],
            &["run"],
        ],
    ),
    (
        "posix",
        &[
            &["addr", "errno", "idhash", "kernel", "outcome"],
            &["ready"],
            &["attachment"],
            &["socket"],
            &["epoll", "interfaces", "kqueue", "poll"],
            &["lending"],
            &["process"],
            &["calls"],
        ],
    ),
    (
        "preload",
        &[
            &["heap", "lock", "next", "table", "thread"],
            &["cancel", "cores", "namespace", "signals"],
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
                "programs",
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

/// Arrows of the crate `name` that lead upwards, and modules that are in none of its layers, as
/// sentences.
pub fn check(name: &str, parsed: &Crate, arrows: &[HashSet<usize>]) -> Vec<String> {
    let Some((_, layers)) = LAYERS.iter().find(|(krate, _)| *krate == name) else {
        return Vec::new();
    };
    let mut findings = unlisted(name, parsed, layers);
    findings.extend(upwards(name, parsed, arrows, layers));
    findings.sort();
    findings.dedup();
    findings
}

/// Modules of the crate that no layer has, and names in layers that no module has.
fn unlisted(name: &str, parsed: &Crate, layers: &[&[&str]]) -> Vec<String> {
    let modules: HashSet<&str> = parsed
        .files
        .iter()
        .filter_map(|file| file.path.first())
        .map(String::as_str)
        .collect();
    let listed: HashSet<&str> = layers.iter().copied().flatten().copied().collect();
    let missing = modules.difference(&listed).map(|module| {
        format!("crates/{name}: {module} is in no layer; xtask/src/cycles/layers.rs lists them")
    });
    let gone = listed.difference(&modules).map(|module| {
        format!("crates/{name}: xtask/src/cycles/layers.rs lists {module}, which is no module")
    });
    missing.chain(gone).collect()
}

fn upwards(
    name: &str,
    parsed: &Crate,
    arrows: &[HashSet<usize>],
    layers: &[&[&str]],
) -> Vec<String> {
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
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycles::modules::Module;

    fn parsed(names: &[&str]) -> Crate {
        let module = |name: &&str| Module {
            path: vec![(*name).to_owned()],
            name: format!("{name}.rs"),
            syntax: syn::parse_file("").unwrap(),
        };
        Crate::of(names.iter().map(module).collect())
    }

    #[test]
    fn a_module_without_a_layer_is_found_and_so_is_a_layer_without_a_module() {
        let found = unlisted("one", &parsed(&["low", "new"]), &[&["low"], &["old"]]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("new is in no layer"));
        assert!(found[1].contains("old, which is no module"));
    }

    #[test]
    fn an_import_from_a_higher_layer_is_found() {
        let parsed = parsed(&["low", "high"]);
        let layers: &[&[&str]] = &[&["low"], &["high"]];
        let down = [HashSet::new(), HashSet::from([0])];
        assert!(upwards("one", &parsed, &down, layers).is_empty());
        let up = [HashSet::from([1]), HashSet::new()];
        assert_eq!(upwards("one", &parsed, &up, layers).len(), 1);
    }
}
