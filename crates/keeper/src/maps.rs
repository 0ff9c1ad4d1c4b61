//! Maps of eBPF that programs refer to: who has them.

use std::fs;
use std::path::Path;

use crate::leases::Client;

/// Libraries by which programs are served.
const LIBRARIES: [&str; 3] = ["libslipstack", "libfstack", "libff_syscall"];

/// Returns whether the client's process has a map. For an instance, whose programs are other
/// processes, a program of ours of the same user suffices.
pub fn is_held(client: &Client, map: u32) -> bool {
    if has(client.process.pid, map) {
        return true;
    }
    let is_ones = |pid: u32| user_of(pid) == Some(client.uid) && has(pid, map) && is_served(pid);
    client.instance.is_some() && processes().any(is_ones)
}

/// Whether the process has one of our libraries: the maps of others are none of a program's
/// business, which may act as another user than its instance.
fn is_served(pid: u32) -> bool {
    let loaded = fs::read_to_string(format!("/proc/{pid}/maps"));
    loaded.is_ok_and(|text| LIBRARIES.iter().any(|library| text.contains(library)))
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
    entries.any(|entry| {
        let fd = format!("/proc/{pid}/fd/{}", entry.file_name().to_string_lossy());
        // The entries of epoll sets are long.
        fs::read_link(fd).is_ok_and(|kind| kind == Path::new("anon_inode:bpf-map"))
            && fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(&wanted))
    })
}
