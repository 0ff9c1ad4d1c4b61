//! Link parameters as words: `rate=100M delay=20ms loss=1% queue=250k`.
//!
//! Numbers of bits and bytes take k, M or G (thousands); times need ns, us, ms or s; shares are
//! percentages.

use super::loss::Loss;
use super::params::{LinkParams, Policer, Share};

/// The words and their meanings, for help texts.
pub const WORDS: &[(&str, &str)] = &[
    (
        "rate=BITS",
        "bits per second of Ethernet frames, 0 = no limit",
    ),
    ("delay=TIME", "propagation, one way"),
    (
        "jitter=TIME",
        "added to the delay, up to this; keeps the order",
    ),
    ("loss=SHARE", "each frame with this probability"),
    (
        "burst-loss=SHARE:FRAMES",
        "on the whole this share, in bursts of that mean length (Gilbert-Elliott)",
    ),
    ("duplicate=SHARE", "frames that arrive twice"),
    (
        "reorder=SHARE:TIME",
        "frames late by up to TIME, overtaken by others",
    ),
    ("corrupt=SHARE", "frames with a flipped bit or a lost end"),
    (
        "queue=BYTES",
        "limit of the queue before the rate; drop-tail",
    ),
    ("queue-packets=COUNT", "the same in frames"),
    (
        "mark=BYTES",
        "ECN-capable packets that find more queued get CE",
    ),
    (
        "police=BITS:BYTES",
        "token bucket of this rate and burst, without a queue",
    ),
    ("mtu=BYTES", "longer IP packets are dropped, 0 = no limit"),
    ("cut=yes|no", "nothing passes"),
];

impl LinkParams {
    /// Changes these parameters by one word. The error is a sentence.
    pub fn apply(&mut self, word: &str) -> Result<(), String> {
        let Some((key, value)) = word.split_once('=') else {
            return Err(format!("\"{word}\" is not of the form NAME=VALUE"));
        };
        self.set(key, value).ok_or_else(|| {
            match WORDS.iter().find(|(form, _)| name_of(form) == key) {
                Some((form, _)) => format!("\"{word}\": expected {form}"),
                None => format!("\"{key}\" is no parameter of a link"),
            }
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "rate" => self.rate = count(value)?,
            "delay" => self.delay_ns = time(value)?,
            "jitter" => self.jitter_ns = time(value)?,
            "loss" => self.loss = Loss::Random(share(value)?),
            "burst-loss" => {
                let (of_all, frames) = value.split_once(':')?;
                let frames: u32 = frames.parse().ok().filter(|n| *n > 0)?;
                let of_all = share(of_all)?;
                // Between two bursts at least one frame gets through.
                let most = 1e6 * f64::from(frames) / (f64::from(frames) + 1.0);
                if f64::from(of_all.as_ppm()) > most {
                    return None;
                }
                self.loss = Loss::bursts_of(frames, of_all);
            }
            "duplicate" => self.duplication = share(value)?,
            "reorder" => {
                let (of_all, late) = value.split_once(':').unwrap_or((value, "0ms"));
                (self.reordering, self.reorder_ns) = (share(of_all)?, time(late)?);
            }
            "corrupt" => self.corruption = share(value)?,
            "queue" => self.queue.bytes_max = count(value)?,
            "queue-packets" => self.queue.packets_max = value.parse().ok()?,
            "mark" => self.queue.mark_bytes = count(value)?,
            "police" => {
                let (rate, burst) = value.split_once(':').unwrap_or((value, "0"));
                let (rate, burst_bytes) = (count(rate)?, count(burst)?);
                self.policer = (rate != 0).then_some(Policer { rate, burst_bytes });
            }
            "mtu" => self.mtu = value.parse().ok()?,
            "cut" => {
                self.is_cut = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }
}

fn name_of(form: &str) -> &str {
    form.split_once('=').map_or(form, |(name, _)| name)
}

fn count(text: &str) -> Option<u64> {
    let units = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)];
    scaled(text, &units).and_then(whole)
}

/// Nanoseconds. A number without a unit is no time, but 0 is.
pub fn time(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    scaled(text, &units).and_then(whole)
}

/// Returns a whole number; a fraction that rounds to 0 is a mistake, because 0 often means
/// something else.
fn whole(value: f64) -> Option<u64> {
    (value == 0.0 || value >= 1.0).then_some(value as u64)
}

fn share(text: &str) -> Option<Share> {
    if text == "0" {
        return Some(Share::NEVER);
    }
    let ppm = scaled(text, &[("%", 1e4)])?;
    let is_something = ppm == 0.0 || ppm >= 0.5;
    (ppm <= 1e6 && is_something).then(|| Share::ppm(ppm.round() as u32))
}

/// A number with the first unit that fits.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (digits, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let value: f64 = digits.parse().ok()?;
    let is_plain = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let result = value * factor;
    (is_plain && result < 1e18).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::QueueParams;

    fn parsed(words: &str) -> Result<LinkParams, String> {
        let mut params = LinkParams::default();
        for word in words.split_whitespace() {
            params.apply(word)?;
        }
        Ok(params)
    }

    #[test]
    fn every_word_sets_its_parameter() {
        let words = "rate=100M delay=20ms jitter=1.5ms loss=0.1% duplicate=1% reorder=5%:10ms \
                     corrupt=0 queue=250k queue-packets=100 mark=30k police=50M:64k mtu=1400 \
                     cut=yes";
        let params = LinkParams {
            rate: 100_000_000,
            queue: QueueParams {
                bytes_max: 250_000,
                packets_max: 100,
                mark_bytes: 30_000,
            },
            policer: Some(Policer {
                rate: 50_000_000,
                burst_bytes: 64_000,
            }),
            delay_ns: 20_000_000,
            jitter_ns: 1_500_000,
            loss: Loss::Random(Share::ppm(1000)),
            duplication: Share::percent(1),
            reordering: Share::percent(5),
            reorder_ns: 10_000_000,
            corruption: Share::NEVER,
            mtu: 1400,
            is_cut: true,
        };
        assert_eq!(parsed(words), Ok(params));
        let bursts = parsed("burst-loss=1%:8").unwrap().loss;
        assert_eq!(bursts, Loss::bursts_of(8, Share::percent(1)));
    }

    #[test]
    fn each_word_of_the_help_is_accepted_and_errors_list_the_alternatives() {
        for (form, _) in WORDS {
            let error = parsed(&format!("{}=?", name_of(form))).unwrap_err();
            assert!(error.contains(form), "{error}");
        }
        for nonsense in [
            "rate",
            "speed=1",
            "delay=5",
            "loss=101%",
            "rate=-1",
            "loss=1",
            "rate=inf",
            "rate=0.5",
            "loss=0.00001%",
            "delay=0.1ns",
            "burst-loss=90%:1",
        ] {
            assert!(parsed(nonsense).is_err(), "{nonsense}");
        }
    }
}
