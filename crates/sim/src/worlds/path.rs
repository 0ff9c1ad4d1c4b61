//! Events between the hosts.

use std::time::Duration;

use slipstack_stack::{CloseMode, KeepAlive, MtuProbing, SocketOptions};

use super::setting::{MS, PORT, SECOND, Setting};
use crate::link::LinkParams;
use crate::world::Failure;

pub fn partition(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    for number in 0..setting.between(1, 5) as u16 {
        let (up, down) = (setting.between(1, 500_000), setting.between(0, 500_000));
        let (client, server) = setting.tasks(up, down);
        setting.connect(number, client, server)?;
    }
    for _ in 0..setting.between(1, 4) {
        let (whole_ns, cut_ns) = (
            setting.between(MS, SECOND),
            // Too short for a SYN or an orphan to give up.
            setting.between(MS, 8 * SECOND),
        );
        setting.world.run_for(whole_ns)?;
        setting.world.network.set_cut(true);
        setting.world.run_for(cut_ns)?;
        setting.world.network.set_cut(false);
    }
    setting.run()
}

pub fn mtu_drop(setting: &mut Setting) -> Result<(), Failure> {
    setting.put_router();
    setting.world.listen(1, PORT)?;
    connect_some(setting, 4, 400_000)?;
    for _ in 0..setting.between(1, 3) {
        let before_ns = setting.between(MS, 200 * MS);
        setting.world.run_for(before_ns)?;
        let params = LinkParams {
            mtu: setting.any_mtu(1499),
            ..setting.link()
        };
        setting.set_link(params);
    }
    setting.run()
}

/// Up to `most` connections that send at most so much.
fn connect_some(setting: &mut Setting, most: u64, up_max: u64) -> Result<(), Failure> {
    for number in 0..setting.between(1, most) as u16 {
        let (up, down) = (setting.between(50_000, up_max), setting.between(0, 400_000));
        let (client, server) = setting.tasks(up, down);
        setting.connect(number, client, server)?;
    }
    Ok(())
}

/// Routers send no errors; the search finds the path MTU, which may grow later.
pub fn mtu_search(setting: &mut Setting) -> Result<(), Failure> {
    let always = setting.between(0, 1) == 1;
    let interval = Duration::from_secs(setting.between(1, 20));
    setting.configure(|config| {
        config.tcp.sack = true;
        config.tcp.mtu_probe_interval = interval;
        config.tcp.mtu_probing = if always {
            MtuProbing::Always
        } else {
            MtuProbing::BlackHole
        };
    });
    setting.world.listen(1, PORT)?;
    connect_some(setting, 3, 2_000_000)?;
    for _ in 0..setting.between(1, 4) {
        let before_ns = setting.between(MS, SECOND);
        setting.world.run_for(before_ns)?;
        let params = LinkParams {
            mtu: setting.any_mtu(1500),
            ..setting.link()
        };
        setting.set_link(params);
    }
    setting.run()
}

pub fn nat_rebinding(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    setting.world.network.put_nat_before(0);
    let options = SocketOptions {
        keep_alive: KeepAlive {
            enabled: true,
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(5),
            probes: 3,
        },
        ..SocketOptions::default()
    };
    let end = setting.world.now.plus_nanos(600 * SECOND);
    for number in 0..setting.between(1, 10) as u16 {
        let (up, down) = (setting.between(1, 400_000), setting.between(0, 400_000));
        let (mut client, mut server) = setting.tasks(up, down);
        for task in [&mut client, &mut server] {
            task.may_fail = true;
            task.gives_up = Some((end, CloseMode::Abort));
            task.pause_ns_max = 50 * MS;
            task.chunk_max = 1 << 12;
        }
        setting.connect_with(number, client, server, &options)?;
    }
    setting.world.waits_for_accepts = false;
    let before_ns = setting.between(MS, SECOND);
    setting.world.run_for(before_ns)?;
    setting.world.rebind_nat();
    setting.run()
}
