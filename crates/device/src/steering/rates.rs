//! Rate limits of frames to the kernel.

use super::{Steering, layout};
use crate::error::DeviceError;

impl Steering {
    /// Limits the packets per second to the kernel: ARP and multicast, the rest, and both together;
    /// 0 = no limit.
    pub fn set_rates(&self, rates: [u32; layout::RATES]) -> Result<(), DeviceError> {
        let writer = self.writable()?;
        for (class, rate) in rates.into_iter().enumerate() {
            writer.u32(layout::RATE_LIMITS + 4 * class, rate);
        }
        Ok(())
    }
}
