//! Rate limits of frames to the kernel.

use super::{Steering, layout};
use crate::error::DeviceError;

impl Steering {
    /// At most so many packets a second go to the kernel: ARP and what goes to groups, the rest,
    /// and both together; 0 = as many as come.
    pub fn set_rates(&self, rates: [u32; layout::RATES]) -> Result<(), DeviceError> {
        let writer = self.writable()?;
        for (class, rate) in rates.into_iter().enumerate() {
            writer.u32(layout::RATE_LIMITS + 4 * class, rate);
        }
        Ok(())
    }
}
