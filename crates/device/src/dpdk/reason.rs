//! Turns DPDK's messages about a failure into one sentence.

/// Parts of lines that say why.
const TELLING: &[&str] = &[
    "cannot",
    "could not",
    "couldn't",
    "error",
    "fail",
    "invalid",
    "no such",
    "not found",
    "unable",
    "no free",
    "permission",
    "unrecognized",
    "unknown",
    "not supported",
    "illegal",
    "no available",
    "not enough",
    "mismatch",
    "not compatible",
    "does not exist",
    "required",
];
/// Lines that follow from another one, or say nothing that helps.
const EMPTY: &[&str] = &[
    "FATAL:",
    "telemetry",
    "Telemetry",
    "No probed ethernet devices",
    "mp action callback",
    "command line' arguments",
    "Selected IOVA mode",
    "Detected CPU lcores",
    "Detected NUMA nodes",
    "Detected static linkage",
    "Detected shared linkage",
    "Static memory layout",
    "Multi-process socket",
    "VFIO support initialized",
];
const LEN_MAX: usize = 300;

/// Returns the known reason, with the line of DPDK's that explains it, if there is one.
pub(super) fn sentence(known: &str, words: &str) -> String {
    explained(known, find_telling(words))
}

/// Returns the sentence about a process that has ended without one: its last line, if no other one
/// explains it.
pub(super) fn last_words(known: &str, words: &str) -> String {
    let said = |line: &&str| !is_empty(line);
    let last = || words.lines().map(str::trim).rfind(said);
    explained(known, find_telling(words).or_else(last))
}

fn is_empty(line: &str) -> bool {
    line.is_empty() || EMPTY.iter().any(|part| line.contains(part))
}

fn find_telling(words: &str) -> Option<&str> {
    let lines = words.lines().map(str::trim);
    let telling = |line: &&str| {
        let lower = line.to_lowercase();
        TELLING.iter().any(|part| lower.contains(part))
    };
    lines.filter(|line| !is_empty(line)).find(telling)
}

fn explained(known: &str, line: Option<&str>) -> String {
    let Some(line) = line else {
        return known.to_owned();
    };
    if line.contains("hugepages") {
        return "there are no free huge pages: reserve some (echo 256 > /proc/sys/vm/nr_hugepages) \
                or give DPDK the argument --no-huge"
            .to_owned();
    }
    if let Some(library) = missing_library(line) {
        return format!(
            "{library} is missing: install DPDK's libraries (Debian: dpdk, or libdpdk-dev)"
        );
    }
    let line: String = line
        .chars()
        .filter(|c| !c.is_control())
        .take(LEN_MAX)
        .collect();
    format!("{known} ({line})")
}

/// The library that the dynamic loader did not find.
fn missing_library(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(": cannot open shared object file")?;
    before.rsplit(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_with_the_reason_becomes_part_of_the_error() {
        let words = "EAL: Detected CPU lcores: 2\nEAL: unable to parse device 'net_x'\n\
                     EAL: FATAL: Cannot init\n";
        let said = sentence("DPDK does not start", words);
        assert_eq!(
            said,
            "DPDK does not start (EAL: unable to parse device 'net_x')"
        );
        assert_eq!(sentence("it ended", ""), "it ended");
        assert_eq!(last_words("it ended", "a\nb\n\n"), "it ended (b)");
        assert_eq!(sentence("there are two", "a\nb\n\n"), "there are two");
        let words = "EAL: Detected CPU lcores: 2\nEAL: Selected IOVA mode 'VA'\n";
        assert_eq!(last_words("it ended", words), "it ended");
    }

    #[test]
    fn the_error_about_missing_huge_pages_names_two_commands() {
        let words = "EAL: No free 2048 kB hugepages reported on node 0\nEAL: FATAL: Cannot get\n";
        let said = sentence("it ended", words);
        assert!(
            said.contains("nr_hugepages") && said.contains("--no-huge"),
            "{said}"
        );
    }

    #[test]
    fn a_library_that_is_missing_is_named() {
        let words = "slipstack-dpdk: error while loading shared libraries: librte_eal.so.23: \
                     cannot open shared object file: No such file or directory\n";
        let said = sentence("it ended", words);
        assert!(
            said.starts_with("librte_eal.so.23 is missing: install"),
            "{said}"
        );
    }
}
