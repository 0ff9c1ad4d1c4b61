//! Maps of eBPF that programs refer to: who has them.

use std::fs;

use crate::leases::Client;

/// Returns whether the client's process has a map. For an instance, whose programs are other
/// processes, one of the same user suffices.
pub fn is_held(client: &Client, map: u32) -> bool {
    if has(client.process.pid, map) {
        return true;
    }
    client.instance.is_some()
        && processes().any(|pid| user_of(pid) == Some(client.uid) && has(pid, map))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The user that a process acts as.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn has(pid: u32, map: u32) -> bool {
    let wanted = format!("map_id:\t{map}\n");
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let mut entries = entries.into_iter().flatten().flatten();
    entries.any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(&wanted)))
}
