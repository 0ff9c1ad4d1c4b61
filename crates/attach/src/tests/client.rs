//! A program's requests to instances and keepers: which, when, and the effect of each reply.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use slipstack_channel::control::net::NetworkState;
use slipstack_channel::control::{
    Attached, Descriptor, InstanceReport, ProgramReport, Refusal, Reply, Request, SocketReport,
    StatusReport,
};
use slipstack_channel::report::Why;
use slipstack_channel::{Attach, EngineEnd, Transport};
use slipstack_config::Settings;
use slipstack_mem::Doorbell;

use super::{Folder, Script, Step, on_eth1, settings, welcome, with_connection};
use crate::client::{Client, client};

/// A program of instance `t`, which is reached by an inherited connection or not at all.
fn of_instance(folder: &Folder, control: &OwnedFd) -> Settings {
    let named = Settings {
        run_dir: Some(folder.0.clone()),
        ..settings(&[("INSTANCE", "t")])
    };
    with_connection(named, control)
}

/// The channel of a length and its doorbells, in the order of `roles`.
fn attached(region_len: usize, roles: &[Descriptor]) -> Step {
    let end = EngineEnd::create_of(region_len).expect("channel");
    let bell = || {
        Doorbell::new()
            .expect("doorbell")
            .try_clone_fd()
            .expect("fd")
    };
    let fds = roles.iter().map(|role| match role {
        Descriptor::Channel => end.region().try_clone_fd().expect("region"),
        _ => bell(),
    });
    let attached = Attached {
        instance: "t".to_owned(),
        instance_pid: 4711,
        descriptors: roles.to_vec(),
    };
    Step::SayWith(Reply::Attached(attached), fds.collect())
}

const ALL: [Descriptor; 3] = [
    Descriptor::Channel,
    Descriptor::EngineDoorbell,
    Descriptor::ProgramDoorbell,
];

/// An instance that admits every program, and handles a request for a channel by `on_attach`.
fn instance(on_attach: impl Fn(usize) -> Step + Send + Sync + 'static) -> Script {
    Script::new(move |request| match request {
        Request::Hello(_) => Step::Say(Reply::Welcome(Box::new(welcome()))),
        Request::Attach { region_len, .. } => on_attach(*region_len),
        _ => Step::Say(Reply::Done),
    })
}

#[test]
fn instances_are_contacted_only_when_needed_and_each_once() {
    let (folder, keeper) = (Folder::new("once"), Script::willing());
    let control = keeper.inherited();
    let program = client(&with_connection(on_eth1(&folder), &control));
    assert!(keeper.asked().is_empty());
    let policy = program.policy().unwrap();
    assert_eq!(policy.addresses(), [([10, 0, 0, 5].into(), 24)]);
    program.policy().unwrap();
    assert_eq!(keeper.asked().len(), 1);
    let hello = &keeper.hellos()[0];
    assert_eq!((hello.family, hello.resume), (program.family(), None));
}

#[test]
fn the_current_policy_is_requested_each_time() {
    let folder = Folder::new("by-now");
    let keeper = Script::new(|request| match request {
        Request::Hello(_) => Step::Say(Reply::Welcome(Box::new(welcome()))),
        _ => Step::Say(Reply::Network(Box::new(NetworkState {
            revision: 5,
            ..welcome().network
        }))),
    });
    let control = keeper.inherited();
    let program = client(&with_connection(on_eth1(&folder), &control));
    assert_eq!(program.policy().unwrap().network().revision, 0);
    assert_eq!(program.policy_by_now().unwrap().network().revision, 5);
    assert_eq!(
        program.policy().unwrap().network().revision,
        5,
        "it is kept"
    );
    assert_eq!(keeper.hellos().len(), 1);
}

#[test]
fn a_program_of_an_instance_has_its_channel_and_the_instances_engine() {
    let folder = Folder::new("channel");
    let script = instance(|region_len| attached(region_len, &ALL));
    let control = script.inherited();
    let program = client(&of_instance(&folder, &control));
    assert!(!program.is_spread() && !program.is_engine_each());
    let attachment = program.attach(1).unwrap();
    assert_eq!(attachment.describe, "instance t (pid 4711)");
    assert_eq!(script.hellos().len(), 1);
}

#[test]
fn descriptors_that_are_missing_or_for_something_else_are_no_channel() {
    let folder = Folder::new("missing");
    for roles in [&ALL[..2], &ALL[1..], &[], &[Descriptor::Claim]] {
        let script = instance(move |region_len| attached(region_len, roles));
        let control = script.inherited();
        let refused = client(&of_instance(&folder, &control)).attach(1);
        let error = refused.expect_err("no channel");
        assert_eq!(error.why, Why::NoStack, "{}", error.sentence);
    }
}

#[test]
fn an_instance_tells_which_ports_its_programs_have() {
    let socket = |place: &str, kind: &str, local: &str, remote: Option<&str>| SocketReport {
        fd: Some(5),
        place: place.to_owned(),
        kind: kind.to_owned(),
        local: local.parse().ok(),
        remote: remote.and_then(|it| it.parse().ok()),
        why: String::new(),
    };
    let sockets = vec![
        socket("both", "tcp", "0.0.0.0:80", None),
        socket("stack", "tcp", "10.0.0.5:81", Some("10.0.0.6:4000")),
        socket("kernel", "tcp", "0.0.0.0:82", None),
        socket("stack", "udp", "10.0.0.5:83", None),
    ];
    let program = ProgramReport {
        pid: 1,
        uid: 0,
        program: "server".to_owned(),
        slot: None,
        instance: Some("t".to_owned()),
        sockets,
        sockets_count: 4,
        is_concealed: false,
    };
    let report = StatusReport {
        instances: vec![InstanceReport {
            programs: vec![program],
            ..InstanceReport::default()
        }],
        ..StatusReport::default()
    };
    let script = Script::new(move |request| match request {
        Request::Hello(_) => Step::Say(Reply::Welcome(Box::new(welcome()))),
        _ => Step::Say(Reply::Status(Box::new(report.clone()))),
    });
    let (folder, control) = (Folder::new("ports"), script.inherited());
    let program = client(&of_instance(&folder, &control));
    let found = [80, 81, 82, 83].map(|port| {
        [Transport::Tcp, Transport::Udp].map(|it| program.is_port_of_instance(it, port))
    });
    let none = [false, false];
    assert_eq!(found, [[true, false], none, none, [false, true]]);
    let in_process = client(&with_connection(on_eth1(&folder), &control));
    assert!(!in_process.is_port_of_instance(Transport::Tcp, 80));
}

/// A refusal of an instance is final; silence and invalid answers may be temporary.
#[test]
fn the_answer_of_an_instance_decides_whether_it_is_contacted_again() {
    type OnAttach = fn(usize) -> Step;
    let cases: [(OnAttach, bool); 4] = [
        (|_| Step::refuse(Refusal::Exhausted), false),
        (|_| Step::refuse(Refusal::NotPermitted), false),
        (|_| Step::HangUp, true),
        (|_| Step::Say(Reply::Done), true),
    ];
    let folder = Folder::new("again");
    for (number, (on_attach, may_pass)) in cases.into_iter().enumerate() {
        let script = instance(on_attach);
        let control = script.inherited();
        let refused = client(&of_instance(&folder, &control)).attach(1);
        let error = refused.expect_err("no channel");
        assert_eq!(error.may_pass, may_pass, "{number}: {}", error.sentence);
    }
}

#[test]
fn the_error_about_a_stopped_instance_says_that_a_retry_may_succeed() {
    let folder = Folder::new("away");
    let gone = Script::new(|_| Step::HangUp).inherited();
    let error = client(&of_instance(&folder, &gone)).attach(1);
    let error = error.expect_err("nobody is there");
    assert!(
        error.may_pass && error.sentence.contains('t'),
        "{}",
        error.sentence
    );
}

#[test]
fn a_keeper_of_another_version_is_final_and_named() {
    let (folder, keeper) = (
        Folder::new("version"),
        Script::new(|_| Step::refuse(Refusal::Version)),
    );
    let path = super::starting::control_socket(&folder);
    keeper.listen(&path);
    let error = client(&on_eth1(&folder)).policy().unwrap_err();
    assert!(
        error.sentence.contains("Version by the script"),
        "{}",
        error.sentence
    );
    assert!(!error.may_pass);
}

#[test]
fn children_inherit_their_parents_knowledge_and_none_of_its_descriptors() {
    let (folder, keeper) = (Folder::new("fork"), Script::willing());
    let control = keeper.inherited();
    let program = Client::new(&with_connection(on_eth1(&folder), &control), None);
    program.policy().unwrap();
    assert!(!program.descriptors().is_empty());
    program.after_fork_child();
    program.policy().unwrap();
    assert_eq!(keeper.hellos().len(), 1, "the child knows the addresses");
    assert!(program.descriptors().is_empty());
    // Its own engine is its own client.
    program.policy_by_now().unwrap();
    assert_eq!(keeper.hellos().len(), 2);
}

/// A fork at any moment: another thread of the parent is about to get an answer from the keeper,
/// and its lock stays locked in the child.
#[test]
fn a_fork_in_the_middle_of_a_question_leaves_a_child_that_can_ask() {
    let folder = Folder::new("middle");
    let (held, hold) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(Some(hold));
    let keeper = Script::new(move |request| {
        // The first request is answered when the test releases it.
        let first = hold.lock().expect("hold").take();
        if let Some(first) = first {
            tell.send(()).expect("told");
            let _ = first.recv();
        }
        match request {
            Request::Hello(_) => Step::Say(Reply::Welcome(Box::new(welcome()))),
            _ => Step::Say(Reply::Done),
        }
    });
    let control = keeper.inherited();
    let program = Arc::new(Client::new(
        &with_connection(on_eth1(&folder), &control),
        None,
    ));
    let asking = Arc::clone(&program);
    let asking = std::thread::spawn(move || asking.policy().map(|_| ()));
    told.recv().expect("the question is on its way");
    program.after_fork_child();
    assert!(program.descriptors().is_empty());
    program.policy().expect("the child asks by itself");
    drop(held);
    asking
        .join()
        .expect("thread")
        .expect("the parent is answered");
    assert_eq!(keeper.hellos().len(), 2);
}

#[test]
fn a_family_is_joined_and_reported_to_the_keeper() {
    let (folder, keeper) = (Folder::new("family"), Script::willing());
    let control = keeper.inherited();
    let program = client(&with_connection(on_eth1(&folder), &control));
    program.join(77);
    program.policy().unwrap();
    assert_eq!((program.family(), keeper.hellos()[0].family), (77, 77));
}

#[test]
fn a_program_has_the_configured_number_of_engines() {
    let folder = Folder::new("engines");
    let of = |variables: &[(&str, &str)]| {
        let mut all = vec![("IF", "eth1"), ("IP", "10.0.0.5/24")];
        all.extend(variables);
        let settings = Settings {
            run_dir: Some(folder.0.clone()),
            ..settings(&all)
        };
        client(&settings).engines_max()
    };
    assert_eq!(of(&[("THREAD_ENGINES", "3")]), 3);
    assert!((9..=12).contains(&of(&[])));
    assert_eq!(of(&[("SLOTS", "4")]), 3, "one is left to others");
}
