//! Hosts of several engines with a keeper.

use std::net::SocketAddr;
use std::time::Duration;

use slipstack_stack::{CloseMode, KeepAlive, SocketOptions};

use super::setting::{CLIENT_PORT, MS, PORT, SECOND, Setting};
use crate::link::{LinkParams, Loss, Share};
use crate::program::WritePattern;
use crate::world::{Ending, Failure, Way};

/// A port of the machine that its own connections have.
const LEASED_PORT: u16 = 30_000;
/// The keeper resets a peer within this time, on a link that loses nothing.
const RESET_NS: u64 = SECOND;

/// A link that does to frames all that a link can do.
fn bad_link(setting: &mut Setting) -> LinkParams {
    let delay_ns = setting.between(10_000, 20 * MS);
    let share = |setting: &mut Setting, most| Share::ppm(setting.between(0, most) as u32);
    LinkParams {
        delay_ns,
        jitter_ns: setting.between(0, delay_ns),
        loss: Loss::Random(share(setting, 50_000)),
        duplication: share(setting, 50_000),
        reordering: share(setting, 100_000),
        reorder_ns: setting.between(1, 2 * delay_ns),
        corruption: share(setting, 10_000),
        ..LinkParams::default()
    }
}

pub fn moving(setting: &mut Setting) -> Result<(), Failure> {
    let link = bad_link(setting);
    setting.set_link(link);
    let engines = setting.between(2, 4);
    let (machine, engines) = setting.put_machine(engines);
    setting.world.share_port(machine, PORT, &engines)?;
    setting.world.listen(0, PORT)?;
    let mut opened = setting.between(1, 6) as u16;
    for number in 0..opened {
        connect_either_way(setting, (machine, &engines), number)?;
    }
    for _ in 0..setting.between(1, 60) {
        let before_ns = 1 << setting.between(13, 28);
        setting.world.run_for(before_ns)?;
        if setting.world.is_finished() {
            break;
        }
        move_one(setting, machine, &engines);
        if setting.is_once_in(6) {
            connect_either_way(setting, (machine, &engines), opened)?;
            opened += 1;
        }
        if setting.is_once_in(6) {
            listen_or_leave(setting, machine, &engines)?;
        }
    }
    setting.run()
}

/// A listener comes, or goes while there are others.
fn listen_or_leave(
    setting: &mut Setting,
    machine: usize,
    engines: &[usize],
) -> Result<(), Failure> {
    let engine = engines[setting.between(0, engines.len() as u64 - 1) as usize];
    let listening = setting.world.listening(PORT);
    match listening.contains(&engine) {
        true if listening.iter().any(|of| *of != engine) => {
            setting.world.leave_port(machine, PORT, engine)
        }
        _ => setting.world.share_port(machine, PORT, &[engine]),
    }
}

/// Connects the client to one of the listening engines, or one of the engines to the client's host.
fn connect_either_way(
    setting: &mut Setting,
    (machine, engines): (usize, &[usize]),
    number: u16,
) -> Result<(), Failure> {
    let (up, down) = (setting.between(0, 300_000), setting.between(0, 300_000));
    let (mut client, mut server) = setting.tasks(up, down);
    for task in [&mut client, &mut server] {
        task.closes_early = setting.is_once_in(2);
        task.chunk_max = 1 << setting.between(8, 16);
        task.pause_ns_max = setting.between(0, 1) * setting.between(0, 20 * MS);
    }
    if setting.is_once_in(3) {
        let engine = engines[setting.between(0, engines.len() as u64 - 1) as usize];
        let port = LEASED_PORT + number;
        setting.world.lease_port(machine, port, engine);
        setting.report.connections += 1;
        let options = setting.options();
        return setting
            .world
            .connect((engine, port, client), (0, PORT, server), &options);
    }
    setting.connect(number, client, server)
}

fn move_one(setting: &mut Setting, machine: usize, engines: &[usize]) {
    let all = setting.world.connections_of(machine);
    if all.is_empty() {
        return;
    }
    let place = all[setting.between(0, all.len() as u64 - 1) as usize];
    let to = engines[setting.between(0, engines.len() as u64 - 1) as usize];
    let takes_ns = 1 << setting.between(10, 24);
    let way = Way {
        takes_ns,
        steered_after_ns: setting.between(0, 1) * setting.between(0, 4 * takes_ns),
        drops_ranges: setting.is_once_in(2),
    };
    if to != place.0 && setting.world.transfer(place, to, way) {
        setting.report.moved += 1;
    }
}

pub fn dying(setting: &mut Setting) -> Result<(), Failure> {
    let is_clean = setting.is_once_in(2);
    let link = bad_link(setting);
    let link = match is_clean {
        true => LinkParams {
            delay_ns: link.delay_ns,
            ..LinkParams::default()
        },
        false => link,
    };
    setting.set_link(link);
    let engines = setting.between(1, 3);
    let (machine, mut engines) = setting.put_machine(engines);
    setting.world.share_port(machine, PORT, &engines)?;
    setting.world.waits_for_accepts = false;
    let ending = match setting.is_once_in(2) {
        true if setting.is_once_in(3) => Ending::Interrupted,
        true => Ending::Orderly,
        false => Ending::Crash,
    };
    for number in 0..setting.between(1, 12) as u16 {
        connect_to_ending_engine(setting, ending, number)?;
    }
    let before_ns = 1 << setting.between(20, 30);
    setting.world.run_for(before_ns)?;
    let victim = engines.swap_remove(setting.between(0, engines.len() as u64 - 1) as usize);
    let peers = setting.world.peers_of(machine, victim);
    let notice_ns = setting.between(0, 5 * MS);
    let is_cut = ending == Ending::Orderly && setting.is_once_in(2);
    if is_cut {
        // The last frames before its end are lost.
        let cut_ns = setting.between(0, 50 * MS);
        setting.world.network.set_cut(true);
        setting.world.run_for(cut_ns)?;
    }
    setting.world.end_engine(victim, ending, notice_ns)?;
    setting.world.network.set_cut(false);
    setting.world.must_hold(machine);
    let former = setting.world.time_wait_ends(machine);
    // Its successor listens on the same port at once.
    let successor = setting.add_engine(machine);
    setting.world.share_port(machine, PORT, &[successor])?;
    for number in 100..100 + setting.between(1, 4) as u16 {
        connect_to_the_living(setting, number)?;
    }
    if is_clean && ending != Ending::Orderly {
        setting.world.run_for(RESET_NS)?;
        for (local, remote) in &peers {
            setting.world.check_knows_of_end(*local, *remote)?;
        }
        connect_again(setting, &peers)?;
    }
    let again_ns = setting.between(0, 3 * SECOND);
    setting.world.run_for(again_ns)?;
    for (local, remote) in former {
        // While the keeper has the TIME-WAIT entry, with the present listener.
        if setting.world.is_over(local, remote) && setting.is_once_in(2) {
            connect_to_the_living(setting, local.port() - CLIENT_PORT)?;
        }
    }
    setting.run()
}

/// Engines that are slow, stall or end; clients that connect meanwhile are served by one of the
/// others, or by their own when it continues.
pub fn many_engines(setting: &mut Setting) -> Result<(), Failure> {
    let link = bad_link(setting);
    if setting.is_once_in(2) {
        setting.set_link(link);
    }
    let count = 1 << setting.between(0, 6);
    let (machine, mut engines) = setting.put_machine(count);
    setting.world.share_port(machine, PORT, &engines)?;
    setting.world.waits_for_accepts = false;
    let before = (2 * count).min(64) as u16;
    for number in 0..before {
        connect_to_the_slow(setting, number)?;
    }
    let before_ns = 1 << setting.between(20, 28);
    setting.world.run_for(before_ns)?;
    let ending = match setting.is_once_in(2) {
        true => Ending::Orderly,
        false => Ending::Crash,
    };
    // One is left at least.
    for _ in 0..setting.between(0, count / 2).min(count - 1) {
        let at = setting.between(0, engines.len() as u64 - 1) as usize;
        let engine = engines.swap_remove(at);
        if setting.is_once_in(2) {
            let pause_ns = setting.between(MS, 4 * SECOND);
            setting.world.hosts[engine].paused_until = setting.world.now.plus_nanos(pause_ns);
        } else {
            let notice_ns = setting.between(0, 5 * MS);
            setting.world.end_engine(engine, ending, notice_ns)?;
        }
    }
    setting.world.must_hold(machine);
    for number in before..before + setting.between(1, 16) as u16 {
        connect_to_the_living(setting, number)?;
    }
    setting.run()
}

/// Connects two programs that take their time, of which the server's may end.
fn connect_to_the_slow(setting: &mut Setting, number: u16) -> Result<(), Failure> {
    let (up, down) = (setting.between(0, 50_000), setting.between(0, 50_000));
    let (mut client, mut server) = setting.tasks(up, down);
    client.may_die = true;
    for task in [&mut client, &mut server] {
        task.pause_ns_max = setting.between(0, 20 * MS);
    }
    setting.connect(number, client, server)
}

/// Peers that are silent, send or receive when the engine ends. Data that an orderly end leaves has
/// to arrive whole.
fn connect_to_ending_engine(
    setting: &mut Setting,
    ending: Ending,
    number: u16,
) -> Result<(), Failure> {
    let is_silent = ending == Ending::Crash && setting.is_once_in(3);
    let up = match ending {
        Ending::Crash => setting.between(0, 3_000_000),
        Ending::Orderly | Ending::Interrupted => 0,
    };
    // Some of the short connections have ended and are in TIME-WAIT.
    let is_short = ending != Ending::Crash && setting.is_once_in(2);
    let down = setting.between(0, if is_short { 2_000 } else { 3_000_000 });
    let (mut client, mut server) = setting.tasks(up, down);
    client.ends_last = is_short;
    let leaves_at = setting
        .world
        .now
        .plus_nanos(setting.between(SECOND, 200 * SECOND));
    if is_silent {
        for task in [&mut client, &mut server] {
            task.bytes_out = 1;
            task.rhythm = WritePattern::Turns {
                every: 1 << 40,
                burst: 1,
                first: false,
            };
            task.gives_up = Some((leaves_at, CloseMode::Orderly));
            task.may_fail = true;
        }
    }
    client.may_die = true;
    client.pause_ns_max = setting.between(0, 1) * MS;
    let options = SocketOptions {
        keep_alive: KeepAlive {
            enabled: true,
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            probes: 50,
        },
        ..SocketOptions::default()
    };
    setting.connect_with(number, client, server, &options)
}

fn connect_to_the_living(setting: &mut Setting, number: u16) -> Result<(), Failure> {
    let (up, down) = (setting.between(0, 100_000), setting.between(0, 100_000));
    let (client, server) = setting.tasks(up, down);
    setting.connect(number, client, server)
}

/// From the same ports as before.
fn connect_again(setting: &mut Setting, peers: &[(SocketAddr, SocketAddr)]) -> Result<(), Failure> {
    for (local, remote) in peers {
        // A connection that ended in order a moment before may be in TIME-WAIT.
        if setting.world.failed(*local, *remote).is_none() {
            continue;
        }
        let number = local.port() - CLIENT_PORT;
        connect_to_the_living(setting, number)?;
    }
    Ok(())
}
