//! Sizes that a handshake agrees on: maximum segment sizes (RFC 9293 3.7.1, RFC 6691) and window
//! shifts (RFC 7323 2).

use super::flow::FlowKey;

/// Least limit of the window (Linux: SOCK_MIN_RCVBUF / 2).
pub const WINDOW_CLAMP_MIN: u32 = 1152;

/// MSS of a peer that announces none (RFC 9293 3.7.1, MUST-15), over IPv4 and over IPv6.
pub const MSS_DEFAULT: u16 = 536;
pub const MSS_DEFAULT_V6: u16 = 1220;
/// Smallest accepted MSS (CVE-2019-11479).
pub const MSS_MIN: u16 = 88;
/// Largest shift (RFC 7323 2.3).
pub const WINDOW_SHIFT_MAX: u8 = 14;

/// Headers that a full packet of this flow carries: IP and TCP without options.
pub fn headers(key: &FlowKey) -> u16 {
    if key.is_v4() { 40 } else { 60 }
}

/// Returns the shift with which the window can reach `buffer_max` (RFC 7323 2.2).
pub fn shift_for(buffer_max: u32) -> u8 {
    // Smallest shift with 0xffff << shift >= buffer_max.
    let steps = buffer_max.div_ceil(0xffff).max(1);
    let shift = steps.next_power_of_two().trailing_zeros() as u8;
    shift.min(WINDOW_SHIFT_MAX)
}

/// The MSS that we announce (RFC 9293 3.7.1; RFC 6691: options are not taken off).
pub fn mss_to_announce(key: &FlowKey, mtu: u16, limit: Option<u16>) -> u16 {
    mtu.saturating_sub(headers(key))
        .min(limit.unwrap_or(u16::MAX))
        .max(MSS_MIN)
}

/// Returns the MSS of a peer that announces none.
#[cold]
pub fn mss_default(key: &FlowKey) -> u16 {
    if key.is_v4() {
        MSS_DEFAULT
    } else {
        MSS_DEFAULT_V6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_is_the_smallest_that_reaches_the_buffer() {
        for buffer in [0, 1, 65_535, 65_536, 131_070, 131_071, 6 << 20, u32::MAX] {
            let shift = shift_for(buffer);
            assert!(u64::from(buffer) <= 0xffff << shift || shift == WINDOW_SHIFT_MAX);
            assert!(shift == 0 || u64::from(buffer) > 0xffff << (shift - 1));
        }
    }
}
