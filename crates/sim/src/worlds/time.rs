//! Hosts whose clocks differ.

use super::setting::{MS, PORT, SECOND, Setting};
use crate::world::Failure;

fn some_transfers(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    for number in 0..setting.between(1, 6) as u16 {
        let (up, down) = (setting.between(1, 400_000), setting.between(0, 400_000));
        let (mut client, mut server) = setting.tasks(up, down);
        for task in [&mut client, &mut server] {
            task.chunk_max = 1 << 13;
            task.pause_ns_max = 20 * MS;
        }
        setting.connect(number, client, server)?;
    }
    Ok(())
}

/// A clock of the kind that never goes back, on a machine that was asleep or is corrected.
pub fn clock_jump(setting: &mut Setting) -> Result<(), Failure> {
    some_transfers(setting)?;
    for _ in 0..setting.between(1, 4) {
        let before_ns = setting.between(MS, 500 * MS);
        setting.world.run_for(before_ns)?;
        let host = setting.between(0, 1) as usize;
        // A jump longer than a connection's timeouts may end it: up to ten seconds do not.
        let leap_ns = setting.between(0, 10 * SECOND);
        setting.world.hosts[host].skew_ns += leap_ns;
    }
    setting.run()
}

pub fn pause(setting: &mut Setting) -> Result<(), Failure> {
    some_transfers(setting)?;
    // A second minute would be longer than an orphan or a handshake waits.
    for pause_ns_max in [60 * SECOND, 4 * SECOND, 4 * SECOND] {
        let before_ns = setting.between(MS, 500 * MS);
        setting.world.run_for(before_ns)?;
        let host = setting.between(0, 1) as usize;
        let pause_ns = setting.between(MS, pause_ns_max);
        setting.world.hosts[host].paused_until = setting.world.now.plus_nanos(pause_ns);
        let after_ns = setting.between(0, 2 * SECOND);
        setting.world.run_for(pause_ns + after_ns)?;
    }
    setting.run()
}
