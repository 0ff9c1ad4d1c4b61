//! Times to sleep, in memory that cannot be written.

use std::time::Duration;

/// Times of whole milliseconds, below the first step.
const SHORT: usize = STEP_MS as usize - 1;
const STEP_MS: u64 = 20;
/// Times of whole steps.
const STEPS: usize = 256;
/// Times that double, from the last of those on.
const DOUBLINGS: usize = 12;
const COUNT: usize = SHORT + STEPS + DOUBLINGS;

static TIMES: [libc::timespec; COUNT] = times();

const fn times() -> [libc::timespec; COUNT] {
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut all = [none; COUNT];
    let mut at = 0;
    while at < COUNT {
        let ms = time_ms(at);
        all[at] = libc::timespec {
            tv_sec: (ms / 1000) as libc::time_t,
            tv_nsec: (ms % 1000 * 1_000_000) as libc::c_long,
        };
        at += 1;
    }
    all
}

const fn time_ms(at: usize) -> u64 {
    if at < SHORT {
        return at as u64 + 1;
    }
    let step = at - SHORT;
    match step < STEPS {
        true => STEP_MS * (step as u64 + 1),
        false => (STEP_MS * STEPS as u64) << (step - STEPS + 1),
    }
}

/// Returns the longest of the times that is not longer than `timeout` (`None`: for ever), if there
/// is one.
pub(super) fn most_of(timeout: Option<Duration>) -> Option<&'static libc::timespec> {
    let Some(timeout) = timeout else {
        return TIMES.last();
    };
    let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let count = match ms / STEP_MS {
        0 => ms as usize,
        steps if steps <= STEPS as u64 => SHORT + steps as usize,
        steps => SHORT + STEPS + ((steps / STEPS as u64).ilog2() as usize).min(DOUBLINGS),
    };
    TIMES.get(count.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_longest_within_the_timeout() {
        let ms = |timeout: Option<u64>| {
            most_of(timeout.map(Duration::from_millis))
                .map(|time| time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
        };
        assert_eq!(ms(Some(0)), None);
        assert_eq!(ms(Some(1)), Some(1));
        assert_eq!(ms(Some(19)), Some(19));
        assert_eq!(ms(Some(20)), Some(20));
        assert_eq!(ms(Some(99)), Some(80));
        assert_eq!(ms(Some(5120)), Some(5120));
        assert_eq!(ms(Some(5139)), Some(5120));
        assert_eq!(ms(Some(10_239)), Some(5120));
        assert_eq!(ms(Some(10_240)), Some(10_240));
        assert_eq!(ms(Some(25_000)), Some(20_480));
        assert_eq!(ms(Some(u64::MAX)), ms(None));
        assert_eq!(ms(None), Some(5120 << 12));
    }
}
