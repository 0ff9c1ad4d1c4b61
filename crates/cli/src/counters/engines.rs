//! The counters of engines, and the choice of the engines that a command shows.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches};
use slipstack_attach::inquiry;
use slipstack_channel::control::net::{EngineIdentity, Inquiry};
use slipstack_config::Settings;

use crate::failure::Failure;
use crate::output::say;
use crate::sockets::failed;

/// Numbers by their names.
pub type Values = BTreeMap<String, u64>;

/// The counters of one engine at one time.
#[derive(Clone, Debug)]
pub struct Sample {
    pub interface: String,
    pub engine: EngineIdentity,
    pub values: Values,
}

impl Sample {
    pub fn value(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// Tells it from all engines that have been in its slot.
    pub fn key(&self) -> (&str, u16, u32) {
        (&self.interface, self.engine.slot, self.engine.pid)
    }

    /// Returns the increase since an earlier sample of the engine.
    pub fn since(&self, before: &Sample) -> Sample {
        let mut later = self.clone();
        for (name, value) in &mut later.values {
            *value = value.saturating_sub(before.value(name));
        }
        later
    }
}

/// Which engines a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    Slot(u16),
    /// F-Stack's processes of these numbers, the last included.
    Processes(u32, u32),
}

impl Which {
    /// Chosen by --engine, -p and -P; `else_first`: otherwise it is process 0, as with F-Stack's
    /// tools.
    pub fn chosen(matches: &ArgMatches, else_first: bool) -> Result<Which, Failure> {
        let number = |name| matches.try_get_one::<u32>(name).ok().flatten().copied();
        if let Some(slot) = matches.get_one::<u16>("engine") {
            return Ok(Which::Slot(*slot));
        }
        match (number("process"), number("processes")) {
            (None, None) if !else_first => Ok(Which::All),
            (first, last) => {
                let first = first.unwrap_or(0);
                let last = last.unwrap_or(first);
                match first <= last {
                    true => Ok(Which::Processes(first, last)),
                    false => Err(Failure::new(format!("-P {last} is less than -p {first}"))),
                }
            }
        }
    }

    /// Keeps the selected engines.
    fn choose(self, samples: Vec<Sample>) -> Vec<Sample> {
        match self {
            Which::All => samples,
            Which::Slot(slot) => {
                let is_meant = |it: &Sample| it.engine.slot == slot;
                samples.into_iter().filter(is_meant).collect()
            }
            Which::Processes(first, last) => {
                let found = (first..=last).filter_map(|number| process(&samples, number));
                found.cloned().collect()
            }
        }
    }
}

fn process(samples: &[Sample], number: u32) -> Option<&Sample> {
    let place = place_of_process(samples.iter().map(|it| &it.engine), number)?;
    samples.get(place)
}

/// The place of the engine that is F-Stack's process of this number: an instance of this name, or
/// the n-th engine.
pub fn place_of_process<'a>(
    engines: impl Iterator<Item = &'a EngineIdentity> + Clone,
    number: u32,
) -> Option<usize> {
    let name = number.to_string();
    let named = engines
        .clone()
        .position(|it| it.instance.as_ref() == Some(&name));
    let mut places = engines.enumerate().filter(|(_, it)| it.slot != 0);
    named.or_else(|| places.nth(number as usize).map(|(place, _)| place))
}

/// Returns the counters of the selected engines, in the order of devices and slots.
pub fn samples(settings: &Settings, which: Which) -> Result<Vec<Sample>, Failure> {
    let mut samples = Vec::new();
    for answer in inquiry::inquire(settings, &Inquiry::Counters).map_err(failed)? {
        let engine = &answer.engine;
        if !engine.has_answered {
            say(&format!(
                "slipstack: the engine of {} (pid {}) on {} did not answer; its counters are \
                 missing",
                engine.program, engine.pid, answer.interface
            ));
            continue;
        }
        let rows = answer.text.lines().map(serde_json::from_str);
        let values = rows.collect::<Result<Values, _>>().map_err(|_| {
            Failure::new(format!(
                "the engine of {} (pid {}) sent an answer that is not understood",
                engine.program, engine.pid
            ))
        })?;
        samples.push(Sample {
            interface: answer.interface,
            engine: answer.engine,
            values,
        });
    }
    samples.sort_by(|a, b| a.key().cmp(&b.key()));
    let is_none = samples.is_empty();
    let chosen = which.choose(samples);
    match (is_none, chosen.is_empty()) {
        (true, _) => Err(Failure::new("nothing runs on Slipstack here")),
        (false, true) => Err(Failure::new(
            "there is no such engine; see `slipstack status`",
        )),
        (false, false) => Ok(chosen),
    }
}

/// A line of JSON for each interval.
pub fn json_line<T: serde::Serialize>(rows: &[T]) -> Result<String, Failure> {
    let text = serde_json::to_string(rows).map_err(|error| Failure::new(error.to_string()))?;
    Ok(format!("{text}\n"))
}

/// `-p N`: the process of F-Stack.
pub fn process_argument() -> Arg {
    Arg::new("process")
        .short('p')
        .value_name("N")
        .value_parser(clap::value_parser!(u32))
        .conflicts_with("engine")
        .help(
            "Only process N, as F-Stack counts: the instance of this name, or the engine at this \
            place, from 0",
        )
}

pub fn last_process_argument() -> Arg {
    Arg::new("processes")
        .short('P')
        .value_name("MAX")
        .value_parser(clap::value_parser!(u32).range(..1024))
        .conflicts_with("engine")
        .help("Every process from -p (or 0) to MAX, and their sum")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample(slot: u16, instance: Option<&str>, values: &[(&str, u64)]) -> Sample {
        let values = values.iter().map(|(name, n)| ((*name).to_owned(), *n));
        Sample {
            interface: "eth1".into(),
            engine: EngineIdentity {
                slot,
                pid: u32::from(slot) + 100,
                program: "p".into(),
                instance: instance.map(str::to_owned),
                has_answered: true,
            },
            values: values.collect(),
        }
    }

    #[test]
    fn a_process_number_selects_the_instance_of_that_name_or_the_engine_in_order() {
        let slots = |samples: &[Sample], number| process(samples, number).map(|it| it.engine.slot);
        let plain = [
            sample(0, None, &[]),
            sample(1, None, &[]),
            sample(4, None, &[]),
        ];
        assert_eq!(slots(&plain, 0), Some(1));
        assert_eq!(slots(&plain, 1), Some(4));
        assert_eq!(slots(&plain, 2), None);
        let named = [sample(1, Some("1"), &[]), sample(2, Some("0"), &[])];
        assert_eq!(slots(&named, 0), Some(2));
        assert_eq!(slots(&named, 1), Some(1));
    }

    #[test]
    fn differences_are_taken_counter_by_counter() {
        let later = sample(1, None, &[("a", 7), ("b", 2)]);
        let since = later.since(&sample(1, None, &[("a", 5)]));
        assert_eq!((since.value("a"), since.value("b")), (2, 2));
    }
}
