//! A card with a queue for each engine: it hashes frames to the server with a random key, and has
//! an entry for each engine's own connections, like a card with flow rules and like the steering
//! programs.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipstack_device::{Device, DeviceInfo, RxChecksum, RxMeta, Sink, TxFull, TxOffload};
use slipstack_device::{Port, Steering, Transport};
use slipstack_mem::RawSlice;
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::rss::{Input, KEY_LEN, QueueMap, Toeplitz};

/// Frames of one direction that wait at most.
const LANE_FRAMES: usize = 1024;
/// Entries of the card's indirection table.
const INDIRECTION: usize = 128;
const FRAME_BYTES: usize = 2048;

/// One direction of a queue: memory that only the card and one engine use.
#[derive(Debug)]
#[repr(align(64))]
pub struct Lane(Mutex<Frames>);

#[derive(Debug, Default)]
struct Frames {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Lane {
    fn new() -> Arc<Lane> {
        let spare = (0..LANE_FRAMES).map(|_| Vec::with_capacity(FRAME_BYTES));
        Arc::new(Lane(Mutex::new(Frames {
            waiting: VecDeque::with_capacity(LANE_FRAMES),
            spare: spare.collect(),
        })))
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `false`: there is no room.
    pub fn put(&self, parts: [&[u8]; 3]) -> bool {
        let mut frames = self.frames();
        let Some(mut frame) = frames.spare.pop() else {
            return false;
        };
        frame.clear();
        for part in parts {
            frame.extend_from_slice(part);
        }
        frames.waiting.push_back(frame);
        true
    }

    /// Takes every frame out; returns how many there were.
    fn drain(&self, mut take: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        loop {
            let mut frames = self.frames();
            let Some(frame) = frames.waiting.pop_front() else {
                return count;
            };
            drop(frames);
            take(&frame);
            self.frames().spare.push(frame);
            count += 1;
        }
    }
}

/// A queue in both directions, as its engine has it.
#[derive(Debug)]
pub struct Queue {
    pub rx: Arc<Lane>,
    pub tx: Arc<Lane>,
    mac: [u8; 6],
    buffer: Vec<u8>,
    /// The card's hash as the engine knows it.
    pub map: Option<QueueMap>,
}

impl Queue {
    /// Makes a queue, with lanes for the code that moves the frames.
    pub fn new(mac: [u8; 6]) -> Queue {
        Queue {
            rx: Lane::new(),
            tx: Lane::new(),
            mac,
            buffer: vec![0; FRAME_BYTES],
            map: None,
        }
    }

    /// Returns the two ends of a cable.
    pub fn pair(left: [u8; 6], right: [u8; 6]) -> (Queue, Queue) {
        let here = Queue::new(left);
        let there = Queue {
            rx: Arc::clone(&here.tx),
            tx: Arc::clone(&here.rx),
            ..Queue::new(right)
        };
        (here, there)
    }
}

impl Device for Queue {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            mac: self.mac,
            mtu: 1500,
            tx_checksum: true,
            tso_max: 0,
            udp_segmentation: false,
        }
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let meta = RxMeta {
            checksum: RxChecksum::Partial,
            ..RxMeta::UNKNOWN
        };
        for done in 0..budget {
            let mut frames = self.rx.frames();
            let Some(frame) = frames.waiting.pop_front() else {
                return done;
            };
            drop(frames);
            sink.frame(&frame, meta);
            self.rx.frames().spare.push(frame);
        }
        budget
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        _offload: TxOffload,
    ) -> Result<(), TxFull> {
        let split = payload[0].len();
        let len = split + payload[1].len();
        if len > self.buffer.len() {
            return Err(TxFull);
        }
        payload[0].copy_to(&mut self.buffer[..split]);
        payload[1].copy_to(&mut self.buffer[split..len]);
        match self.tx.put([header, &self.buffer[..len], &[]]) {
            true => Ok(()),
            false => Err(TxFull),
        }
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        -1
    }

    fn queue_map(&self) -> Option<QueueMap> {
        self.map.clone()
    }

    fn has_rx(&self) -> bool {
        !self.rx.frames().waiting.is_empty()
    }
}

/// The card, and the wire to the hosts behind it.
#[derive(Debug)]
pub struct Nic {
    hash: Toeplitz,
    indirection: [usize; INDIRECTION],
    steering: Steering,
    /// Lanes of each engine: to it, from it.
    queues: Vec<[Arc<Lane>; 2]>,
    /// Lanes of each host, by its link-layer address.
    hosts: Vec<([u8; 6], [Arc<Lane>; 2])>,
    /// Frames go to the queue beside theirs: a fault.
    pub is_faulty: bool,
    /// The hash alone decides; there are no entries.
    pub is_hash_alone: bool,
    /// Frames of engines' own connections that came to another engine's queue.
    pub away: usize,
    /// The queue at which the last new connection arrived.
    pub last_syn: Option<usize>,
    pub lost: usize,
}

impl Nic {
    /// The hash of a card with this key and so many queues, for the owner of one.
    pub fn map(key: &[u8; KEY_LEN], queue: usize, queues: usize) -> Option<QueueMap> {
        let table: Vec<u16> = (0..INDIRECTION).map(|at| (at % queues) as u16).collect();
        QueueMap::new((key, Input::Plain), &table, queue as u16)
    }

    pub fn new(key: &[u8; KEY_LEN], steering: Steering, queues: Vec<[Arc<Lane>; 2]>) -> Nic {
        let count = queues.len();
        Nic {
            hash: Toeplitz::new(key, Input::Plain),
            indirection: std::array::from_fn(|at| at % count),
            steering,
            queues,
            hosts: Vec::new(),
            is_faulty: false,
            is_hash_alone: false,
            away: 0,
            last_syn: None,
            lost: 0,
        }
    }

    pub fn add_host(&mut self, mac: [u8; 6], queue: &Queue) {
        let lanes = [Arc::clone(&queue.rx), Arc::clone(&queue.tx)];
        self.hosts.push((mac, lanes));
    }

    /// The queue of a frame for the server.
    fn queue_of(&mut self, flow: &FrameFlow<'_>) -> usize {
        let hash = self.hash.hash(flow.src, flow.dst) as usize;
        let hashed = self.indirection[hash % INDIRECTION];
        let Port::Slot(slot) = self.steering.port(Transport::Tcp, flow.dst.port()) else {
            return hashed;
        };
        let home = usize::from(slot) - 1;
        if !self.is_hash_alone {
            return home;
        }
        self.away += usize::from(hashed != home);
        hashed
    }

    /// Moves the hosts' frames into the queues of the engines.
    pub fn receive(&mut self) -> usize {
        let mut moved = 0;
        let hosts = std::mem::take(&mut self.hosts);
        for (_, [_, sent]) in &hosts {
            moved += sent.drain(|frame| {
                let Some(flow) = FrameFlow::parse(frame) else {
                    return;
                };
                let mut queue = self.queue_of(&flow);
                if flow.tcp_flags().is_some_and(|flags| flags & 0x12 == 2) {
                    self.last_syn = Some(queue);
                } else if self.is_faulty {
                    queue = (queue + 1) % self.queues.len();
                }
                self.lost += usize::from(!self.queues[queue][0].put([frame, &[], &[]]));
            });
        }
        self.hosts = hosts;
        moved
    }

    /// Moves the engines' frames to their destination hosts.
    pub fn send(&mut self) -> usize {
        let (queues, hosts) = (&self.queues, &self.hosts);
        let mut lost = 0;
        let moved = queues.iter().map(|[_, sent]| {
            sent.drain(|frame| {
                let to = hosts.iter().find(|(mac, _)| frame.starts_with(mac));
                let is_taken = to.is_some_and(|(_, [rx, _])| rx.put([frame, &[], &[]]));
                lost += usize::from(!is_taken);
            })
        });
        let moved = moved.sum();
        self.lost += lost;
        moved
    }
}
