//! A keeper is found, started, or refuses.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use slipstack_channel::control::{Refusal, Request};
use slipstack_config::Settings;

use super::{Folder, Script, Step, on_eth1};
use crate::door::{Identity, options};
use crate::error::Error;
use crate::keeper::meet;

/// Control socket of the keeper of eth1, in a directory that is made.
pub fn control_socket(folder: &Folder) -> PathBuf {
    let directory = options(&on_eth1(folder)).directory().expect("directory");
    directory.create().expect("create");
    directory.control_socket()
}

/// Settings whose command is a script that prints this text.
fn saying(folder: &Folder, said: &str) -> Settings {
    let bin = folder.0.join("slipstack");
    std::fs::write(&bin, format!("#!/bin/sh\n{said}\n")).expect("script");
    std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o755)).expect("mode");
    Settings {
        bin: Some(bin),
        ..on_eth1(folder)
    }
}

fn meet_once(settings: &Settings) -> Result<u64, Error> {
    let hello = Identity::of_this_process().hello(None, None);
    meet(settings, &hello).map(|(_, welcome)| welcome.client)
}

#[test]
fn a_keeper_that_runs_is_joined_and_none_is_started() {
    let (folder, keeper) = (Folder::new("joined"), Script::willing());
    keeper.listen(&control_socket(&folder));
    let settings = saying(&folder, "touch \"$0\".ran; echo no");
    assert_eq!(meet_once(&settings).unwrap(), 7);
    assert!(!folder.0.join("slipstack.ran").exists());
}

#[test]
fn the_error_gives_the_keepers_own_reason_for_not_starting() {
    let folder = Folder::new("reason");
    let error = meet_once(&saying(&folder, "echo eth1 is not there")).unwrap_err();
    assert!(
        matches!(&error, Error::Start(why) if why == "eth1 is not there"),
        "{error}"
    );
    let error = meet_once(&saying(&folder, "exit 1")).unwrap_err();
    assert!(
        matches!(&error, Error::Start(why) if why.contains("without an error message")),
        "{error}"
    );
}

#[test]
fn without_a_command_nothing_can_be_started() {
    let folder = Folder::new("no-command");
    assert!(matches!(
        meet_once(&on_eth1(&folder)),
        Err(Error::NoCommand)
    ));
    let missing = Settings {
        bin: Some(folder.0.join("none")),
        ..on_eth1(&folder)
    };
    assert!(matches!(meet_once(&missing), Err(Error::Spawn { .. })));
}

/// The socket of a keeper that was killed with its standby: no process listens on it.
#[test]
fn the_directory_of_a_dead_keeper_does_not_block_a_new_one() {
    let folder = Folder::new("dead");
    let path = control_socket(&folder);
    drop(slipstack_channel::control::listen(&path).expect("listen"));
    assert!(path.exists());
    let error = meet_once(&saying(&folder, "echo it was started")).unwrap_err();
    assert!(
        matches!(&error, Error::Start(why) if why == "it was started"),
        "{error}"
    );
}

#[test]
fn programs_that_start_a_keeper_at_once_all_use_the_first() {
    let (folder, keeper) = (Folder::new("faster"), Script::willing());
    let path = control_socket(&folder);
    // The command of the slower starter finds the lock taken; by then the other one listens.
    let settings = saying(&folder, "echo another keeper holds eth1");
    let (script, at) = (keeper.clone(), path.clone());
    let starter = std::thread::spawn(move || meet_once(&settings));
    script.listen(&at);
    assert_eq!(starter.join().expect("thread").unwrap(), 7);
}

#[test]
fn a_connection_closed_by_an_ending_keeper_is_retried_and_a_refusal_is_not() {
    let folder = Folder::new("leaving");
    let leaving = std::sync::atomic::AtomicBool::new(true);
    let keeper = Script::new(move |request| match request {
        Request::Hello(_) if leaving.swap(false, std::sync::atomic::Ordering::Relaxed) => {
            Step::HangUp
        }
        _ => Step::refuse(Refusal::NotPermitted),
    });
    keeper.listen(&control_socket(&folder));
    let error = meet_once(&saying(&folder, "echo no")).unwrap_err();
    let is_refusal = |error: &Error| match error {
        Error::Refused { refusal, .. } => *refusal == Refusal::NotPermitted,
        _ => false,
    };
    assert!(is_refusal(&error), "{error}");
    assert_eq!(keeper.hellos().len(), 2);
}
