//! Stores to memory that engines share end the process: none happens for a request, some where
//! frames arrive at wrong queues.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const SIGSEGV: i32 = 11;

fn run(arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_slipstack-scaling");
    let output = Command::new(binary)
        .args(arguments)
        .args(["--trap", "--rounds", "2"])
        .output();
    output.expect("the program runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn requests_to_64_engines_write_no_shared_cache_line() {
    for server in ["http", "proxy"] {
        let output = run(&[server, "--engines", "64"]);
        assert!(output.status.success(), "{server}: {}", said(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("512 requests to 64 engines"), "{text}");
    }
}

#[test]
fn connections_of_64_engines_take_ports_whose_answers_reach_their_queue() {
    for seed in ["1", "2", "3"] {
        let words = ["proxy", "--engines", "64", "--hash-alone", "--seed", seed];
        let output = run(&words);
        assert!(output.status.success(), "{seed}: {}", said(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("\n0 frames at wrong queues"), "{text}");
    }
}

#[test]
fn with_a_wrong_hash_key_frames_reach_queues_whose_engine_lacks_their_flow() {
    let words = ["proxy", "--engines", "4", "--hash-alone", "--wrong-key"];
    let output = run(&words);
    assert!(
        said(&output).contains("were not answered"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_frame_in_a_wrong_queue_is_trapped_as_a_foreign_store() {
    let output = run(&["http", "--engines", "4", "--misroute"]);
    assert_eq!(output.status.signal(), Some(SIGSEGV), "{}", said(&output));
}
