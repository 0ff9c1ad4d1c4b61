//! A keeper process from start to end, including the hand-over to its successor.

use std::time::Duration;
use tracing::{error, info, warn};

use crate::error::KeeperError;
use crate::process::{descriptors, raise_descriptor_limit};
use crate::resources::{Options, Resources};
use crate::server::{Ended, OwnSlot, Server};
use crate::standby::{Keeper, Side, split};

/// Number of a successor's attempts to open its slot, and their distance.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// Descriptors that are free when a keeper starts: one for each slot, and these.
const SPARE_DESCRIPTORS: u64 = 16;

/// Opens the device, calls `announce` when programs can connect, and serves until it is no longer
/// needed.
///
/// The process must have one thread. Does not return in a standby that was never needed: that ends
/// the process.
///
/// # Errors
/// The reason why it could not start; then nothing was changed.
pub fn run(options: Options, announce: impl FnOnce()) -> Result<(), KeeperError> {
    raise_descriptor_limit();
    let mut resources = Resources::open(options)?;
    let mut announce = Some(announce);
    loop {
        // Opened before the fork: a standby would fail as its keeper does, and so would its own
        // standby, without end.
        let is_successor = announce.is_none();
        let own = match own_slot(&resources, is_successor) {
            Ok(own) => own,
            Err(error) => {
                error!(%error, "the keeper cannot continue");
                resources.remove();
                return Err(error);
            }
        };
        // Before the first fork, so that the standby too has dropped what it inherited from the
        // starter.
        if let Some(announce) = announce.take() {
            announce();
        }
        let standby = match split() {
            Ok(Side::Keeper(standby)) => Some(standby),
            Ok(Side::Standby(keeper)) => {
                own.leave();
                outlive(keeper, &mut resources);
                warn!("the keeper has ended; its standby goes on");
                continue;
            }
            Err(error) => {
                error!(%error, "no standby could be forked");
                None
            }
        };
        let (pid, slots) = (std::process::id(), resources.slots.count());
        info!(pid, slots, is_successor, "the keeper serves");
        match Server::new(resources, own, standby, is_successor).run() {
            (resources, Ended::Finished) => {
                resources.remove();
                return Ok(());
            }
            // Nothing is undone: the standby has the resources.
            (_, Ended::HandedOver) => std::process::exit(0),
            (kept, Ended::Standby(keeper)) => {
                resources = kept;
                outlive(keeper, &mut resources);
                warn!("the keeper has ended; its standby goes on");
            }
        }
    }
}

/// Without room for descriptors a keeper would start and be unable to accept.
fn leave_room(slots: u16) -> Result<(), KeeperError> {
    let (open, limit) = descriptors().map_err(KeeperError::io("count descriptors"))?;
    let needed = open + u64::from(slots) + SPARE_DESCRIPTORS;
    if needed > limit {
        return Err(KeeperError::FewDescriptors { slots, needed });
    }
    Ok(())
}

/// A successor has to keep existing connections: missing resources may be available a moment later.
fn own_slot(resources: &Resources, is_successor: bool) -> Result<OwnSlot, KeeperError> {
    let mut attempts = if is_successor { ATTEMPTS } else { 1 };
    let own = loop {
        attempts -= 1;
        match OwnSlot::open(resources) {
            Err(_) if attempts > 0 => std::thread::sleep(PAUSE),
            opened => break opened?,
        }
    };
    if !is_successor {
        leave_room(resources.options.slots)?;
    }
    Ok(own)
}

/// Sleeps until the keeper is gone; then either no keeper is needed any more, or this process is
/// next.
fn outlive(keeper: Keeper, resources: &mut Resources) {
    keeper.outlive(resources, slipstack_channel::REGION_LEN_MAX);
    if resources.journal.is_finished() {
        // Nothing of the inheritance is undone here: the keeper has done it.
        std::process::exit(0);
    }
    resources.restore();
}
