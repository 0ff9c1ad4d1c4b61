//! What must be true at each step, and when a world has come to rest.

use crate::host::Host;
use crate::world::World;

/// Steps that coming to rest may take: retransmissions, ends, TIME-WAIT, keep-alives that give up.
const REST_STEPS_BASE: u64 = 2_000;
const REST_STEPS_PER_PROGRAM: u64 = 400;

/// What holds between any two calls of a stack.
pub fn invariants(host: &Host) -> Result<(), String> {
    host.stack
        .tcp_audit()
        .map_err(|(index, what)| format!("connection {index}: {what}"))
}

/// A world without work to do does little: what goes on for ever would show in its steps.
pub fn is_quiet(world: &World, steps: u64) -> Result<(), String> {
    let most = REST_STEPS_BASE + REST_STEPS_PER_PROGRAM * world.programs_len() as u64;
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
    for (index, host) in world.hosts.iter().enumerate() {
        if host.is_gone {
            continue;
        }
        if !host.inbox.is_empty() || !host.fx.departures.is_empty() {
            return Err(format!("host {index}: frames left over"));
        }
        if host.stack.has_dirty() {
            return Err(format!("host {index}: something is still to be sent"));
        }
        let sizes = host.stack.tcp_sizes();
        if sizes != (0, 0, 0) {
            return Err(format!(
                "host {index}: left over (open, half-open, TIME-WAIT): {sizes:?}"
            ));
        }
        if let Some(at) = host.stack.next_deadline() {
            return Err(format!("host {index}: a timer still runs, until {at:?}"));
        }
    }
    Ok(())
}
