//! A card's RSS configuration, among the parameters that a slot is passed with.

use serde::{Deserialize, Serialize};
use slipstack_wire::rss::{Input, QueueMap};

/// Key and indirection table of RSS, and the slot's own queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RssParams {
    pub key: Vec<u8>,
    /// The two directions of a flow have one hash.
    #[serde(default)]
    pub is_symmetric: bool,
    pub table: Vec<u16>,
    pub queue: u16,
}

impl RssParams {
    /// Returns `None` if the key is of another length than RSS has, or the table never names the
    /// queue.
    pub fn map(&self) -> Option<QueueMap> {
        // Longer keys are for longer headers: the hash of ours does not read their ends.
        let key = self.key.first_chunk()?;
        let input = match self.is_symmetric {
            true => Input::Symmetric,
            false => Input::Plain,
        };
        QueueMap::new((key, input), &self.table, self.queue)
    }
}
