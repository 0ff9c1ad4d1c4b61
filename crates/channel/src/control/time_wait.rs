//! The TIME-WAIT entries of an engine that ends, as it hands them to the keeper.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Entries in one message: the longest fit.
pub const TIME_WAITS_PER_MESSAGE: usize = 512;

/// One entry, as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeWaitEntry {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub snd_nxt: u32,
    pub rcv_nxt: u32,
    pub window: u16,
    /// TS.Recent and the offset of the own timestamps.
    pub stamps: Option<(u32, u32)>,
    pub left_ms: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{MESSAGE_MAX, Request};

    #[test]
    fn the_largest_number_of_entries_fits_a_message() {
        let end: SocketAddr = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535"
            .parse()
            .expect("address");
        let entries = TimeWaitEntry {
            local: end,
            remote: end,
            snd_nxt: u32::MAX,
            rcv_nxt: u32::MAX,
            window: u16::MAX,
            stamps: Some((u32::MAX, u32::MAX)),
            left_ms: u32::MAX,
        };
        let entries = vec![entries; TIME_WAITS_PER_MESSAGE];
        let request = Request::TimeWaits { entries };
        let message = serde_json::to_vec(&request).expect("message");
        assert!(message.len() <= MESSAGE_MAX, "{}", message.len());
        assert_eq!(
            serde_json::from_slice::<Request>(&message).expect("request"),
            request
        );
    }
}
