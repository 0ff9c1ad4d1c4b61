//! Peers that are silent, slow or hostile.

use std::time::Duration;

use slipstack_stack::{CloseMode, KeepAlive, SocketOptions};

use super::setting::{CLIENT_PORT, MS, PORT, SECOND, Setting};
use crate::program::WritePattern;
use crate::world::Failure;

pub fn never_reads(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    let now = setting.world.now;
    for number in 0..setting.between(1, 6) as u16 {
        let (mut client, mut server) = setting.tasks(10_000_000, 0);
        let leaves = now.plus_nanos(setting.between(SECOND, 300 * SECOND));
        server.reads_from = slipstack_stack::Instant::FAR_FUTURE;
        let mode = if setting.is_once_in(2) {
            CloseMode::Orderly
        } else {
            CloseMode::Abort
        };
        server.gives_up = Some((leaves, mode));
        // Closed with bytes unread is a reset (RFC 2525 2.17).
        (client.may_fail, server.may_fail) = (true, true);
        setting.connect(number, client, server)?;
    }
    setting.run()
}

pub fn zero_window(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    let now = setting.world.now;
    for number in 0..setting.between(1, 3) as u16 {
        let up = setting.between(100_000, 900_000);
        // The answer comes when all is read: until then the client stays, or its orphan would give
        // up.
        let (client, mut server) = setting.tasks(up, 1);
        server.rhythm = WritePattern::Turns {
            every: up,
            burst: 1,
            first: false,
        };
        server.reads_from = now.plus_nanos(setting.between(SECOND, 400 * SECOND));
        let options = SocketOptions {
            rcvbuf: setting.is_once_in(2).then_some(8_192),
            ..setting.options()
        };
        setting.connect_with(number, client, server, &options)?;
    }
    setting.run()
}

pub fn vanishes(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    let options = SocketOptions {
        keep_alive: KeepAlive {
            enabled: true,
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            probes: 5,
        },
        ..SocketOptions::default()
    };
    for number in 0..setting.between(1, 20) as u16 {
        let (up, down) = (setting.between(0, 2_000_000), setting.between(0, 2_000_000));
        let (mut client, mut server) = setting.tasks(up, down);
        (client.may_fail, server.may_fail) = (true, true);
        setting.connect_with(number, client, server, &options)?;
    }
    let before_ns = setting.between(0, 500 * MS);
    setting.world.run_for(before_ns)?;
    setting.world.vanish(1);
    setting.run()
}

pub fn simultaneous_open(setting: &mut Setting) -> Result<(), Failure> {
    let (up, down) = (setting.between(0, 50_000), setting.between(0, 50_000));
    let (left, right) = setting.tasks(up, down);
    let options = setting.options();
    let ports = (CLIENT_PORT, CLIENT_PORT + 1);
    setting.report.connections += 1;
    // Both must know the other's link-layer address: a side that waits for an ARP answer comes
    // second.
    setting.world.network.set_params(crate::link::LinkParams {
        loss: crate::link::Loss::default(),
        ..setting.link()
    });
    setting
        .world
        .open((0, ports.0, left), (1, ports.1), &options)?;
    setting
        .world
        .open((1, ports.1, right), (0, ports.0), &options)?;
    setting.run()
}

pub fn simultaneous_close(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    let at = setting
        .world
        .now
        .plus_nanos(setting.between(30 * SECOND, 60 * SECOND));
    for number in 0..setting.between(1, 50) as u16 {
        let (mut client, mut server) = setting.tasks(0, 0);
        for task in [&mut client, &mut server] {
            // No data is written and nothing is shut down before that moment.
            task.bytes_out = 1_000;
            task.rhythm = WritePattern::Turns {
                every: 1_000_000,
                burst: 1,
                first: false,
            };
            task.may_fail = true;
            task.gives_up = Some((at, CloseMode::Orderly));
        }
        setting.connect(number, client, server)?;
    }
    setting.run()
}
