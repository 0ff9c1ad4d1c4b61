//! Random numbers.

/// From the kernel's generator; without it from the clock, which only weakens a capability.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        _ => slipstack_mem::now_ns(),
    }
}
