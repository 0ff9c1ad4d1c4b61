//! `slipstack tune`: better settings for the machine and the interface, and the way back.
//!
//! Without `--apply` nothing is changed. `--apply` first records the old value of every changed
//! setting, and `--undo` restores exactly those. A setting that this machine or driver does not
//! have is left out: a veth pair or a virtual machine's card has few of them.

mod item;
mod machine;
mod plan;
mod record;
mod rss;

use std::process::ExitCode;

use clap::ArgMatches;
use serde::Serialize;
use slipstack_device::iface::{self, KernelInterface};

use crate::failure::Failure;
use crate::given::settings;
use crate::output::{print, say, table};
use item::Location;
use record::Record;

/// Passes over the plan, because one change may reveal further settings.
const PASSES_MAX: u32 = 3;

/// One setting: its present and its proposed value, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    pub name: String,
    pub now: String,
    /// `None`: it is right, or nothing that this command sets.
    pub wanted: Option<String>,
    pub why: &'static str,
    #[serde(skip)]
    pub place: Option<Location>,
}

impl Proposal {
    fn changes(&self) -> Option<(&Location, &str)> {
        Some((self.place.as_ref()?, self.wanted.as_deref()?))
    }
}

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, settings) = settings(matches)?;
    let Some(interface) = matches.get_one::<String>("interface") else {
        return Err(Failure::new("name the interface with -i"));
    };
    let interface = &iface::link(interface).map_err(|error| Failure::new(error.to_string()))?;
    let record = Record::of(&settings, interface)?;
    if matches.get_flag("undo") {
        return undo(record, interface);
    }
    let is_symmetric = matches.get_flag("symmetric-rss");
    if matches.get_flag("apply") {
        return apply(record, interface, is_symmetric);
    }
    let proposals = plan::proposals(interface, is_symmetric);
    if matches.get_flag("json") {
        let text = serde_json::to_string_pretty(&proposals);
        let text = text.map_err(|error| Failure::new(error.to_string()))?;
        return print(&format!("{text}\n")).map(|()| ExitCode::SUCCESS);
    }
    print(&shown(&proposals, &interface.name))?;
    Ok(ExitCode::SUCCESS)
}

fn shown(proposals: &[Proposal], interface: &str) -> String {
    let row = |it: &Proposal| {
        let wanted = it.wanted.clone().unwrap_or_else(|| "–".to_owned());
        vec![it.name.clone(), it.now.clone(), wanted, it.why.to_owned()]
    };
    let rows: Vec<Vec<String>> = proposals.iter().map(row).collect();
    let mut text = table(&["setting", "now", "better", "why"], &rows);
    let changes = proposals.iter().filter_map(Proposal::changes).count();
    text.push_str(&match changes {
        0 => "\nnothing to change\n".to_owned(),
        count => format!(
            "\n{count} to change: slipstack tune -i {interface} --apply, and --undo to go back\n"
        ),
    });
    text
}

/// Applies the plan; settings that the kernel refuses are reported and left. More queues have more
/// settings, so it makes further passes.
fn apply(
    mut record: Record,
    interface: &KernelInterface,
    is_symmetric: bool,
) -> Result<ExitCode, Failure> {
    let (mut done, mut refused) = (0, Vec::new());
    for _ in 0..PASSES_MAX {
        let before = done;
        for proposal in plan::proposals(interface, is_symmetric) {
            let Some((place, wanted)) = proposal.changes() else {
                continue;
            };
            if refused.contains(place) {
                continue;
            }
            // Before the change, so that a process killed in between can still be undone.
            let is_first = record.keep(place, &proposal.now)?;
            match place.write(interface, wanted) {
                Ok(()) => {
                    done += 1;
                    say(&format!("{}: {} -> {wanted}", proposal.name, proposal.now));
                }
                Err(error) => {
                    refused.push(place.clone());
                    if is_first {
                        record.forget(place)?;
                    }
                    say(&format!(
                        "{}: stays {}: {error}",
                        proposal.name, proposal.now
                    ));
                }
            }
        }
        if done == before {
            break;
        }
    }
    say(&match (done, refused.len()) {
        (0, 0) => "nothing to change".to_owned(),
        (done, 0) => format!(
            "{done} changed; slipstack tune -i {} --undo goes back",
            interface.name
        ),
        (done, refused) => format!("{done} changed, {refused} refused"),
    });
    Ok(ExitCode::SUCCESS)
}

/// Restores the recorded values, the last change first.
fn undo(mut record: Record, interface: &KernelInterface) -> Result<ExitCode, Failure> {
    if record.is_empty() {
        return Err(Failure::new(format!(
            "there is no change on {} to undo",
            interface.name
        )));
    }
    let mut refused = 0;
    for (place, before) in record.entries() {
        match place.write(interface, &before) {
            Ok(()) => {
                say(&format!("{}: {before}", place.name()));
                record.forget(&place)?;
            }
            Err(error) => {
                refused += 1;
                say(&format!("{}: not {before}: {error}", place.name()));
            }
        }
    }
    match refused {
        0 => Ok(ExitCode::SUCCESS),
        count => Err(Failure::new(format!(
            "{count} settings could not be put back; --undo tries again"
        ))),
    }
}
