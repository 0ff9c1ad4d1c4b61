//! sysctls: Linux's and FreeBSD's names for the tunable values of a stack.
//!
//! One table ([`SYSCTLS`]) gives the meaning of each name here. `slipstack sysctl`, `ff_sysctl`,
//! `--sysctl`, the sections `[freebsd.boot]` and `[freebsd.sysctl]` of `config.ini` and
//! `docs/reference/sysctl.md` follow from it.

mod names;
mod reference;
#[cfg(test)]
mod tests;

use std::fmt;

use slipstack_stack::{Effect, StackConfig, Tunable};

use crate::nearest::nearest;
pub use names::SYSCTLS;
pub use reference::sysctl_reference;

/// One name.
#[derive(Debug)]
pub struct Sysctl {
    pub name: &'static str,
    pub meaning: Meaning,
}

/// The meaning of a name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// One of the stack's numbers, in this unit.
    Is(Tunable, Unit),
    /// Least, first and greatest size of a buffer; the least is fixed.
    Sizes { initial: Tunable, max: Tunable },
    /// First and last of a range.
    Range { first: Tunable, last: Tunable },
    /// One of a few names.
    Choice(Tunable, &'static [&'static str]),
    /// A switch of the network, for both families.
    Network(NetworkSwitch),
    /// Fixed to this value, for the reason that the sentence gives.
    Fixed(&'static str, &'static str),
    /// Without meaning here, for the reason that the sentence gives.
    Moot(&'static str),
}

/// A switch of the network that all engines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkSwitch {
    /// Packets for others are passed on.
    Forwarding,
    /// Every routing table has the networks of the stack's own addresses.
    ConnectsAllTables,
}

/// Conversion of a name's number to the stack's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Same,
    /// The name counts seconds, the stack milliseconds.
    Seconds,
    /// The name is half of the stack's time (FreeBSD's maximum segment lifetime).
    Half,
    /// The name is a switch, which turned on means this number.
    On(u32),
}

/// Reason why a name cannot be read or set: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SysctlError {
    Unknown {
        name: String,
        nearest: &'static str,
    },
    /// Name with one value only.
    Fixed {
        name: &'static str,
        value: &'static str,
        why: &'static str,
    },
    Moot {
        name: &'static str,
        why: &'static str,
    },
    /// Only a stack that is started with it has it.
    AtStart {
        name: &'static str,
    },
    Value {
        name: &'static str,
        text: String,
        must: String,
    },
}

impl fmt::Display for SysctlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SysctlError::Unknown { name, nearest } => {
                write!(f, "there is no sysctl '{name}'; the nearest is '{nearest}'")
            }
            SysctlError::Fixed { name, value, why } => {
                write!(f, "{name} is {value} and cannot be changed: {why}")
            }
            SysctlError::Moot { name, why } => write!(f, "{name} has no meaning here: {why}"),
            SysctlError::AtStart { name } => {
                write!(
                    f,
                    "{name} is set when a stack is started: --sysctl {name}=VALUE"
                )
            }
            SysctlError::Value { name, text, must } => {
                write!(f, "{name} is '{text}' but must be {must}")
            }
        }
    }
}

impl std::error::Error for SysctlError {}

/// Least size of a buffer, as Linux has it.
const BUFFER_MIN: u32 = 4096;

/// Returns the row of a name; `/` may stand for `.`, as sysctl(8) permits.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static Sysctl, SysctlError> {
    let dotted = name.replace('/', ".");
    let found = SYSCTLS.iter().find(|row| row.name == dotted);
    found.ok_or_else(|| SysctlError::Unknown {
        nearest: nearest(&dotted, SYSCTLS.iter().map(|row| row.name)).unwrap_or_default(),
        name: name.to_owned(),
    })
}

/// Returns the value of a name in a stack whose values `read` returns.
///
/// # Errors
/// It has no meaning here.
pub fn read(row: &'static Sysctl, read: impl Fn(Tunable) -> u32) -> Result<String, SysctlError> {
    Ok(match row.meaning {
        Meaning::Is(tunable, unit) => unit.shown(read(tunable)).to_string(),
        Meaning::Sizes { initial, max } => {
            format!("{BUFFER_MIN}\t{}\t{}", read(initial), read(max))
        }
        Meaning::Range { first, last } => format!("{}\t{}", read(first), read(last)),
        Meaning::Choice(tunable, names) => names
            .get(read(tunable) as usize)
            .copied()
            .unwrap_or_default()
            .to_owned(),
        Meaning::Network(_) => "0".to_owned(),
        Meaning::Fixed(value, _) => value.to_owned(),
        Meaning::Moot(why) => {
            return Err(SysctlError::Moot {
                name: row.name,
                why,
            });
        }
    })
}

/// Returns the numbers that a value sets.
///
/// # Errors
/// The value is not valid, or the name has no other or no meaning here.
pub fn write(row: &'static Sysctl, text: &str) -> Result<Vec<(Tunable, u32)>, SysctlError> {
    let wrong = |must: String| SysctlError::Value {
        name: row.name,
        text: text.to_owned(),
        must,
    };
    match row.meaning {
        Meaning::Is(tunable, unit) => {
            let (min, max) = unit.range(tunable);
            let number = integer(text).filter(|number| (min..=max).contains(number));
            let number = number.ok_or_else(|| wrong(format!("a number from {min} to {max}")))?;
            Ok(vec![(tunable, unit.meant(number, tunable))])
        }
        Meaning::Sizes { initial, max } => {
            let sizes: Option<Vec<u32>> = text.split_whitespace().map(integer).collect();
            let (least, most) = max.range();
            let is_size = |size: &u32| (least..=most).contains(size);
            match sizes.as_deref() {
                Some([_, first, last]) if first <= last && is_size(first) && is_size(last) => {
                    Ok(vec![(initial, *first), (max, *last)])
                }
                _ => Err(wrong(format!(
                    "three sizes in ascending order, the second and third from {least} to {most}"
                ))),
            }
        }
        Meaning::Range { first, last } => {
            let bounds: Option<Vec<u32>> = text.split_whitespace().map(integer).collect();
            let (least, most) = (first.range().0, last.range().1);
            match bounds.as_deref() {
                Some([from, to]) if least <= *from && from <= to && *to <= most => {
                    Ok(vec![(first, *from), (last, *to)])
                }
                _ => Err(wrong(format!(
                    "two numbers in ascending order from {least} to {most}"
                ))),
            }
        }
        Meaning::Choice(tunable, names) => {
            let place = names.iter().position(|name| *name == text);
            let place = place.ok_or_else(|| wrong(format!("one of {}", names.join(", "))))?;
            Ok(vec![(tunable, place as u32)])
        }
        Meaning::Network(_) => match network_switch(row, text) {
            Some(_) => Ok(Vec::new()),
            None => Err(wrong("0 or 1".to_owned())),
        },
        Meaning::Fixed(value, _) if value == text => Ok(Vec::new()),
        Meaning::Fixed(value, why) => Err(SysctlError::Fixed {
            name: row.name,
            value,
            why,
        }),
        Meaning::Moot(why) => Err(SysctlError::Moot {
            name: row.name,
            why,
        }),
    }
}

/// Returns the changes that a running stack takes, by the names of its numbers.
///
/// # Errors
/// As [`write`], or only a new stack can have the value.
pub fn live_changes(
    row: &'static Sysctl,
    text: &str,
) -> Result<Vec<(&'static str, u32)>, SysctlError> {
    let changes = write(row, text)?;
    let is_late = |(tunable, _): &(Tunable, u32)| tunable.effect() == Effect::AtStart;
    if changes.iter().any(is_late) {
        return Err(SysctlError::AtStart { name: row.name });
    }
    Ok(changes
        .into_iter()
        .map(|(tunable, number)| (tunable.name(), number))
        .collect())
}

/// Returns the switch of the network that a name means, and whether this value turns it on; `None`
/// if the name means none or the value is not valid.
#[must_use]
pub fn network_switch(row: &'static Sysctl, text: &str) -> Option<(NetworkSwitch, bool)> {
    let Meaning::Network(switch) = row.meaning else {
        return None;
    };
    match integer(text)? {
        0 => Some((switch, false)),
        1 => Some((switch, true)),
        _ => None,
    }
}

/// The numbers of a stack, as options and an operator have set them.
#[derive(Clone, Debug)]
pub struct Values {
    config: StackConfig,
    /// The network's switches.
    pub is_forwarding: bool,
    pub connects_all_tables: bool,
}

impl Values {
    #[must_use]
    pub fn of(config: StackConfig) -> Values {
        Values {
            config,
            is_forwarding: false,
            connects_all_tables: false,
        }
    }

    /// Sets a value by its name; an unknown name is ignored.
    pub fn set(&mut self, name: &str, value: u32) {
        if let Some(tunable) = Tunable::find(name) {
            self.config.tune(tunable, value);
        }
    }

    /// Returns the value of a sysctl.
    ///
    /// # Errors
    /// It has no meaning here.
    pub fn read(&self, row: &'static Sysctl) -> Result<String, SysctlError> {
        let is_on = match row.meaning {
            Meaning::Network(NetworkSwitch::Forwarding) => self.is_forwarding,
            Meaning::Network(NetworkSwitch::ConnectsAllTables) => self.connects_all_tables,
            _ => return read(row, |tunable| self.config.tunable(tunable)),
        };
        Ok(u32::from(is_on).to_string())
    }
}

/// Decimal, or hexadecimal with `0x`.
fn integer(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Unit {
    fn shown(self, number: u32) -> u32 {
        match self {
            Unit::Same => number,
            Unit::Seconds => number / 1000,
            Unit::Half => number / 2,
            Unit::On(_) => u32::from(number != 0),
        }
    }

    /// The name's least and greatest number.
    fn range(self, tunable: Tunable) -> (u32, u32) {
        let (min, max) = tunable.range();
        match self {
            Unit::Same => (min, max),
            Unit::Seconds => (min.div_ceil(1000), max / 1000),
            Unit::Half => (min.div_ceil(2), max / 2),
            Unit::On(_) => (0, 1),
        }
    }

    fn meant(self, number: u32, tunable: Tunable) -> u32 {
        match self {
            Unit::Same => number,
            Unit::Seconds => number * 1000,
            Unit::Half => number * 2,
            Unit::On(on) if number != 0 => on,
            Unit::On(_) => tunable.range().0,
        }
    }
}

/// A sysctl with its value, as `--sysctl NAME=VALUE` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysctlSetting {
    pub name: &'static str,
    pub value: String,
}

impl fmt::Display for SysctlSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl SysctlSetting {
    /// Returns the numbers that it sets.
    #[must_use]
    pub fn numbers(&self) -> Vec<(Tunable, u32)> {
        let changes = find(self.name).and_then(|row| write(row, &self.value));
        changes.unwrap_or_default()
    }

    /// Returns the switch of the network that it sets, and whether it turns it on.
    #[must_use]
    pub fn network_switch(&self) -> Option<(NetworkSwitch, bool)> {
        network_switch(find(self.name).ok()?, &self.value)
    }

    /// Sets the numbers of a stack that is about to be made.
    pub fn apply(&self, config: &mut StackConfig) {
        for (tunable, number) in self.numbers() {
            config.tune(tunable, number);
        }
    }
}

/// Reads settings such as `net.ipv4.tcp_ecn=1`, separated by semicolons.
pub(crate) fn parse_settings(text: &str) -> Result<Vec<SysctlSetting>, String> {
    text.split(';').map(parse_setting).collect()
}

fn parse_setting(text: &str) -> Result<SysctlSetting, String> {
    let syntax = "a sysctl with its value, such as net.ipv4.tcp_fin_timeout=30";
    let (name, value) = text.split_once('=').ok_or(syntax)?;
    let (name, value) = (name.trim(), value.trim());
    let row = find(name).map_err(|error| format!("{syntax} ({error})"))?;
    write(row, value).map_err(|error| format!("{syntax} ({error})"))?;
    Ok(SysctlSetting {
        name: row.name,
        value: value.to_owned(),
    })
}
