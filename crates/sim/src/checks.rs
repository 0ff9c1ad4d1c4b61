//! What must be true when a world has come to rest.

use crate::world::World;

/// Nothing flies, nothing waits, nothing is running.
pub fn at_rest(world: &World) -> Result<(), String> {
    if world.network.flying_len() != 0 {
        return Err(format!("{} frames still fly", world.network.flying_len()));
    }
    for (index, host) in world.hosts.iter().enumerate() {
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
