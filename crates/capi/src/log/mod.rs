//! The log functions for programs: levels by type, to a stream or a file.

pub mod abi;

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use slipstack_config::LogLevel;

use crate::life;

/// FF_LOG_MAX: everything.
const LEVEL_MAX: u32 = 8;
/// FF_LOG_INFO.
const LEVEL_AT_FIRST: u32 = 7;
const TYPES: usize = 64;
/// FF_LOGTYPE_FSTACK_LIB and FF_LOGTYPE_FSTACK_FREEBSD.
const TYPES_OF_STACK: [u32; 2] = [30, 31];

static GLOBAL: AtomicU32 = AtomicU32::new(LEVEL_MAX);
static LEVELS: [AtomicU32; TYPES] = [const { AtomicU32::new(LEVEL_AT_FIRST) }; TYPES];
/// Destination of lines; null: standard error.
static STREAM: AtomicPtr<libc::FILE> = AtomicPtr::new(core::ptr::null_mut());
/// The file that `ff_log_open_set` opened.
static FILE: AtomicPtr<libc::FILE> = AtomicPtr::new(core::ptr::null_mut());

fn is_wanted(level: u32, kind: u32) -> bool {
    let of_type = LEVELS.get(kind as usize);
    let most = of_type.map_or(LEVEL_AT_FIRST, |level| level.load(Ordering::Relaxed));
    level != 0 && level <= GLOBAL.load(Ordering::Relaxed) && level <= most
}

fn set_global(level: u32) {
    GLOBAL.store(level.min(LEVEL_MAX), Ordering::Relaxed);
}

/// Gives the types of the stack the level of `--log`, which config.ini's `fstack_log_level` sets.
fn set_levels_of_stack() {
    let level = match life::options().map(|options| options.log) {
        None | Some(LogLevel::Warn) => 5,
        Some(LogLevel::Error) => 4,
        Some(LogLevel::Info) => LEVEL_AT_FIRST,
        Some(_) => LEVEL_MAX,
    };
    for kind in TYPES_OF_STACK {
        set(kind, level);
    }
}

/// Returns whether there is such a type and such a level.
fn set(kind: u32, level: u32) -> bool {
    match LEVELS.get(kind as usize).filter(|_| level <= LEVEL_MAX) {
        Some(place) => {
            place.store(level, Ordering::Relaxed);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_logged_only_if_both_levels_allow_it() {
        assert!(set(24, 4));
        assert!(is_wanted(4, 24) && !is_wanted(5, 24) && !is_wanted(0, 24));
        assert!(!set(24, 9) && !set(64, 1));
        assert!(is_wanted(7, 1000) && !is_wanted(8, 1000));
    }
}
