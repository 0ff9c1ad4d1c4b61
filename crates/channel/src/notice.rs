//! The keeper's word to an engine that the network has changed: it asks then. Through the engine's inbox, in a message
//! that looks like a frame of the EtherType that engines use to the keeper for their groups.

use crate::groups::{ETHERTYPE, TYPE_AT};

/// Length of the message.
pub const NOTICE_LEN: usize = 16;

pub fn write_notice() -> [u8; NOTICE_LEN] {
    let mut out = [0; NOTICE_LEN];
    out[TYPE_AT..TYPE_AT + 2].copy_from_slice(&ETHERTYPE);
    out
}

/// Whether an engine's inbox has brought one.
pub fn is_notice(frame: &[u8]) -> bool {
    frame.len() == NOTICE_LEN && frame.get(TYPE_AT..TYPE_AT + 2) == Some(&ETHERTYPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_told_from_frames() {
        assert!(is_notice(&write_notice()));
        assert!(!is_notice(&[0; NOTICE_LEN]) && !is_notice(&write_notice()[..14]));
        assert!(!crate::is_passing(&write_notice()));
    }
}
