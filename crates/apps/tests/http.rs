//! The HTTP server in virtual time, over a link that loses frames.

#[path = "../../service/tests/world/mod.rs"]
mod world;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use slipstack_apps::http::{Http, HttpOptions, Root};
use slipstack_service::{Hosting, Pool};
use world::{SERVER, World};

/// A directory of its own for each test, removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("slipstack-http-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("sub")).unwrap();
        std::fs::write(path.join("hello"), "hello\n").unwrap();
        let big: Vec<u8> = (0..3_000_000u32).map(|at| (at % 253) as u8).collect();
        std::fs::write(path.join("big"), big).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn world(folder: &Folder, seed: u64, loss: f64) -> World {
    let options = HttpOptions {
        listen: vec![SocketAddr::new(SERVER.into(), 80)],
        backlog: 64,
        root: Arc::new(Root::open(&folder.0, true, 1 << 20).unwrap()),
        cache: 1 << 22,
        idle: Duration::from_secs(30),
        head: Duration::from_secs(10),
        per_address: Some(2),
        log: None,
        keys: None,
    };
    let hosting = Hosting {
        pool: Some(Arc::new(Pool::inline())),
        ..Hosting::default()
    };
    World::new(seed, loss, Http::new(options), hosting)
}

fn body(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    &answer[end.unwrap() + 4..]
}

#[test]
fn a_request_that_comes_byte_by_byte_is_answered_once() {
    let folder = Folder::new();
    for seed in 0..4 {
        let mut world = world(&folder, seed, 0.05);
        let client = world.connect(80);
        for byte in b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" {
            world.send(client, &[*byte]);
            world.step();
        }
        let answer = world.receive_all(client);
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert_eq!(body(&answer), b"hello\n");
    }
}

/// The answer to a request without a body, up to the end of a body that is one line.
fn answer(world: &mut World, client: slipstack_channel::SockId, head: &str) -> String {
    world.send(client, head.as_bytes());
    let mut text = Vec::new();
    loop {
        let line = world.receive_line(client);
        let is_end = text.ends_with(b"\r\n\r\n");
        text.extend_from_slice(&line);
        if is_end || line.is_empty() {
            return String::from_utf8(text).unwrap();
        }
    }
}

#[test]
fn requests_that_repeat_are_answered_alike_until_the_file_changes() {
    const GET: &str = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    const OTHER: &str = "GET /hello HTTP/1.1\r\nHost: xy\r\nRange: bytes=1-\r\n\r\n";
    let folder = Folder::new();
    let mut world = world(&folder, 1, 0.0);
    let client = world.connect(80);
    let first = answer(&mut world, client, GET);
    assert!(first.starts_with("HTTP/1.1 200") && first.ends_with("keep-alive\r\n\r\nhello\n"));
    let date = |text: &str| text.find("Date: ").map(|at| at + 6..at + 35).unwrap();
    for _ in 0..5 {
        let again = answer(&mut world, client, GET);
        assert_eq!(again[..date(&again).start], first[..date(&first).start]);
        assert_eq!(again[date(&again).end..], first[date(&first).end..]);
        assert!(answer(&mut world, client, OTHER).ends_with("\r\n\r\nello\n"));
        answer(&mut world, client, GET);
        // Two at once, and a half that follows.
        world.send(client, format!("{GET}{}", &GET[..20]).as_bytes());
        world.pass(Duration::from_millis(50));
        let both = answer(&mut world, client, &GET[20..]);
        assert!(both.ends_with("hello\n"));
        assert!(answer(&mut world, client, "").ends_with("hello\n"));
    }
    std::fs::write(folder.0.join("hello"), "changed\n").unwrap();
    world.pass(Duration::from_millis(1100));
    for _ in 0..3 {
        assert!(answer(&mut world, client, GET).ends_with("\r\n\r\nchanged\n"));
    }
    let last = GET.replace("Host: x", "Host: x\r\nConnection: close");
    assert!(answer(&mut world, client, &last).ends_with("close\r\n\r\nchanged\n"));
    assert!(world.receive_all(client).is_empty());
}

#[test]
fn a_file_longer_than_the_cache_takes_comes_whole() {
    let folder = Folder::new();
    let whole = std::fs::read(folder.0.join("big")).unwrap();
    for seed in 0..2 {
        let mut world = world(&folder, seed, 0.01);
        let client = world.connect(80);
        world.send(client, b"GET /big HTTP/1.0\r\n\r\n");
        let answer = world.receive_all(client);
        assert!(body(&answer) == whole, "{} bytes", answer.len());
    }
}

#[test]
fn a_slow_request_head_gets_408_and_a_silent_connection_is_closed() {
    let folder = Folder::new();
    let mut world = world(&folder, 1, 0.0);
    let (slow, silent) = (world.connect(80), world.connect(80));
    world.send(slow, b"GET / HT");
    world.pass(Duration::from_secs(5));
    world.send(slow, b"TP/1.1\r\n");
    world.pass(Duration::from_secs(6));
    assert!(world.receive_all(slow).starts_with(b"HTTP/1.1 408 "));
    assert!(!world.has_ended(silent));
    world.pass(Duration::from_secs(21));
    assert!(world.has_ended(silent));
}

#[test]
fn connections_of_one_address_are_limited() {
    let folder = Folder::new();
    let mut world = world(&folder, 1, 0.0);
    let (first, _second, third) = (world.connect(80), world.connect(80), world.connect(80));
    assert!(world.until(|world| world.is_reset(third)));
    world.close(first);
    world.pass(Duration::from_millis(100));
    let fourth = world.connect(80);
    world.send(
        fourth,
        b"GET /sub HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    let answer = world.receive_all(fourth);
    assert!(answer.starts_with(b"HTTP/1.1 301 "));
}

#[test]
fn a_peer_that_sends_a_fin_with_its_request_is_answered() {
    let folder = Folder::new();
    let mut world = world(&folder, 1, 0.0);
    let client = world.connect(80);
    world.send(
        client,
        b"GET /big HTTP/1.1\r\nHost: x\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    world.shutdown(client);
    let answer = world.receive_all(client);
    assert!(answer.ends_with(b"hello\n"), "{} bytes", answer.len());
    assert!(answer.len() > 3_000_000);
}
