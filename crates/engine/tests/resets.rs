//! Resets of connections whose bytes have not all left.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slipstack_channel::{CloseMode, State};
use slipstack_device::loopback::{self, Loopback};
use slipstack_device::{Device, DeviceInfo, Sink, TxFull, TxOffload};
use slipstack_mem::RawSlice;

use pair::{World, host_with};

mod pair;

/// Counts how often the engine looks for frames.
struct Counting {
    device: Loopback,
    looks: Arc<AtomicU64>,
}

impl Device for Counting {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.device.rx(budget, sink)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.device.tx(header, payload, offload)
    }

    fn flush(&mut self) {
        self.device.flush();
    }

    fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx()
    }
}

#[test]
fn resets_of_connections_whose_peers_read_nothing_do_not_stall_a_turn() {
    const CONNECTIONS: usize = 64;
    const LOOKS_MAX: u64 = 1024;
    let looks = Arc::new(AtomicU64::new(0));
    let (left, right) = loopback::pair(1500).unwrap();
    let counting = Counting {
        device: left,
        looks: looks.clone(),
    };
    let mut world = World {
        hosts: [host_with(1, counting, None), host_with(2, right, None)],
        now: 1_000_000,
    };
    let listener = world.listen(1, 80);
    let opened: Vec<_> = (0..CONNECTIONS)
        .map(|_| world.connect(listener, 80))
        .collect();
    let program = world.hosts[0].program.clone();
    let bytes = vec![7; 1 << 20];
    for (client, _) in &opened {
        while program.send(*client, &[IoSlice::new(&bytes)], false) > 0 {
            world.settle(0);
        }
    }
    for (client, _) in &opened {
        program.close(*client, CloseMode::Abort);
    }
    looks.store(0, Ordering::Relaxed);
    world.step();
    let looks = looks.load(Ordering::Relaxed);
    assert!((LOOKS_MAX / 2..LOOKS_MAX + 64).contains(&looks), "{looks}");
    world.settle(0);
    for (_, server) in opened {
        assert!(world.hosts[1].program.state(server).contains(State::ERR));
    }
}
