//! A keeper process from start to end, and its succession.

use crate::error::KeeperError;
use crate::server::{Ended, Server};
use crate::standby::{Side, split};
use crate::world::{Options, World};

/// Opens the device, calls `announce` when programs can connect, and serves until nobody needs it.
///
/// The process must have one thread. Does not return in a standby that was never needed: that ends
/// the process.
///
/// # Errors
/// Why it could not start; then nothing was changed.
pub fn run(options: Options, announce: impl FnOnce()) -> Result<(), KeeperError> {
    let mut world = World::open(options)?;
    let mut announce = Some(announce);
    let mut side = match split().map_err(KeeperError::io("fork the standby")) {
        Ok(side) => side,
        Err(error) => {
            world.remove();
            return Err(error);
        }
    };
    let mut is_successor = false;
    loop {
        match side {
            Side::Keeper(standby) => {
                let server = Server::new(world, standby, is_successor)?;
                if let Some(announce) = announce.take() {
                    announce();
                }
                match server.run() {
                    (world, Ended::Finished) => {
                        world.remove();
                        return Ok(());
                    }
                    (kept, Ended::Standby(keeper)) => {
                        world = kept;
                        side = Side::Standby(keeper);
                    }
                }
            }
            Side::Standby(keeper) => {
                announce = None;
                keeper.outlive(&mut world.regions, slipstack_channel::REGION_LEN_MAX);
                if world.journal.is_finished() {
                    // Nothing of the inheritance is undone here: the keeper has done it.
                    std::process::exit(0);
                }
                world.restore();
                is_successor = true;
                side = split().map_err(KeeperError::io("fork the standby"))?;
            }
        }
    }
}
