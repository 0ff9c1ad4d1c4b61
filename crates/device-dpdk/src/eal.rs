//! Arguments of DPDK's environment abstraction layer (EAL): the user's, and defaults for the rest.

use rustix::thread::{CpuSet, sched_getaffinity};
use slipstack_device::dpdk::Options;

/// Words that say which processors are used.
const CORES: &[&str] = &["-l", "-c", "-s", "-S", "--lcores"];
/// Words that say how memory and files are shared.
const SHARING: &[&str] = &[
    "--in-memory",
    "--file-prefix",
    "--no-shconf",
    "--huge-unlink",
    "--huge-dir",
    "--legacy-mem",
];
/// Words that say which cards are probed.
const CARDS: &[&str] = &["-a", "--allow", "-b", "--block", "--no-pci"];

/// Returns the user's words, and the best ones where there are none.
pub fn words(options: &Options) -> Vec<String> {
    let says = |names: &[&str]| {
        let mut names = names.iter();
        names.any(|name| options.has_eal(name) || has_glued(options, name))
    };
    let mut words = vec!["slipstack-dpdk".to_owned()];
    words.extend(options.eal.iter().cloned());
    if !says(CORES) {
        words.push(format!("--lcores=0@({})", allowed_cores()));
    }
    if !says(SHARING) {
        // No file is left behind, however the process ends.
        words.push(match says(&["--no-huge"]) {
            true => "--no-shconf".to_owned(),
            false => "--in-memory".to_owned(),
        });
    }
    if !says(&["--telemetry", "--no-telemetry"]) {
        words.push("--no-telemetry".to_owned());
    }
    // The members of a bond are cards.
    let has_bond = options.eal.iter().any(|word| word.contains("net_bonding"));
    if options.has_eal("--vdev") && !says(CARDS) && !has_bond {
        words.push("--no-pci".to_owned());
    }
    words
}

/// A short option may have its value right behind it: `-l0`.
fn has_glued(options: &Options, name: &str) -> bool {
    let is_short = name.len() == 2;
    let is_it = |word: &String| word.starts_with(name);
    is_short && options.eal.iter().any(is_it)
}

/// The processors that this process may run on, so that its one thread is bound to none of them.
fn allowed_cores() -> String {
    let Ok(set) = sched_getaffinity(None) else {
        return "0".to_owned();
    };
    let cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    let cores: Vec<String> = cores.map(|core| core.to_string()).collect();
    cores.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_left_open_are_filled_in_and_given_ones_kept() {
        let options = Options::parse(Some("--no-huge --vdev=net_tap0")).unwrap();
        let all = words(&options);
        assert!(all.iter().any(|word| word.starts_with("--lcores=0@(")));
        for word in ["--no-shconf", "--no-pci", "--no-telemetry", "--no-huge"] {
            assert!(all.iter().any(|it| it == word), "{word}");
        }
        let options = Options::parse(Some("-a 0000:02:00.0")).unwrap();
        assert!(words(&options).iter().any(|word| word == "--in-memory"));
        let text = "-l1 --file-prefix x -a 0000:02:00.0 --vdev net_bonding0 --no-telemetry";
        let options = Options::parse(Some(text)).unwrap();
        assert_eq!(words(&options).len(), 1 + options.eal.len());
    }
}
