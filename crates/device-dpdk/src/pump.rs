//! The part that all queues of the port share: the slots and their steering.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipstack_device::Steering;
use slipstack_device::dpdk::{Rings, Setup, Way, Writer, queue_of};
use slipstack_mem::Doorbell;

use crate::start::Started;
use crate::sys::{Port, Work};
use crate::worker::{Worker, WorkerSetup};

/// One slot.
pub struct Lane {
    pub rings: Rings,
    bell: Doorbell,
    /// Frames of a flow that is the slot's may come by any queue.
    writer: Mutex<Writer>,
    /// The queue by which its frames leave.
    pub queue: u16,
}

impl Lane {
    pub fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the slot what was put into its ring, and wakes it if it sleeps.
    pub fn publish(&self) {
        if self.writer().publish() && self.rings.take_wake_up(Way::ToSlot) {
            self.bell.ring();
        }
    }
}

pub struct Shared {
    pub lanes: Vec<Lane>,
    pub steering: Steering,
    pub mac: [u8; 6],
    /// 0: never sleeps.
    pub sleep_ns: u64,
    /// As [`Started`] has them.
    pub has_interrupts: bool,
    pub has_partial: bool,
}

impl Shared {
    fn set_running(&self, is_running: bool) {
        for lane in &self.lanes {
            lane.rings.set_running(is_running);
            // A former process may have taken a slot's request to be woken, and ended before it
            // rang: the frames that it had published wait.
            lane.bell.ring();
        }
    }
}

/// The port with a worker for each of its queues.
pub struct Pump {
    port: Port,
    shared: Arc<Shared>,
    first: Worker,
    others: Vec<Worker>,
    /// Workers wait for them.
    _ends: [OwnedFd; 2],
}

impl Pump {
    /// `ends`: descriptors that become readable when it is time to end.
    pub fn new(started: Started, setup: Setup, ends: [OwnedFd; 2]) -> io::Result<Pump> {
        let mut port = started.port;
        let queues = port.take_queues();
        let count = queues.len() as u16;
        let lanes = setup.slots.into_iter().zip(0u16..);
        let bells = setup.bells.len() as u16;
        let lanes = lanes.map(|((rings, bell), slot)| Lane {
            writer: Mutex::new(rings.writer(Way::ToSlot)),
            queue: queue_of(slot, bells) % count,
            rings,
            bell,
        });
        let shared = Arc::new(Shared {
            lanes: lanes.collect(),
            steering: setup.steering,
            mac: started.told.mac,
            sleep_ns: u64::from(setup.order.options.sleep_us) * 1000,
            has_interrupts: started.has_interrupts,
            has_partial: started.has_partial,
        });
        let all = ends.each_ref().map(AsFd::as_fd);
        let workers = queues.into_iter().map(|queue| {
            // The port may have fewer queues than were wanted: slots ring the bell that they know.
            let own = setup.bells.iter().zip(0u16..);
            let own = own.filter(|(_, at)| at % count == queue.number());
            Worker::new(WorkerSetup {
                shared: Arc::clone(&shared),
                bells: own.map(|(bell, _)| bell.clone()).collect(),
                ends: &all,
                queue,
            })
        });
        let mut workers = workers.collect::<io::Result<Vec<Worker>>>()?;
        Ok(Pump {
            port,
            first: workers.remove(0),
            others: workers,
            shared,
            _ends: ends,
        })
    }

    /// Tells the slots whether frames get anywhere.
    pub fn set_running(&self, is_running: bool) {
        self.shared.set_running(is_running);
    }

    /// Passes frames until it is time to end, and gives the port back.
    ///
    /// # Errors
    /// The kernel refuses to wait, or DPDK to start a thread.
    pub fn run(self) -> io::Result<Port> {
        let works = self.others.into_iter().map(|worker| {
            let work = move || {
                if worker.run().is_err() {
                    // Another process is started in place of this one.
                    std::process::exit(1);
                }
            };
            Box::new(work) as Work
        });
        let launched = self.port.launch(works.collect());
        launched.map_err(io::Error::other)?;
        self.first.run()?;
        self.shared.set_running(false);
        self.port.join();
        Ok(self.port)
    }
}
