//! Limits of a socket's buffers: the system's rmem_max and wmem_max.

use rustix::fs::{Mode, OFlags};

/// Twice of it, as the kernel counts, is an int (sock_setsockopt()).
pub(crate) const NONE: u32 = i32::MAX as u32 / 2;

/// Returns the present limit.
pub(crate) fn of_receiving() -> u32 {
    read("/proc/sys/net/core/rmem_max")
}

pub(crate) fn of_sending() -> u32 {
    read("/proc/sys/net/core/wmem_max")
}

/// Returns the limit in `path`; [`NONE`] if it cannot be read (another root, an old kernel's
/// namespace).
fn read(path: &str) -> u32 {
    let parse = || {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 16];
        let len = rustix::io::read(&file, &mut text).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        text.trim().parse::<u32>().ok()
    };
    parse().unwrap_or(NONE).min(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_buffer_limits_are_read_and_may_be_absent() {
        assert!((2304..=NONE).contains(&of_receiving()) && (2304..=NONE).contains(&of_sending()));
        assert_eq!(read("/nowhere/rmem_max"), NONE);
    }
}
