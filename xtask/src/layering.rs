//! The dependencies in ARCHITECTURE.md checked against `cargo metadata`.

use std::path::Path;

use serde_json::Value;

/// A crate and the crates of ours that it may depend on. Tests may reach further.
const ARROWS: &[(&str, &[&str])] = &[
    ("terms", &[]),
    ("wire", &[]),
    ("network", &["terms", "wire"]),
    ("stack", &["terms", "wire", "network"]),
    ("mem", &[]),
    ("device", &["terms", "mem", "wire"]),
    ("device-dpdk", &["mem", "device"]),
    ("netctl", &["terms", "wire", "network"]),
    ("channel", &["terms", "mem", "netctl"]),
    ("engine", &["stack", "wire", "mem", "device", "channel"]),
    (
        "keeper",
        &["stack", "wire", "mem", "device", "channel", "engine"],
    ),
    (
        "attach",
        &["mem", "device", "channel", "engine", "keeper", "config"],
    ),
    ("posix", &["mem", "channel"]),
    ("service", &["mem", "channel"]),
    ("abi", &["posix"]),
    ("preload", &["abi", "posix", "attach", "config"]),
    ("capi", &["mem", "abi", "posix", "attach", "config"]),
    ("config", &["terms", "stack", "device"]),
    ("apps", &["service"]),
    (
        "cli",
        &[
            "config", "attach", "keeper", "channel", "service", "apps", "device",
        ],
    ),
    ("sim", &["wire", "stack"]),
    ("emulator", &["sim", "stack", "device", "wire"]),
    (
        "drill",
        &[
            "wire", "stack", "mem", "device", "channel", "engine", "posix",
        ],
    ),
    ("packetdrill", &["drill", "posix"]),
    // The load generator of benches/ uses kernel sockets, preloaded or not.
    ("load", &[]),
    (
        "instructions",
        &["mem", "device", "channel", "engine", "service", "apps"],
    ),
    ("held", &["mem", "device", "channel", "engine"]),
    (
        "scaling",
        &[
            "wire", "mem", "device", "channel", "engine", "keeper", "service", "apps",
        ],
    ),
    ("floor", &["wire", "mem", "device"]),
    ("frames", &["mem", "device"]),
    // Includes the rings of mem by path.
    ("models", &[]),
    // A program that tests start.
    ("tokio-echo", &[]),
];

/// Crates that must be able to live without an operating system.
const NO_STD: &[&str] = &["terms", "wire", "network", "stack"];

pub fn check(root: &Path, metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(name) = name.strip_prefix("slipstack-") else {
            continue;
        };
        let Some((_, allowed)) = ARROWS.iter().find(|(krate, _)| *krate == name) else {
            findings.push(format!(
                "crate {name} is not in the layering table of xtask"
            ));
            continue;
        };
        findings.extend(forbidden_arrows(name, allowed, package));
    }
    for name in NO_STD {
        let file = root.join("crates").join(name).join("src/lib.rs");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        for attribute in ["no_std", "forbid(unsafe_code)"] {
            if !text.contains(attribute) {
                findings.push(format!(
                    "crates/{name}/src/lib.rs: `{attribute}` is missing"
                ));
            }
        }
    }
    findings
}

fn forbidden_arrows(name: &str, allowed: &[&str], package: &Value) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let ours = dependencies
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .filter_map(|dependency| dependency["name"].as_str()?.strip_prefix("slipstack-"));
    ours.filter(|other| !allowed.contains(other))
        .map(|other| format!("crates/{name} must not depend on {other} (ARCHITECTURE.md, arrows)"))
        .collect()
}
