//! The keeper as seen by an engine inside a program.

use std::sync::Arc;

use slipstack_channel::control::TimeWaitEntry;
use slipstack_mem::PrivateFd;

/// The keeper's side that watches over this process's engine and inherits its connections.
pub trait Supervisor: Send + Sync {
    /// The control connection: it becomes readable (or hangs up) when something has to be done.
    fn control(&self) -> Option<Arc<PrivateFd>>;

    /// Something has happened on the control connection: read it, or connect again if the keeper
    /// has been replaced. Called from the ticker thread.
    fn on_control(&self);

    /// Hands over `images` connections in the handover area of this engine's region. Returns
    /// whether the keeper has taken them.
    fn hand_over(&self, images: u32) -> bool;

    /// Passes on the TIME-WAIT entries of an engine that ends, if there are any; the most important
    /// are at the beginning.
    fn pass_on_time_waits(&self, entries: &[TimeWaitEntry]);

    /// The process ends in order, after [`Supervisor::hand_over`] if there was something to give.
    fn end_session(&self);
}
