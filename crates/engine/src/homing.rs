//! Connections whose answers come to the engine's own queue: the card's map of its queues, and the
//! proof that it holds.
//!
//! A driver's key and table are used as long as answers come where they say. SYN-ACKs that came to
//! another queue are counted; if they are more than half of those that should not have, the map is
//! not believed any longer, and connections take any port.

use slipstack_stack::Counter;
use slipstack_wire::flow::{FrameFlow, is_syn_ack};

use crate::engine::Engine;

/// SYN-ACKs at other queues before the map is doubted.
const AWAY_MIN: u64 = 16;

impl Engine {
    /// Takes the map of the device.
    pub(crate) fn begin_homing(&mut self) {
        let map = self.device.queue_map();
        self.is_homing = map.is_some();
        self.answers_handed_over = 0;
        self.stack.set_queue_map(map);
    }

    /// Notes a frame that another engine has handed over.
    #[inline]
    pub(crate) fn note_handed_over(&mut self, frame: &[u8]) {
        if self.is_homing && is_syn_ack(frame) {
            let flow = FrameFlow::parse(frame);
            // A connection between two addresses of the stack meets no card.
            let is_outer = flow.is_some_and(|flow| !self.stack.is_own(flow.src.ip()));
            self.answers_handed_over += u64::from(is_outer);
        }
    }

    /// Stops using the map if answers do not come where it says.
    pub(crate) fn judge_homing(&mut self) {
        if !self.is_homing {
            return;
        }
        let counters = self.stack.counters();
        let expected = counters.value(Counter::TcpConnectsAway);
        let away = self.device.answers_away() + self.answers_handed_over;
        let surprising = away.saturating_sub(expected);
        let meant = counters
            .value(Counter::TcpConnects)
            .saturating_sub(expected);
        if surprising >= AWAY_MIN && surprising > meant / 2 {
            self.is_homing = false;
            self.stack.set_queue_map(None);
            self.env.counters.queue_map_refuted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::RawFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use slipstack_device::{Device, DeviceInfo, Sink, TxFull, TxOffload};
    use slipstack_mem::RawSlice;
    use slipstack_stack::{NetworkState, StackConfig};
    use slipstack_wire::rss::{Input, KEY_LEN, QueueMap};

    use crate::Instant;
    use crate::effects::Fx;
    use crate::engine::Setup;

    const AWAY: &str = "10.0.0.2:80";

    /// One of four queues, where so many answers have come to other queues.
    struct Queue(Arc<AtomicU64>);

    impl Device for Queue {
        fn info(&self) -> DeviceInfo {
            DeviceInfo {
                mac: [2, 0, 0, 0, 0, 1],
                mtu: 1500,
                tx_checksum: true,
                tso_max: 0,
                udp_segmentation: false,
            }
        }

        fn rx(&mut self, _: usize, _: &mut dyn Sink) -> usize {
            0
        }

        fn tx(&mut self, _: &[u8], _: [RawSlice<'_>; 2], _: TxOffload) -> Result<(), TxFull> {
            Ok(())
        }

        fn flush(&mut self) {}

        fn poll_fd(&self) -> RawFd {
            -1
        }

        fn has_rx(&self) -> bool {
            false
        }

        fn queue_map(&self) -> Option<QueueMap> {
            let table: Vec<u16> = (0..128).map(|entry| entry % 4).collect();
            let key: [u8; KEY_LEN] = core::array::from_fn(|at| at as u8 + 1);
            QueueMap::new((&key, Input::Plain), &table, 1)
        }

        fn answers_away(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn engine(answers: &Arc<AtomicU64>) -> Engine {
        let own = "10.0.0.1".parse().expect("an address");
        let setup = Setup {
            stack: StackConfig {
                network: NetworkState::of(1500, vec![(own, 24)], &[]).into(),
                ..StackConfig::default()
            },
            device: Box::new(Queue(Arc::clone(answers))),
            directory: None,
            interconnect: None,
            ports: None,
            neighbours: None,
        };
        Engine::new(setup, Instant(1))
    }

    /// Connects so many times; returns how many ports lead to the queue.
    fn connect(engine: &mut Engine, times: usize) -> usize {
        let map = engine.device.queue_map().expect("the device has one");
        let remote = AWAY.parse().expect("an address");
        let leads_home = |_: &usize| {
            engine.judge_homing();
            let mut fx = Fx::new(&mut engine.env, &mut *engine.device);
            let options = Default::default();
            let conn = engine
                .stack
                .tcp_connect(Instant(1), None, remote, &options, &mut fx);
            let ends = engine.stack.tcp_endpoints(conn.expect("a port is free"));
            map.is_home(ends.expect("it is open").0, remote)
        };
        (0..times).filter(leads_home).count()
    }

    #[test]
    fn ports_of_the_own_queue_are_picked_while_answers_arrive_there() {
        let answers = Arc::new(AtomicU64::new(0));
        let mut engine = engine(&answers);
        assert_eq!(connect(&mut engine, 40), 40);
        // A few may come late, from connections of a former engine.
        answers.store(AWAY_MIN - 1, Ordering::Relaxed);
        assert_eq!(connect(&mut engine, 20), 20);
        answers.store(40, Ordering::Relaxed);
        let home = connect(&mut engine, 80);
        assert!((5..50).contains(&home), "{home} of 80 by chance");
        assert_eq!(engine.env.counters.queue_map_refuted, 1);
    }
}
