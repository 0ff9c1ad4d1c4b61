//! Datagrams answered by workers: in virtual time without threads, and by threads.

mod world;

use std::net::SocketAddr;
use std::sync::Arc;

use slipstack_service::{
    Answerer, ConnectionId, Context, Datagram, DatagramSocketId, Dispatch, Hosting, Kept,
    RING_DATAGRAMS, Service, Shape, Via, Workers,
};
use world::{SERVER, World};

const PORT: u16 = 7;

/// Answers with the number of the worker, and the question.
struct Numbered(u8, Vec<u8>);

impl Answerer for Numbered {
    fn answer<'a>(&'a mut self, _: SocketAddr, _: SocketAddr, text: &'a [u8]) -> Option<&'a [u8]> {
        assert_ne!(text, b"!", "on purpose");
        self.1.clear();
        self.1.push(self.0);
        self.1.extend_from_slice(text);
        (text != b"?").then_some(&self.1)
    }
}

/// Answers with 99; passes on datagrams longer than a byte.
struct Server;

impl Service for Server {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        cx.bind(SocketAddr::new(SERVER.into(), PORT)).unwrap();
    }

    fn on_open(&mut self, _: &Context<'_>, _: ConnectionId, _: Via) -> Option<()> {
        None
    }

    fn on_data(&mut self, _: &Context<'_>, _: ConnectionId, (): &mut ()) {}

    fn on_datagram(&mut self, cx: &Context<'_>, socket: DatagramSocketId, datagram: &Datagram<'_>) {
        assert_ne!(datagram.payload.pieces()[0], b"#", "on purpose");
        if datagram.payload.len() > 1 && cx.pass(socket, datagram) {
            return;
        }
        let mut answer = vec![99];
        answer.extend_from_slice(&datagram.payload.contiguous(usize::MAX));
        let _ = cx.send_to(socket, datagram.from, Some(datagram.to), &answer);
    }
}

fn numbered(number: usize) -> Box<dyn Answerer> {
    Box::new(Numbered(number as u8, Vec::new()))
}

fn world(shape: Shape, ring: usize, count: usize) -> (World, Arc<Workers>) {
    let workers = Arc::new(Workers::inline(count, ring, numbered));
    let dispatch = Dispatch {
        workers: Arc::clone(&workers),
        shape,
    };
    let hosting = Hosting {
        dispatch: Some(dispatch),
        ..Hosting::default()
    };
    (World::new(1, 0.0, Server, hosting), workers)
}

/// Asks so many questions at once; returns how many answers each worker gave.
fn ask(world: &mut World, count: usize) -> Vec<usize> {
    let questions = vec![b"hello".to_vec(); count];
    let mut by = vec![0; 100];
    for answer in world.ask_all_by_datagram(PORT, &questions) {
        assert_eq!(&answer[1..], b"hello");
        by[usize::from(answer[0])] += 1;
    }
    by
}

#[test]
fn in_a_pipeline_workers_answer_equal_shares_in_bursts() {
    let (mut world, workers) = world(Shape::Pipeline, RING_DATAGRAMS, 3);
    let by = ask(&mut world, 96);
    assert_eq!((&by[..3], by[99]), (&[32, 32, 32][..], 0));
    for counts in workers.counts() {
        assert_eq!((counts.datagrams.get(), counts.answers.get()), (32, 32));
        assert!(counts.largest_burst.get() >= 8, "{counts:?}");
        assert!(counts.in_large_bursts.get() >= 8, "{counts:?}");
    }
    assert_eq!(world.control.counts().passed.get(), 96);
}

#[test]
fn single_datagrams_are_distributed_over_the_workers_too() {
    let (mut world, _) = world(Shape::Pipeline, RING_DATAGRAMS, 3);
    for round in 0..6 {
        let answer = world.ask_by_datagram(PORT, b"hello");
        assert_eq!(answer[0], round % 3);
    }
}

#[test]
fn the_engine_keeps_its_share_and_workers_have_equal_ones() {
    let (mut world, _) = world(Shape::Mixed(Kept::Percent(25)), RING_DATAGRAMS, 3);
    let by = ask(&mut world, 96);
    assert_eq!((&by[..3], by[99]), (&[24, 24, 24][..], 24));
}

#[test]
fn a_handler_passes_unanswered_requests_to_workers() {
    let (mut world, _) = world(Shape::Mixed(Kept::Quick), RING_DATAGRAMS, 2);
    assert_eq!(world.ask_by_datagram(PORT, b"x"), b"\x63x");
    assert_eq!(world.ask_by_datagram(PORT, b"xy"), b"\0xy");
    assert_eq!(world.control.counts().passed.get(), 1);
    let (mut world, _) = world_of(Shape::Run);
    assert_eq!(world.ask_by_datagram(PORT, b"xy"), b"\x63xy");
}

fn world_of(shape: Shape) -> (World, Arc<Workers>) {
    world(shape, RING_DATAGRAMS, 2)
}

#[test]
fn frames_without_room_in_a_ring_are_dropped_and_counted() {
    let (mut world, workers) = world(Shape::Pipeline, 4, 2);
    world.tell_by_datagram(PORT, &vec![b"?".to_vec(); 100]);
    let all = |world: &World| {
        let counts = world.control.counts();
        (counts.datagrams.get(), counts.passed.get())
    };
    assert!(world.until(|world| all(world).0 == 100));
    let full = world.control.counts().ring_full.get();
    assert!(full > 0, "a turn brings more than two rings of four hold");
    assert_eq!(all(&world).1 + full, 100);
    let taken: u64 = workers.counts().map(|counts| counts.datagrams.get()).sum();
    assert_eq!(taken, all(&world).1, "the workers have answered the rest");
}

#[test]
fn a_worker_that_panics_is_counted_and_goes_on() {
    let (mut world, workers) = world(Shape::Pipeline, RING_DATAGRAMS, 1);
    world.tell_by_datagram(PORT, &[b"!".to_vec()]);
    assert_eq!(world.ask_by_datagram(PORT, b"hello"), b"\0hello");
    let counts = workers.counts().next().unwrap();
    assert_eq!((counts.panics.get(), counts.answers.get()), (1, 1));
}

#[test]
fn a_handler_that_panics_on_arrival_is_counted_and_goes_on() {
    let (mut world, _) = world_of(Shape::Run);
    world.tell_by_datagram(PORT, &[b"#".to_vec()]);
    assert_eq!(world.ask_by_datagram(PORT, b"x"), b"\x63x");
    let counts = world.control.counts();
    assert_eq!((counts.panics.get(), counts.datagrams.get()), (1, 2));
}

#[test]
fn a_turn_answers_all_datagrams_that_it_brings() {
    let (mut world, _) = world_of(Shape::Run);
    assert_eq!(ask(&mut world, 140)[99], 140);
    let counts = world.control.counts();
    assert_eq!((counts.datagrams.get(), counts.unsent.get()), (140, 0));
}

#[test]
fn threads_answer_every_question_and_sleep_when_there_is_none() {
    let workers = Arc::new(Workers::new(2, RING_DATAGRAMS, numbered).unwrap());
    let dispatch = Dispatch {
        workers: Arc::clone(&workers),
        shape: Shape::Pipeline,
    };
    let hosting = Hosting {
        dispatch: Some(dispatch),
        ..Hosting::default()
    };
    let mut world = World::new(1, 0.0, Server, hosting);
    for _ in 0..50 {
        let by = ask(&mut world, 100);
        assert_eq!(by[0] + by[1], 100);
    }
    let slept = |workers: &Workers| -> u64 { workers.counts().map(|it| it.sleeps.get()).sum() };
    assert!(slept(&workers) > 0);
}
