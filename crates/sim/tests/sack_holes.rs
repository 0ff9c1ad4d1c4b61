//! A peer that acknowledges every second segment of a large flight, alternating between its ends
//! (CVE-2019-11477, 11478). The cost of an ACK of each kind is counted by `scripts/attacks`.

use std::net::SocketAddr;

use slipstack_sim::forge::{Forged, Open, Victim};
use slipstack_stack::TcpInfo;
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::TcpOptions;

const MSS: u32 = 1000;
const ACK: TcpFlags = TcpFlags::ACK;
/// Segments in flight, and a prime that leads from one to another far from it.
const FLIGHT: u32 = 16_000;
const STRIDE: u32 = 8_191;

struct World {
    victim: Victim,
    open: Open,
}

impl World {
    /// A sender with a large flight.
    fn new() -> World {
        let mut victim = Victim::new(|config| config.tcp.sndbuf_max = 1 << 30);
        let offer = TcpOptions {
            mss: Some(MSS as u16),
            sack_permitted: true,
            window_scale: Some(14),
            ..TcpOptions::default()
        };
        let from = SocketAddr::from(([198, 51, 100, 1], 1000));
        let open = victim.open(from, 1000, offer).expect("a connection");
        let mut world = World { victim, open };
        world.receive_ack(0, &[]);
        world.victim.stack.tcp_written(open.conn, 1 << 29, false);
        let mut una = 0;
        for _ in 0..FLIGHT {
            una += 2 * MSS;
            world.receive_ack(una, &[]);
            // Faster than slow start thinks the path full (RFC 9406).
            world.victim.now.0 -= 9_900;
        }
        assert!(world.info().unacked >= FLIGHT + 2);
        world
    }

    fn info(&self) -> TcpInfo {
        let World { victim, open } = self;
        victim
            .stack
            .tcp_info(victim.now, open.conn)
            .expect("a connection")
    }

    /// An ACK of all before `una`, and of the blocks.
    fn receive_ack(&mut self, una: u32, blocks: &[(u32, u32)]) {
        let open = self.open;
        let mut options = TcpOptions::default();
        for (left, right) in blocks {
            options
                .sack
                .push(open.ack.wrapping_add(*left), open.ack.wrapping_add(*right));
        }
        let ack = Forged::new(open.from, ACK, open.seq, open.ack.wrapping_add(una));
        self.victim
            .receive_frame(&ack.with_options(options).frame());
        self.victim.now.0 += 10_000;
        self.victim.fx.events.clear();
    }
}

/// RFC 2018 3: each block reports received data, and blocks need not be adjacent.
#[test]
fn a_million_sack_holes_fill_a_bounded_table() {
    let mut world = World::new();
    let una = 2 * FLIGHT * MSS;
    let mut most = 0;
    for i in 0..1_000_000u32 {
        let hole = i.wrapping_mul(STRIDE) % (FLIGHT / 2);
        let at = una + MSS + 2 * MSS * hole;
        world.receive_ack(una, &[(at, at + MSS)]);
        if i % 10_000 == 0 {
            most = most.max(world.info().sacked);
        }
    }
    println!("SACK holes: 1000000 ACKs, {most} of {} kept", FLIGHT / 2);
    // Nothing new is sent beyond 16,384 records, and there is room to cut each other one.
    assert_eq!(most, FLIGHT / 2);
    // All that is there arrives in the end.
    let end = una + (FLIGHT + 1) * MSS;
    world.receive_ack(una, &[(una + MSS, end)]);
    assert!(world.info().sacked >= FLIGHT);
    world.receive_ack(end, &[]);
    assert_eq!(world.info().sacked, 0);
}
