//! Goodput, retransmissions and queue of each algorithm on links of several kinds, as a table:
//! `cargo run --release -p slipstack-sim --bin congestion`

use slipstack_sim::flows::{Setup, run};
use slipstack_sim::link::{Loss, Share};
use slipstack_sim::{Failure, LinkParams};
use slipstack_stack::{Congestion, EcnMode};

const MS: u64 = 1_000_000;

/// Rate in Mbit/s, round trip in ms, queue in shares of the bandwidth-delay product (percent), loss
/// in ppm.
const PATHS: &[(u64, u64, u64, u32)] = &[
    (100, 40, 100, 0),
    (100, 40, 5, 0),
    (100, 40, 100, 1_000),
    (100, 40, 100, 10_000),
    (1_000, 10, 100, 0),
    (1_000, 10, 5, 0),
    (10, 200, 100, 0),
    (10, 200, 10, 0),
];

fn main() -> Result<(), Failure> {
    println!(
        "{:>6} {:>5} {:>6} {:>6} {:>8} {:>6}  {:>9} {:>7} {:>8} {:>9}",
        "Mbit/s",
        "ms",
        "queue%",
        "loss%",
        "alg",
        "paced",
        "goodput",
        "resent",
        "timeouts",
        "queue kB"
    );
    for &(mbits, rtt_ms, queue_percent, loss) in PATHS {
        for (kind, pacing) in [
            (Congestion::NewReno, false),
            (Congestion::Cubic, false),
            (Congestion::Cubic, true),
            (Congestion::Bbr, true),
        ] {
            let link = LinkParams {
                loss: Loss::Random(Share::ppm(loss)),
                ..LinkParams::bottleneck(mbits, rtt_ms, queue_percent)
            };
            let mut setup = Setup::new(link, &[kind]);
            setup.pacing = pacing;
            setup.ecn = EcnMode::Off;
            let outcome = run(&setup, 0, 15_000 * MS)?;
            println!(
                "{mbits:>6} {rtt_ms:>5} {queue_percent:>6} {:>6} {:>8} {pacing:>6}  {:>9.2} {:>7} \
                 {:>8} {:>9}",
                f64::from(loss) / 1e4,
                kind.name(),
                outcome.total() as f64 / 1e6,
                outcome.resent,
                outcome.timeouts,
                outcome.link.queue_bytes_max / 1_000,
            );
        }
    }
    Ok(())
}
