//! A keeper dies: its successor recognises the clients that return, and their state.

use slipstack_channel::control::{ControlError, Refusal, Reply, Request};
use slipstack_mem::Region;

use super::starting::control_socket;
use super::{Folder, Script, Step, on_eth1, welcome, with_connection};
use crate::door::Identity;
use crate::error::Error;
use crate::link::{KeeperClient, REGION};

/// A keeper that hangs up at a request for its status, and otherwise grants every request.
fn mortal() -> Script {
    Script::new(|request| match request {
        Request::Hello(_) => Step::Say(Reply::Welcome(Box::new(welcome()))),
        Request::Status => Step::HangUp,
        _ => Step::Say(Reply::Done),
    })
}

fn is_region(request: &Request) -> bool {
    matches!(request, Request::RegisterRegion { id: REGION })
}

#[test]
fn a_reconnecting_program_names_itself_and_passes_its_region_again() {
    let folder = Folder::new("back");
    let (first, second) = (mortal(), Script::willing());
    let control = first.inherited();
    let settings = with_connection(on_eth1(&folder), &control);
    let link = KeeperClient::open(&settings, &Identity::of_this_process(), None).unwrap();
    let region = Region::create("test", 4096).unwrap();
    link.register_region(region.try_clone_fd().unwrap().into())
        .unwrap();
    second.listen(&control_socket(&folder));
    // The first keeper dies of it; the second answers.
    assert_eq!(link.ask(&Request::Status, &[]).unwrap().0, Reply::Done);
    let (own, hello) = (welcome(), &second.hellos()[0]);
    assert_eq!(hello.resume, Some(own.client));
    assert_eq!(hello.capability, Some(own.capability));
    assert!(is_region(&second.asked()[1]), "before anything else");
    assert!(link.watched().is_some());
    assert!(first.asked().iter().any(is_region));
}

#[test]
fn a_program_without_an_engine_may_become_a_new_client_of_the_new_keeper() {
    let folder = Folder::new("another");
    let forgetful = Script::new(|request| match request {
        Request::Hello(hello) if hello.resume.is_some() => Step::refuse(Refusal::Unknown),
        Request::Hello(_) => Step::Say(Reply::Welcome(Box::new(welcome()))),
        _ => Step::Say(Reply::Done),
    });
    let control = mortal().inherited();
    let settings = with_connection(on_eth1(&folder), &control);
    let link = KeeperClient::open(&settings, &Identity::of_this_process(), None).unwrap();
    forgetful.listen(&control_socket(&folder));
    assert_eq!(link.ask(&Request::Status, &[]).unwrap().0, Reply::Done);
    let resumes: Vec<_> = forgetful
        .hellos()
        .iter()
        .map(|hello| hello.resume)
        .collect();
    assert_eq!(resumes, [Some(welcome().client), None]);
}

#[test]
fn a_program_with_an_engine_ends_if_the_new_keeper_does_not_know_the_client() {
    let folder = Folder::new("end");
    let forgetful = Script::new(|_| Step::refuse(Refusal::Unknown));
    let control = mortal().inherited();
    let settings = with_connection(on_eth1(&folder), &control);
    let link = KeeperClient::open(&settings, &Identity::of_this_process(), None).unwrap();
    let region = Region::create("test", 4096).unwrap();
    link.register_region(region.try_clone_fd().unwrap().into())
        .unwrap();
    forgetful.listen(&control_socket(&folder));
    let error = link.ask(&Request::Status, &[]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Refused {
                refusal: Refusal::Unknown,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(forgetful.hellos().len(), 1);
    assert!(link.watched().is_none());
}

#[test]
fn without_a_new_keeper_the_next_attempt_to_connect_waits() {
    let folder = Folder::new("nobody");
    let control = mortal().inherited();
    let settings = with_connection(on_eth1(&folder), &control);
    let link = KeeperClient::open(&settings, &Identity::of_this_process(), None).unwrap();
    assert!(link.ask(&Request::Status, &[]).is_err());
    assert!(link.watched().is_none());
    let late = Script::willing();
    late.listen(&control_socket(&folder));
    // The last attempt is recent: none is made now.
    link.on_time();
    let is_back = link.watched().is_some();
    assert!(!is_back || !late.hellos().is_empty());
    assert!(
        link.ask(&Request::EndSession, &[]).is_ok(),
        "a question cannot wait"
    );
    assert_eq!(late.hellos()[0].resume, Some(welcome().client));
}

#[test]
fn an_inherited_connection_that_is_silent_is_no_reason_to_start_a_keeper() {
    let error = Error::Control(ControlError::TimedOut);
    let folder = Folder::new("silent");
    let error = crate::keeper::or_unresponsive(error, &on_eth1(&folder), None);
    assert!(
        matches!(&error, Error::Unresponsive { interface, pid: None } if interface == "eth1"),
        "{error}"
    );
    let closed =
        crate::keeper::or_unresponsive(ControlError::Closed.into(), &on_eth1(&folder), None);
    assert!(matches!(closed, Error::Control(ControlError::Closed)));
}
