//! A server of many engines on a card with as many queues, and its clients, in one process and
//! virtual time.

use std::net::Ipv4Addr;
use std::sync::Arc;

use slipstack_channel::SockId;
use slipstack_device::{Port, Steering, Transport};
use slipstack_engine::{Engine, Instant};
use slipstack_keeper::{Inboxes, Neighbours};
use slipstack_wire::rss::KEY_LEN;

use crate::hosts::{self, BACKEND, BACKEND_MAC, Client, Standing};
use crate::nic::{Nic, Queue};
use crate::server::{
    Failure, Folder, Kind, PORT, SERVER, SERVER_MAC, Server, Shared, backend, lease,
};

/// Client connections of each engine.
pub const CONNECTIONS: usize = 4;
const CLIENTS: usize = 4;
const TURN_NS: u64 = 10_000;
/// Steps after which a missing event counts as a failure.
const PATIENCE: usize = 200;
/// Steps in which servers begin to listen.
const START: usize = 5;
/// Rounds before those that count: caches, pools and rings are there afterwards.
const WARM_UP: usize = 3;
/// The listener group of the server's port.
const GROUP: u8 = 1;
const DEMO_PAGE: &[u8] = b"<p>hello from here</p>";

/// Parameters of one run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub engines: usize,
    pub is_proxy: bool,
    pub is_trapped: bool,
    /// Every frame comes to the queue beside its own.
    pub is_misrouted: bool,
    /// The card's hash alone decides where frames go, and the engines know it.
    pub is_hash_alone: bool,
    /// The engines know a wrong key.
    pub has_wrong_key: bool,
    pub seed: u64,
}

/// See the [module documentation](self).
pub struct Fleet {
    servers: Vec<Server>,
    nic: Nic,
    clients: Vec<Client>,
    backend: Option<Engine>,
    /// Connections of each engine: client and socket.
    asking: Vec<Vec<(usize, SockId)>>,
    now: Instant,
    is_measured: bool,
    is_proxy: bool,
    _folder: Folder,
}

fn random_key(seed: u64) -> [u8; KEY_LEN] {
    let mut state = seed | 1;
    std::array::from_fn(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

fn client_at(number: usize) -> (Ipv4Addr, [u8; 6]) {
    let last = number as u8 + 1;
    (Ipv4Addr::new(10, 0, 1, last), [2, 0, 0, 0, 1, last])
}

/// Neighbours of all hosts.
fn neighbours() -> Result<Neighbours, Failure> {
    let table = Neighbours::create()?;
    table.publish(SERVER.into(), SERVER_MAC);
    table.publish(BACKEND.into(), BACKEND_MAC);
    for (address, mac) in (0..CLIENTS).map(client_at) {
        table.publish(address.into(), mac);
    }
    Ok(table)
}

/// The steering table: the engines of each port.
fn steering(engines: usize) -> Result<Steering, Failure> {
    let steering = Steering::create_apart(42)?;
    steering.set_own(&[(SERVER.into(), 16)])?;
    let slots: Vec<u16> = (1..=engines as u16).collect();
    for (number, slot) in slots.iter().enumerate() {
        steering.set_alive(*slot, true)?;
        let (first, last) = lease(number, engines);
        steering.set_ports(Transport::Tcp, first..=last, Port::Slot(*slot))?;
    }
    steering.set_group(GROUP, &slots)?;
    steering.set_port(Transport::Tcp, PORT, Port::Group(GROUP))?;
    Ok(steering)
}

impl Fleet {
    pub fn new(plan: Plan) -> Result<Fleet, Failure> {
        let folder = Folder::new()?;
        let table = neighbours()?;
        let steering = steering(plan.engines)?;
        let nic_steering = steering.reader()?;
        let shared = Arc::new(Shared {
            inboxes: Inboxes::create(plan.engines as u16 + 1)?,
            steering,
            neighbours: table.clone(),
            kind: match plan.is_proxy {
                true => Kind::Proxy(vec![(BACKEND, PORT).into()]),
                false => Kind::Http(folder.root()?),
            },
            engines: plan.engines,
            is_trapped: plan.is_trapped,
        });
        let mut queues = Vec::new();
        let mut servers = Vec::new();
        for number in 0..plan.engines {
            let mut queue = Queue::new(SERVER_MAC);
            if plan.is_hash_alone {
                let known = random_key(plan.seed + u64::from(plan.has_wrong_key) * 2);
                queue.map = Nic::map(&known, number, plan.engines);
            }
            queues.push([Arc::clone(&queue.rx), Arc::clone(&queue.tx)]);
            servers.push(Server::start(number, queue, &shared)?);
        }
        let mut nic = Nic::new(&random_key(plan.seed), nic_steering, queues);
        nic.is_hash_alone = plan.is_hash_alone;
        let mut clients = Vec::new();
        for (address, mac) in (0..CLIENTS).map(client_at) {
            let queue = Queue::new(mac);
            nic.add_host(mac, &queue);
            clients.push(Client::new(hosts::engine(address, queue, table.clone()))?);
        }
        let queue = Queue::new(BACKEND_MAC);
        nic.add_host(BACKEND_MAC, &queue);
        let mut engine = hosts::engine(BACKEND, queue, table);
        engine.attach_owner(backend(BACKEND)?);
        let mut fleet = Fleet {
            servers,
            nic,
            clients,
            backend: plan.is_proxy.then_some(engine),
            asking: vec![Vec::new(); plan.engines],
            now: Instant(1_000_000),
            is_measured: false,
            is_proxy: plan.is_proxy,
            _folder: folder,
        };
        for _ in 0..START {
            fleet.step()?;
        }
        fleet.open_all()?;
        for _ in 0..WARM_UP {
            fleet.round()?;
        }
        fleet.nic.is_faulty = plan.is_misrouted;
        Ok(fleet)
    }

    /// Frames of engines' own connections that came to another engine's queue.
    pub fn away(&self) -> usize {
        self.nic.away
    }

    /// A turn of each, and the frames in between.
    fn step(&mut self) -> Result<(), Failure> {
        self.now.0 += TURN_NS;
        for client in &mut self.clients {
            client.turn(self.now);
        }
        self.nic.receive();
        for server in &self.servers {
            server.turn(self.now, self.is_measured)?;
        }
        self.nic.send();
        if let Some(backend) = &mut self.backend {
            backend.turn(self.now);
        }
        match self.nic.lost {
            0 => Ok(()),
            lost => Err(format!("{lost} frames were lost").into()),
        }
    }

    /// Opens connections, which the card spreads by its hash, until each engine has its number.
    fn open_all(&mut self) -> Result<(), Failure> {
        let wanted = self.asking.len() * CONNECTIONS;
        let (mut have, mut number) = (0, 0);
        while have < wanted {
            let client = number % CLIENTS;
            number += 1;
            if number > 100 * wanted + 10_000 {
                return Err("the hash leaves an engine without connections".into());
            }
            let (sock, queue) = self.open(client)?;
            if self.asking[queue].len() == CONNECTIONS {
                self.clients[client].abort(sock);
                continue;
            }
            self.asking[queue].push((client, sock));
            have += 1;
        }
        Ok(())
    }

    /// Opens a new connection of this client; returns it with the queue that it arrived at.
    fn open(&mut self, client: usize) -> Result<(SockId, usize), Failure> {
        let sock = self.clients[client].connect()?;
        self.nic.last_syn = None;
        for _ in 0..PATIENCE {
            self.step()?;
            match (self.clients[client].standing(sock), self.nic.last_syn) {
                (Standing::Open, Some(queue)) => return Ok((sock, queue)),
                (Standing::Over, _) => return Err("a connection was refused".into()),
                _ => {}
            }
        }
        Err("a handshake does not end".into())
    }

    /// Every connection of every engine sends a request and gets its answer.
    fn round(&mut self) -> Result<(), Failure> {
        let all: Vec<(usize, SockId)> = self.asking.iter().flatten().copied().collect();
        for &(client, sock) in &all {
            self.clients[client].ask(sock);
        }
        let mut waiting = all;
        let end: &[u8] = if self.is_proxy {
            DEMO_PAGE
        } else {
            &[b'f'; 64]
        };
        for _ in 0..PATIENCE {
            self.step()?;
            let mut failure = None;
            let clients = &mut self.clients;
            waiting.retain(|&(client, sock)| {
                let answered = clients[client].is_answered(sock, end);
                let is_over = matches!(answered, Ok(true) | Err(_));
                failure = failure.take().or(answered.err());
                !is_over
            });
            if let Some(failure) = failure {
                return Err(failure);
            }
            if waiting.is_empty() {
                return Ok(());
            }
        }
        Err(format!("{} requests were not answered", waiting.len()).into())
    }

    /// Runs so many rounds that count; returns the number of requests.
    pub fn run(&mut self, rounds: usize) -> Result<usize, Failure> {
        self.is_measured = true;
        for _ in 0..rounds {
            self.round()?;
        }
        self.is_measured = false;
        Ok(rounds * self.asking.len() * CONNECTIONS)
    }
}
