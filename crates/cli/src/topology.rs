//! Processors of a program and its instance: each works while the other waits for it, so they need
//! one each.

use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use slipstack_attach::admin;
use slipstack_config::Settings;

/// Returns a sentence if this process may run on one processor alone and the engine of an instance
/// that it names has no other one.
pub fn shared_core(settings: &Settings) -> Option<String> {
    let is_meant = |name: &&String| settings.instances.contains(name);
    if settings.instances.is_empty() {
        return None;
    }
    let own = only(&sched_getaffinity(None).ok()?)?;
    let reports = admin::status(settings).ok()?;
    let mut engines = reports.iter().flat_map(|report| &report.engines);
    engines.find_map(|engine| {
        let name = engine.instance.as_ref().filter(is_meant)?;
        let pid = Pid::from_raw(i32::try_from(engine.pid).ok()?)?;
        let its = only(&sched_getaffinity(Some(pid)).ok()?)?;
        sentence(name, own, its, &siblings(own))
    })
}

/// The processor of a set of one, on a machine with several.
fn only(set: &CpuSet) -> Option<usize> {
    let has_choice = fs::metadata(cpu_path(1, "")).is_ok();
    (has_choice && set.count() == 1).then(|| (0..CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)))?
}

fn sentence(name: &str, own: usize, its: usize, siblings: &[usize]) -> Option<String> {
    let what = match own == its {
        true => format!("both have processor {own} alone, so each waits for the other"),
        false if siblings.contains(&its) => {
            format!(
                "processors {own} and {its} are two threads of one core, which is a fifth slower"
            )
        }
        false => return None,
    };
    Some(format!(
        "the program and instance {name}: {what}; give them two cores of one NUMA node (--cores, \
         taskset)"
    ))
}

/// The processors that share the core of one.
fn siblings(cpu: usize) -> Vec<usize> {
    let text = fs::read_to_string(cpu_path(cpu, "/topology/thread_siblings_list"));
    parse_list(&text.unwrap_or_default())
}

fn cpu_path(cpu: usize, rest: &str) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}{rest}")
}

/// The kernel's lists of processors: `0,4` or `0-1`.
fn parse_list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_for_both_and_two_threads_of_a_core_are_reported() {
        let hint = |its| sentence("a", 1, its, &[1, 5]);
        assert!(hint(1).unwrap().contains("processor 1 alone"));
        assert!(hint(5).unwrap().contains("two threads of one core"));
        assert_eq!(hint(2), None);
    }

    #[test]
    fn lists_of_processors_have_numbers_and_ranges() {
        assert_eq!(parse_list("0,4\n"), [0, 4]);
        assert_eq!(parse_list("2-3"), [2, 3]);
        assert_eq!(parse_list(""), [0; 0]);
    }
}
