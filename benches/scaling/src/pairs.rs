//! Pairs of a web server's engine and the engine of its clients, each pair on a processor of its
//! own: measures the gain of a second pair where nothing is shared but the machine.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use slipstack_channel::SockId;
use slipstack_engine::{Engine, Instant};
use slipstack_keeper::Neighbours;
use slipstack_mem::now_ns;
use slipstack_service::{Host, Hosting, Pool};

use crate::hosts::{self, Client, Standing};
use crate::nic::Queue;
use crate::server::{FILE, Failure, Folder, SERVER, SERVER_MAC, http};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const CONNECTIONS: usize = 64;

/// One pair on this thread.
struct Pair {
    server: Engine,
    client: Client,
    socks: Vec<SockId>,
}

impl Pair {
    fn new(folder: &Folder) -> Result<Pair, Failure> {
        let table = Neighbours::create()?;
        table.publish(SERVER.into(), SERVER_MAC);
        table.publish(CLIENT.into(), CLIENT_MAC);
        let (here, there) = Queue::pair(SERVER_MAC, CLIENT_MAC);
        let mut server = hosts::engine(SERVER, here, table.clone());
        let hosting = Hosting {
            pool: Some(Arc::new(Pool::inline())),
            ..Hosting::default()
        };
        server.attach_owner(Host::inside(http(folder.root()?), hosting)?.0);
        let client = Client::new(hosts::engine(CLIENT, there, table))?;
        Ok(Pair {
            server,
            client,
            socks: Vec::new(),
        })
    }

    fn step(&mut self) {
        let now = Instant(now_ns());
        self.client.turn(now);
        self.server.turn(now);
    }

    fn open(&mut self) -> Result<(), Failure> {
        self.step();
        for _ in 0..CONNECTIONS {
            self.socks.push(self.client.connect()?);
        }
        let is_open = |pair: &Pair| {
            let mut socks = pair.socks.iter();
            socks.all(|sock| pair.client.standing(*sock) == Standing::Open)
        };
        let end = now_ns() + 2_000_000_000;
        while !is_open(self) {
            self.step();
            if now_ns() > end {
                return Err("the connections do not open".into());
            }
        }
        for at in 0..CONNECTIONS {
            self.client.ask(self.socks[at]);
        }
        Ok(())
    }

    /// Sends and answers requests until the time is over; returns how many.
    fn serve(&mut self, is_over: &AtomicBool) -> Result<u64, Failure> {
        let mut answers = 0;
        while !is_over.load(Ordering::Relaxed) {
            self.step();
            self.client.turn(Instant(now_ns()));
            for at in 0..CONNECTIONS {
                let sock = self.socks[at];
                if self.client.is_answered(sock, &FILE)? {
                    answers += 1;
                    self.client.ask(sock);
                }
            }
        }
        Ok(answers)
    }
}

fn pin(number: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(number);
    // Where the processor is not there the threads share those that are.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Runs so many pairs for so long, from processor `first` on, and prints their requests per second.
pub fn run(count: usize, first: usize, seconds: f64) -> Result<(), Failure> {
    let folder = Folder::new()?;
    let (is_over, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = std::sync::Barrier::new(count + 1);
    let one = |number: usize| -> Result<(), Failure> {
        pin(first + number);
        let pair = Pair::new(&folder).and_then(|mut pair| pair.open().map(|()| pair));
        begin.wait();
        let answers = pair?.serve(&is_over)?;
        total.fetch_add(answers, Ordering::Relaxed);
        Ok(())
    };
    let elapsed = std::thread::scope(|scope| -> Result<f64, Failure> {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let one = &one;
                scope.spawn(move || one(number))
            })
            .collect();
        begin.wait();
        let started = now_ns();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        is_over.store(true, Ordering::Relaxed);
        let elapsed = (now_ns() - started) as f64 / 1e9;
        for thread in threads {
            thread.join().map_err(|_| "a pair has panicked")??;
        }
        Ok(elapsed)
    })?;
    let rate = total.into_inner() as f64 / elapsed;
    println!("{rate:.0} requests a second by {count} engines");
    Ok(())
}
