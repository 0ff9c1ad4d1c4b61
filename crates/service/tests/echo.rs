//! A service on one engine of a simulated pair, its clients on the other, in virtual time.

mod world;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipstack_service::{
    Closed, ConnectionId, Context, Datagram, DatagramSocketId, Hosting, Pool, Service, Via,
};
use world::{SERVER, World};

const PORT: u16 = 7;

/// Echoes received bytes, and misbehaves on request.
#[derive(Default)]
struct Echo {
    ended: Vec<Closed>,
}

impl Service for Echo {
    type Connection = ();
    type Result = Vec<u8>;

    fn on_start(&mut self, cx: &Context<'_, Vec<u8>>) {
        let addr = SocketAddr::new(SERVER.into(), PORT);
        cx.listen(addr, 64).unwrap();
        cx.bind(addr).unwrap();
    }

    fn on_open(&mut self, cx: &Context<'_, Vec<u8>>, id: ConnectionId, _: Via) -> Option<()> {
        cx.set_timer(id, Duration::from_secs(5));
        Some(())
    }

    fn on_data(&mut self, cx: &Context<'_, Vec<u8>>, id: ConnectionId, (): &mut ()) {
        let received = cx.received(id);
        match received.pieces()[0].first() {
            Some(b'!') => panic!("on purpose"),
            Some(b'#') => return cx.submit(id, || panic!("on purpose")).unwrap(),
            Some(b'?') => {
                let bytes = received.contiguous(usize::MAX).into_owned();
                cx.consume(id, bytes.len());
                let reversed = move || bytes.into_iter().rev().collect();
                cx.submit(id, reversed).unwrap();
                return;
            }
            _ => {}
        }
        let pieces = received.pieces().map(IoSlice::new);
        let written = cx.write_vectored(id, &pieces);
        cx.consume(id, written);
        cx.set_timer(id, Duration::from_secs(5));
    }

    fn on_result(
        &mut self,
        cx: &Context<'_, Vec<u8>>,
        id: ConnectionId,
        (): &mut (),
        result: Vec<u8>,
    ) {
        cx.write(id, &result);
    }

    fn on_closed(&mut self, _: &Context<'_, Vec<u8>>, _: ConnectionId, (): (), why: Closed) {
        self.ended.push(why);
    }

    fn on_datagram(
        &mut self,
        cx: &Context<'_, Vec<u8>>,
        socket: DatagramSocketId,
        datagram: &Datagram<'_>,
    ) {
        let bytes = datagram.payload.contiguous(usize::MAX);
        cx.send_to(socket, datagram.from, Some(datagram.to), &bytes)
            .unwrap();
    }
}

fn world(seed: u64, loss: f64) -> World {
    let hosting = Hosting {
        pool: Some(Arc::new(Pool::inline())),
        ..Hosting::default()
    };
    World::new(seed, loss, Echo::default(), hosting)
}

#[test]
fn bytes_come_back_and_the_end_follows_them() {
    let mut world = world(1, 0.0);
    let client = world.connect(PORT);
    world.send(client, b"hello");
    assert_eq!(world.receive(client, 5), b"hello");
    world.shutdown(client);
    assert!(world.until(|world| world.has_ended(client)));
    let counts = world.control.counts();
    assert_eq!((counts.accepted.get(), counts.open.get()), (1, 0));
}

#[test]
fn a_million_bytes_are_echoed_over_a_lossy_link_for_any_seed() {
    for seed in 0..4 {
        let mut world = world(seed, 0.02);
        let client = world.connect(PORT);
        let text: Vec<u8> = (0..1_000_000u32)
            .map(|at| 0x80 | (at % 113) as u8)
            .collect();
        let back = world.exchange(client, &text);
        assert_eq!(back.len(), text.len(), "seed {seed}");
        assert!(back == text, "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let run = || {
        let mut world = world(9, 0.05);
        let client = world.connect(PORT);
        let text = vec![7; 100_000];
        world.exchange(client, &text);
        (world.now, world.frames)
    };
    assert_eq!(run(), run());
}

#[test]
fn datagrams_come_back_from_where_they_were_sent_to() {
    let mut world = world(1, 0.0);
    assert_eq!(world.ask_by_datagram(PORT, b"ping"), b"ping");
    assert_eq!(world.control.counts().datagrams.get(), 1);
}

#[test]
fn a_job_that_panics_loses_its_connection_and_no_other() {
    let mut world = world(3, 0.0);
    let (good, bad) = (world.connect(PORT), world.connect(PORT));
    world.send(bad, b"#");
    assert!(world.until(|world| world.is_reset(bad)));
    world.send(good, b"still there");
    assert_eq!(world.receive(good, 11), b"still there");
    assert_eq!(world.control.counts().panics.get(), 1);
}

#[test]
fn a_handler_that_panics_loses_its_connection_and_no_other() {
    let mut world = world(1, 0.0);
    let (one, other) = (world.connect(PORT), world.connect(PORT));
    world.send(one, b"!");
    assert!(world.until(|world| world.is_reset(one)));
    world.send(other, b"still there");
    assert_eq!(world.receive(other, 11), b"still there");
    assert_eq!(world.control.counts().panics.get(), 1);
}

#[test]
fn the_result_of_a_job_reaches_its_connection() {
    let mut world = world(1, 0.0);
    let client = world.connect(PORT);
    world.send(client, b"?abc");
    assert_eq!(world.receive(client, 4), b"cba?");
}

#[test]
fn an_idle_connection_is_reset_when_its_time_has_come() {
    let mut world = world(1, 0.0);
    let client = world.connect(PORT);
    world.pass(Duration::from_secs(4));
    world.send(client, b"x");
    assert_eq!(world.receive(client, 1), b"x");
    world.pass(Duration::from_secs(4));
    assert!(!world.is_reset(client));
    world.pass(Duration::from_secs(2));
    assert!(world.is_reset(client));
}

#[test]
fn a_service_that_stops_closes_all_of_its_connections() {
    let mut world = world(1, 0.0);
    let clients: Vec<_> = (0..50).map(|_| world.connect(PORT)).collect();
    world.control.stop();
    assert!(world.until(|world| clients.iter().all(|client| world.has_ended(*client))));
    assert_eq!(world.control.counts().open.get(), 0);
    assert!(!world.can_connect(PORT));
}

/// Ends its side at once, and takes what comes in small pieces.
struct Slow(Arc<Mutex<(usize, bool)>>);

impl Service for Slow {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        cx.listen(SocketAddr::new(SERVER.into(), PORT), 64).unwrap();
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<()> {
        cx.shutdown(id);
        cx.set_timer(id, Duration::from_millis(500));
        Some(())
    }

    fn on_data(&mut self, _: &Context<'_>, _: ConnectionId, (): &mut ()) {}

    fn on_timer(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        let len = cx.received(id).len().min(1000);
        cx.consume(id, len);
        self.0.lock().unwrap().0 += len;
        cx.set_timer(id, Duration::from_millis(10));
    }

    fn on_end(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        self.0.lock().unwrap().1 = true;
        cx.close(id);
    }
}

#[test]
fn closed_connections_end_once_their_data_has_been_read() {
    /// Ends its side at once, and reads a connection when its peer has written ten bytes.
    struct Choosy;

    impl Service for Choosy {
        type Connection = ();
        type Result = ();

        fn on_start(&mut self, cx: &Context<'_>) {
            cx.listen(SocketAddr::new(SERVER.into(), PORT), 64).unwrap();
        }

        fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<()> {
            cx.shutdown(id);
            cx.set_timer(id, Duration::from_millis(500));
            Some(())
        }

        fn on_data(&mut self, _: &Context<'_>, _: ConnectionId, (): &mut ()) {}

        fn on_timer(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
            if cx.received(id).len() == 10 {
                cx.consume(id, 10);
            } else {
                cx.set_timer(id, Duration::from_secs(3600));
            }
        }

        fn on_end(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
            cx.close(id);
        }
    }

    let mut world = World::new(1, 0.0, Choosy, Hosting::default());
    let lengths = [10, 11, 10, 12, 10];
    let clients = lengths.map(|len| {
        let client = world.connect(PORT);
        world.send(client, &vec![7; len]);
        world.shutdown(client);
        client
    });
    for client in clients {
        assert!(world.until(|world| world.has_ended(client)));
    }
    assert!(world.until(|world| world.control.counts().open.get() == 2));
    world.pass(Duration::from_secs(5));
    assert_eq!(world.control.counts().open.get(), 2);
}

#[test]
fn bytes_of_a_connection_that_both_sides_have_ended_wait_for_the_service() {
    let taken = Arc::new(Mutex::new((0, false)));
    let mut world = World::new(1, 0.0, Slow(Arc::clone(&taken)), Hosting::default());
    let client = world.connect(PORT);
    world.send(client, &[7; 20_000]);
    world.shutdown(client);
    assert!(world.until(|world| world.has_ended(client)));
    assert!(world.until(|world| world.control.counts().open.get() == 0));
    assert_eq!(*taken.lock().unwrap(), (20_000, true));
}

#[test]
fn a_reader_that_does_not_read_holds_up_no_more_than_its_buffers() {
    let mut world = world(1, 0.0);
    let client = world.connect(PORT);
    let sent = world.fill(client);
    assert!(
        sent < 16 << 20,
        "{sent} bytes were taken from one who does not read"
    );
    let back = world.receive(client, sent);
    assert_eq!(back.len(), sent);
}
