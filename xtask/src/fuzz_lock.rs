//! The lock file of fuzz/, which is a workspace of its own, checked against the dependencies of the
//! crates it uses: `scripts/fuzz` builds with `--locked`, and no other target does.

use std::path::Path;

use serde_json::Value;
use toml::Table;

const LOCK: &str = "fuzz/Cargo.lock";

/// Returns a finding for each dependency of a crate that the lock file does not have.
pub fn check(root: &Path, metadata: &Value) -> Vec<String> {
    let Some(lock) = std::fs::read_to_string(root.join(LOCK))
        .ok()
        .and_then(|text| text.parse::<Table>().ok())
    else {
        return vec![format!("{LOCK}: cannot be read")];
    };
    let locked = lock.get("package").and_then(toml::Value::as_array);
    let locked: Vec<_> = locked.into_iter().flatten().collect();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(entry) = locked
            .iter()
            .find(|entry| entry.get("name").and_then(toml::Value::as_str) == Some(name))
        else {
            continue;
        };
        let missing = required(package).filter(|dependency| !has(entry, dependency));
        findings.extend(missing.map(|dependency| {
            format!("{LOCK}: {name} lacks {dependency}: cd fuzz && cargo update --workspace")
        }));
    }
    findings
}

/// Iterates over the dependencies that every build of the package has.
fn required(package: &Value) -> impl Iterator<Item = &str> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .filter(|dependency| dependency["optional"].as_bool() == Some(false))
        .filter_map(|dependency| dependency["name"].as_str())
}

/// Returns whether the entry names the dependency, which it does by name, or by name and version.
fn has(entry: &toml::Value, dependency: &str) -> bool {
    let named = entry.get("dependencies").and_then(toml::Value::as_array);
    let mut named = named.into_iter().flatten().filter_map(toml::Value::as_str);
    named.any(|named| named.split(' ').next() == Some(dependency))
}
