use super::*;
use std::net::Ipv4Addr;

fn program(pid: u32, family: u64) -> Client {
    Client {
        process: ProcessKey { pid, started: 1 },
        uid: 0,
        program: format!("program{pid}"),
        family: Family(family),
        heirs: 0,
        instance: None,
        slot: None,
        thread: 0,
    }
}

fn engine(leases: &mut Leases, pid: u32, family: u64) -> ClientId {
    let id = leases.enter(program(pid, family)).expect("room");
    leases.lease_slot(id).expect("slot");
    id
}

fn any(port: u16) -> Bound {
    Bound::new(Ipv4Addr::UNSPECIFIED.into(), port, 0)
}

#[test]
fn slots_are_leased_once_and_the_keepers_never() {
    let mut leases = Leases::new(3, blocks());
    let a = engine(&mut leases, 1, 1);
    let b = engine(&mut leases, 2, 2);
    assert_eq!(leases.clients.find(a).expect("a").slot, Some(1));
    assert_eq!(leases.clients.find(b).expect("b").slot, Some(2));
    let c = leases.enter(program(3, 3)).expect("room");
    assert_eq!(leases.lease_slot(c), Err(LeaseError::NoSlot { slots: 2 }));
    assert_eq!(leases.lease_slot(a), Err(LeaseError::HasSlot(1)));
}

#[test]
fn a_slot_is_leased_again_only_after_it_was_emptied() {
    let mut leases = Leases::new(2, blocks());
    let a = engine(&mut leases, 1, 1);
    leases.leave(a).expect("was there");
    let b = leases.enter(program(2, 2)).expect("room");
    assert!(leases.lease_slot(b).is_err());
    assert_eq!(leases.draining().collect::<Vec<_>>(), [1]);
    leases.free_slot(1);
    assert_eq!(leases.lease_slot(b), Ok(1));
}

#[test]
fn a_client_that_leaves_frees_all_its_ports() {
    let mut leases = Leases::new(4, blocks());
    let a = engine(&mut leases, 1, 1);
    leases
        .listen(a, Transport::Tcp, any(80), false)
        .expect("listen");
    let places = leases.lease_ports(a, 17, 1).expect("ports");
    let ports = leases.blocks().ports(places);
    let (first, last) = (ports[0], ports[255]);
    assert_eq!(leases.route(Transport::Tcp, 80), Route::Slot(1));
    assert_eq!(leases.route(Transport::Udp, first), Route::Slot(1));
    let left = leases.leave(a).expect("was there");
    assert_eq!(left.client.program, "program1");
    assert!(left.ports.contains(&PortSpan::one(Transport::Tcp, 80)));
    assert!(left.ports.contains(&PortSpan::one(Transport::Udp, first)));
    assert_eq!(leases.route(Transport::Tcp, 80), Route::Keeper);
    assert_eq!(leases.route(Transport::Tcp, last), Route::Keeper);
}

#[test]
fn workers_share_and_other_programs_are_refused() {
    let mut leases = Leases::new(8, blocks());
    let master = leases.enter(program(1, 9)).expect("room");
    leases
        .listen(master, Transport::Tcp, any(80), false)
        .expect("claim");
    assert_eq!(leases.route(Transport::Tcp, 80), Route::Keeper);
    for pid in [2, 3] {
        let worker = engine(&mut leases, pid, 9);
        leases
            .listen(worker, Transport::Tcp, any(80), false)
            .expect("worker");
    }
    assert_eq!(leases.route(Transport::Tcp, 80), Route::Shared(vec![1, 2]));
    let stranger = engine(&mut leases, 4, 4);
    assert_eq!(
        leases.listen(stranger, Transport::Tcp, any(80), false),
        Err(LeaseError::Listen(ListenRefused::InUse(master)))
    );
}

#[test]
fn claims_made_before_the_engine_are_served_by_it() {
    let mut leases = Leases::new(2, blocks());
    let a = leases.enter(program(1, 1)).expect("room");
    leases
        .listen(a, Transport::Udp, any(53), false)
        .expect("claim");
    assert_eq!(leases.route(Transport::Udp, 53), Route::Keeper);
    leases.lease_slot(a).expect("slot");
    assert_eq!(leases.route(Transport::Udp, 53), Route::Slot(1));
}

#[test]
fn a_port_among_the_outgoing_ones_of_another_program_may_be_claimed() {
    let mut leases = Leases::new(4, blocks());
    let a = engine(&mut leases, 1, 1);
    let places = leases.lease_ports(a, 0, 1).expect("ports");
    let first = leases.blocks().ports(places)[0];
    let b = engine(&mut leases, 2, 2);
    assert_eq!(leases.route(Transport::Tcp, first), Route::Slot(1));
    let any = any(first);
    assert_eq!(leases.listen(b, Transport::Tcp, any, false), Ok(()));
    assert_eq!(leases.route(Transport::Tcp, first), Route::Slot(2));
    assert_eq!(leases.route(Transport::Udp, first), Route::Slot(1));
    leases.listeners.release(b, Transport::Tcp, any);
    assert_eq!(leases.route(Transport::Tcp, first), Route::Slot(1));
}

#[test]
fn leases_survive_being_written_and_read() {
    let mut leases = Leases::new(4, blocks());
    let a = engine(&mut leases, 1, 1);
    leases.lease_ports(a, 3, 1).expect("ports");
    leases
        .listen(a, Transport::Tcp, any(80), true)
        .expect("listen");
    let text = serde_json::to_vec(&leases).expect("write");
    let mut again: Leases = serde_json::from_slice(&text).expect("read");
    assert!(again.is_sound(4));
    assert!(!again.is_sound(3));
    assert_eq!(again.route(Transport::Tcp, 80), Route::Slot(1));
    let b = engine(&mut again, 2, 2);
    assert_ne!(a, b);
    assert_eq!(again.clients.find(b).expect("b").slot, Some(2));
}

fn blocks() -> PortBlocks {
    PortBlocks::new((32768, 60999), [1, 2])
}
