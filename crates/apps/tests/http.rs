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

/// A directory of its own for each test, gone afterwards.
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
fn a_head_that_takes_too_long_gets_408_and_silence_its_end() {
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
fn one_address_has_no_more_connections_than_it_may() {
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
fn a_peer_that_says_fin_with_its_request_is_answered() {
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
