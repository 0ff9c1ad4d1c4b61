//! Many connections.

use slipstack_stack::{CloseMode, ListenOptions};

use super::setting::{CLIENT_PORT, MS, PORT, SECOND, Setting};
use crate::link::{LinkParams, QueueParams};
use crate::world::Failure;

pub fn short_connections(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen_with(
        1,
        PORT,
        ListenOptions {
            backlog: 4096,
            ..ListenOptions::default()
        },
    )?;
    let count = if setting.is_once_in(8) {
        setting.between(500, 2_000)
    } else {
        setting.between(20, 200)
    };
    let pace_ns = setting.between(0, MS);
    for number in 0..count as u16 {
        let (up, down) = (setting.between(0, 500), setting.between(0, 5_000));
        let (mut client, mut server) = setting.tasks(up, down);
        client.closes_early = setting.is_once_in(2);
        server.closes_early = setting.is_once_in(2);
        setting.connect(number, client, server)?;
        setting.world.run_for(pace_ns)?;
    }
    setting.run()
}

pub fn mass_close(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen_with(
        1,
        PORT,
        ListenOptions {
            backlog: 4096,
            ..ListenOptions::default()
        },
    )?;
    let at = setting
        .world
        .now
        .plus_nanos(setting.between(SECOND, 20 * SECOND));
    let mode = if setting.is_once_in(2) {
        CloseMode::Orderly
    } else {
        CloseMode::Abort
    };
    let by_server = setting.is_once_in(2);
    for number in 0..setting.between(20, 400) as u16 {
        // One byte less than the peer waits for never comes: both stay open until the end.
        let (mut client, mut server) = setting.tasks(100, 100);
        client.bytes_in += 1;
        server.bytes_in += 1;
        client.bytes_out += 1_000_000_000;
        server.rhythm = crate::program::WritePattern::Turns {
            every: 1_000_000_000,
            burst: 1,
            first: false,
        };
        client.rhythm = crate::program::WritePattern::Turns {
            every: 1_000_000_000,
            burst: 100,
            first: true,
        };
        (client.may_fail, server.may_fail) = (true, true);
        let leaver = if by_server { &mut server } else { &mut client };
        leaver.gives_up = Some((at, mode));
        let other = if by_server { &mut client } else { &mut server };
        other.gives_up = Some((at.plus_nanos(60 * SECOND), CloseMode::Abort));
        setting.connect(number, client, server)?;
    }
    setting.world.waits_for_accepts = false;
    setting.run()
}

pub fn listen_overflow(setting: &mut Setting) -> Result<(), Failure> {
    let backlog = setting.between(0, 8) as u32;
    setting.world.listen_with(
        1,
        PORT,
        ListenOptions {
            backlog,
            ..ListenOptions::default()
        },
    )?;
    setting.world.hosts[1].accepts = false;
    for number in 0..setting.between(10, 60) as u16 {
        let down = setting.between(0, 3_000);
        let (mut client, mut server) = setting.tasks(10, down);
        // A client may give up on its SYN; a server may see a connection that was given up.
        (client.may_fail, server.may_fail) = (true, true);
        let patience = setting.world.now.plus_nanos(200 * SECOND);
        client.gives_up = Some((patience, CloseMode::Abort));
        server.gives_up = Some((patience, CloseMode::Abort));
        setting.connect(number, client, server)?;
    }
    setting.world.waits_for_accepts = false;
    for _ in 0..setting.between(1, 5) {
        let sleep_ns = setting.between(MS, 4 * SECOND);
        setting.world.run_for(sleep_ns)?;
        setting.world.hosts[1].accept_all();
        setting.world.hosts[1].accepts = false;
    }
    setting.world.hosts[1].accept_all();
    setting.run()
}

pub fn shared_bottleneck(setting: &mut Setting) -> Result<(), Failure> {
    let rate = setting.between(2_000_000, 50_000_000);
    let delay_ns = setting.between(MS, 30 * MS);
    let params = LinkParams {
        rate,
        delay_ns,
        queue: QueueParams {
            packets_max: setting.between(5, 100) as u32,
            mark_bytes: if setting.is_once_in(2) { 20_000 } else { 0 },
            ..QueueParams::default()
        },
        ..LinkParams::default()
    };
    setting.set_link(params);
    setting.world.listen(1, PORT)?;
    for number in 0..setting.between(2, 4) {
        let host = setting.add_host();
        setting.world.network.share_link(host, 0);
        let up = setting.between(1, 300_000);
        let (client, server) = setting.tasks(up, 0);
        let options = setting.options();
        setting.report.connections += 1;
        let port = CLIENT_PORT + number as u16;
        setting
            .world
            .connect((host, port, client), (1, PORT, server), &options)?;
    }
    setting.run()
}
