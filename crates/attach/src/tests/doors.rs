//! Choice of the run directory and the control socket.

use slipstack_config::Settings;
use slipstack_keeper::runtime::{RuntimeDir, network_namespace};

use super::{Folder, Script, settings};
use crate::door::{by_path, directories, instance_directory, through_inherited};
use crate::error::Error;

/// The directory of an interface below the folder, made.
fn directory(folder: &Folder, interface: &str) -> RuntimeDir {
    let namespace = network_namespace().expect("namespace");
    let made = RuntimeDir::below(&folder.0, namespace, interface).expect("directory");
    made.create().expect("create");
    made
}

fn naming(folder: &Folder, instance: &str, interface: Option<&str>) -> Settings {
    Settings {
        run_dir: Some(folder.0.clone()),
        interface: interface.map(str::to_owned),
        ..settings(&[("INSTANCE", instance)])
    }
}

#[test]
fn an_instance_is_found_on_whichever_interface_it_serves() {
    let folder = Folder::new("found");
    let (first, second) = (directory(&folder, "eth1"), directory(&folder, "eth2"));
    Script::willing().listen(&second.instance_socket("t").unwrap());
    let of = |interface| instance_directory(&naming(&folder, "t", interface), "t");
    assert_eq!(of(None).unwrap().path(), second.path());
    assert_eq!(of(Some("eth2")).unwrap().path(), second.path());
    assert!(matches!(of(Some("eth1")), Err(Error::NoInstance { .. })));
    assert!(by_path(&naming(&folder, "t", None)).is_ok());
    assert_eq!(
        directories(&naming(&folder, "t", None)).unwrap(),
        [first, second]
    );
}

#[test]
fn the_socket_of_a_killed_instance_is_no_instance() {
    let folder = Folder::new("killed");
    let socket = directory(&folder, "eth1").instance_socket("t").unwrap();
    drop(slipstack_channel::control::listen(&socket).expect("listen"));
    let error = by_path(&naming(&folder, "t", None)).err();
    assert!(matches!(error, Some(Error::NoInstance { name, .. }) if name == "t"));
}

#[test]
fn run_directories_of_other_network_namespaces_are_ignored() {
    let folder = Folder::new("others");
    let other = RuntimeDir::below(&folder.0, 1, "eth1").expect("directory");
    other.create().expect("create");
    assert_eq!(directories(&naming(&folder, "t", None)).unwrap(), []);
}

#[test]
fn an_inherited_descriptor_is_used_only_if_it_is_a_connection() {
    use std::os::fd::AsRawFd as _;
    let control = Script::willing().inherited();
    assert!(through_inherited(control.as_raw_fd()).is_some());
    let (pipe, _end) = rustix::pipe::pipe().expect("pipe");
    assert!(
        through_inherited(pipe.as_raw_fd()).is_none(),
        "it is a pipe"
    );
    assert!(through_inherited(1 << 20).is_none(), "it is closed");
}
