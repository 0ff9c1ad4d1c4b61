//! An inquiry in progress.

use slipstack_channel::SockId;

use super::rows::Subject;
use crate::authority::Asked;
use crate::client::ClientId;

/// An inquiry, its remaining subjects, and the answer so far.
pub(crate) struct PendingInquiry {
    pub(super) asked: Asked,
    pub(super) left: Vec<Part>,
    pub(super) text: Vec<u8>,
}

/// Something that may have a row in the answer.
#[derive(Clone, Copy)]
pub(super) enum Part {
    OfStack(Subject),
    OfProgram(ClientId, SockId),
}
