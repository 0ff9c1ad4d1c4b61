//! A keeper process from start to end, and its succession.

use crate::error::KeeperError;
use crate::log::say;
use crate::process::raise_descriptor_limit;
use crate::server::{Ended, Server};
use crate::standby::{Keeper, Side, split};
use crate::world::{Options, World};

/// Opens the device, calls `announce` when programs can connect, and serves until nobody needs it.
///
/// The process must have one thread. Does not return in a standby that was never needed: that ends
/// the process.
///
/// # Errors
/// Why it could not start; then nothing was changed.
pub fn run(options: Options, announce: impl FnOnce()) -> Result<(), KeeperError> {
    raise_descriptor_limit();
    let mut world = World::open(options)?;
    // Before the first fork, so that the standby too has let go of what the starter gave.
    announce();
    let mut is_successor = false;
    loop {
        let standby = match split() {
            Ok(Side::Keeper(standby)) => Some(standby),
            Ok(Side::Standby(keeper)) => {
                outlive(keeper, &mut world);
                is_successor = true;
                continue;
            }
            Err(error) => {
                say(format_args!("no standby could be forked: {error}"));
                None
            }
        };
        match Server::new(world, standby, is_successor)?.run() {
            (world, Ended::Finished) => {
                world.remove();
                return Ok(());
            }
            // Nothing of the world is undone: the standby has it.
            (_, Ended::HandedOver) => std::process::exit(0),
            (kept, Ended::Standby(keeper)) => {
                world = kept;
                outlive(keeper, &mut world);
                is_successor = true;
            }
        }
    }
}

/// Sleeps until the keeper is gone; then either nobody is needed any more, or this process is next.
fn outlive(keeper: Keeper, world: &mut World) {
    keeper.outlive(world, slipstack_channel::REGION_LEN_MAX);
    if world.journal.is_finished() {
        // Nothing of the inheritance is undone here: the keeper has done it.
        std::process::exit(0);
    }
    world.restore();
}
