//! A program whose instance is away: it has no control connection, but its table of sockets can be
//! read.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;

use slipstack_channel::control::{DeviceSummary, ProgramReport, WhyReport};
use slipstack_channel::report::ReportTable;

/// Sockets that are listed at most.
const SOCKETS_MAX: usize = 1024;
/// Name that `Region` gives the table.
const TABLE: &str = "/memfd:slipstack-report";

/// Returns the program's own report, without its interface; `None` if there is none or it may not
/// be read.
pub fn describe(pid: u32) -> Option<WhyReport> {
    let (sockets, sockets_count) = find_table(pid)?.sockets(SOCKETS_MAX);
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(WhyReport {
        program: ProgramReport {
            pid,
            uid: fs::metadata(format!("/proc/{pid}")).ok()?.uid(),
            program: name.trim_end().to_owned(),
            slot: None,
            instance: None,
            sockets,
            sockets_count,
            is_concealed: false,
        },
        interface: String::new(),
        device: DeviceSummary::default(),
        addresses: Vec::new(),
    })
}

fn find_table(pid: u32) -> Option<ReportTable> {
    let numbers = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    numbers.flatten().find_map(|number| {
        let target = fs::read_link(number.path()).ok()?;
        if !target.to_str()?.starts_with(TABLE) {
            return None;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(number.path());
        ReportTable::open(file.ok()?.into()).ok()
    })
}
