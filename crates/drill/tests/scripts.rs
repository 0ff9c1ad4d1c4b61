//! Every script of tests/packetdrill.

use std::path::{Path, PathBuf};

use slipstack_drill::{run, script};

fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            scripts(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            found.push(path);
        }
    }
}

#[test]
fn every_packetdrill_script_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packetdrill");
    let mut paths = Vec::new();
    scripts(&folder, &mut paths);
    assert!(!paths.is_empty());
    let failures: Vec<_> = paths
        .iter()
        .enumerate()
        .filter_map(|(number, path)| {
            let text = std::fs::read_to_string(path).unwrap();
            let parsed = match script::parse(&text) {
                Ok(parsed) => parsed,
                Err(error) => return Some(format!("{}: {error}", path.display())),
            };
            let failure = run::run(&parsed, run::address(number), false).err()?;
            Some(format!("{}: {failure}", path.display()))
        })
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn a_script_with_a_false_assertion_fails() {
    let text = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
                +0 bind(3, ..., ...) = 0\n\
                +0 listen(3, 1) = 0\n\
                +0 < S 0:0(0) win 1000 <mss 1000>\n\
                +0 > S. 0:0(0) ack 2 <mss 1460>\n";
    let script = script::parse(text).unwrap();
    let failure = run::run(&script, run::address(9999), false).unwrap_err();
    assert_eq!(failure.line, 5);
    assert!(failure.reason.contains("ack 1"), "{failure}");
}

#[test]
fn a_packet_that_the_script_does_not_expect_fails() {
    let text = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
                +0 bind(3, ..., ...) = 0\n\
                +0 listen(3, 1) = 0\n\
                +0 < S 0:0(0) win 1000 <mss 1000>\n";
    let script = script::parse(text).unwrap();
    let failure = run::run(&script, run::address(9998), false).unwrap_err();
    assert_eq!(failure.line, 4, "{failure}");
    assert_eq!(run::run(&script, run::address(9997), true), Ok(()));
}
