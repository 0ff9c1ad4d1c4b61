//! Checks after each step, and when a world has come to rest.

use crate::balance;
use crate::host::Host;
use crate::world::World;
use slipstack_stack::TcpSizes;

/// Most steps until a world is at rest: retransmissions, ends, TIME-WAIT, keep-alives that give up.
const REST_STEPS_BASE: u64 = 2_000;
const REST_STEPS_PER_PROGRAM: u64 = 400;
/// Every engine is tried for an unknown segment, repeatedly while its port changes hands.
const STRAY_STEPS: u64 = 80;

/// Checks the invariants between any two calls of a stack.
pub fn invariants(host: &Host) -> Result<(), String> {
    host.stack
        .tcp_audit()
        .map_err(|(index, what)| format!("connection {index}: {what}"))
}

/// Checks that every frame that left a host is accounted for, and so is every frame received.
pub fn frames(world: &World) -> Result<(), String> {
    world.network.balance()?;
    let came: u64 = world.hosts.iter().map(|host| host.arrived).sum();
    let handed_out = world.network.handed_out();
    if handed_out != came + world.unheard {
        return Err(format!(
            "{handed_out} frames were handed out, {came} came to hosts, {} to nobody",
            world.unheard
        ));
    }
    for machine in &world.machines {
        machine.balance(&world.hosts)?;
    }
    Ok(())
}

/// Checks that a world without work to do does little: endless activity would show in its steps.
pub fn is_quiet(world: &World, steps: u64) -> Result<(), String> {
    let each = match world.machines.is_empty() {
        true => REST_STEPS_PER_PROGRAM,
        false => REST_STEPS_PER_PROGRAM * STRAY_STEPS,
    };
    let most = REST_STEPS_BASE + each * world.programs_len() as u64;
    if steps > most {
        return Err(format!("{steps} steps at rest, expected at most {most}"));
    }
    Ok(())
}

/// Nothing flies, nothing waits, nothing is running.
pub fn at_rest(world: &World) -> Result<(), String> {
    if world.network.flying_len() != 0 {
        return Err(format!("{} frames still fly", world.network.flying_len()));
    }
    frames(world)?;
    for (index, host) in world.hosts.iter().enumerate() {
        if world.network.corrupted() == 0 {
            balance::is_unharmed(host.stack.counters())
                .map_err(|why| format!("host {index}: {why}"))?;
        }
        if host.is_gone {
            continue;
        }
        balance::of_host(host).map_err(|why| format!("host {index}: {why}"))?;
        if !host.inbox.is_empty() || !host.fx.departures.is_empty() || !host.post.is_empty() {
            return Err(format!("host {index}: frames left over"));
        }
        if host.stack.has_dirty() {
            return Err(format!("host {index}: something is still to be sent"));
        }
        let sizes = host.stack.tcp_sizes();
        if sizes != TcpSizes::default() {
            return Err(format!("host {index}: left over: {sizes:?}"));
        }
        if let Some(at) = host.stack.next_deadline() {
            return Err(format!("host {index}: a timer still runs, until {at:?}"));
        }
    }
    Ok(())
}
