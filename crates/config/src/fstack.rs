//! The variables of F-Stack's LD_PRELOAD adapter, so that its start scripts keep working.
//!
//! In F-Stack an instance is known by its number. `FF_NB_FSTACK_INSTANCE` says how many there are:
//! the processes of a program take them in turn, beginning with `FF_PROC_ID`. Here the number is
//! the instance's name.

use crate::error::{ConfigError, Source};
use crate::table::OPTION;

type Found = (&'static str, &'static str, String);

/// Option, variable and text for each adapter variable that is set.
pub(crate) fn adapter_values(
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Vec<Found>, ConfigError> {
    let mut found = Vec::new();
    let instances = match variable("FF_NB_FSTACK_INSTANCE") {
        Some(text) => Some(number(
            "FF_NB_FSTACK_INSTANCE",
            OPTION.instances.name,
            &text,
            (1, 64),
        )?),
        None => None,
    };
    let first = match variable("FF_PROC_ID") {
        Some(text) => Some(number(
            "FF_PROC_ID",
            OPTION.instances.name,
            &text,
            (0, 1023),
        )?),
        None => None,
    };
    if let Some(count) = instances {
        let from = first.unwrap_or(0);
        let names: Vec<String> = (from..from + count)
            .map(|number| (number % count).to_string())
            .collect();
        found.push((
            OPTION.instances.name,
            "FF_NB_FSTACK_INSTANCE",
            names.join(","),
        ));
    } else if let Some(id) = first {
        found.push((OPTION.instances.name, "FF_PROC_ID", id.to_string()));
    }
    if let Some(text) = variable("FF_INITIAL_LCORE_ID") {
        found.push((
            OPTION.cores.name,
            "FF_INITIAL_LCORE_ID",
            cores_of_mask(&text)?,
        ));
    }
    Ok(found)
}

/// Returns whether variables of the adapter choose the program's instances: each of those is a
/// stack with ports of its own then.
#[must_use]
pub fn is_adapter(variable: impl Fn(&str) -> Option<String>) -> bool {
    ["FF_NB_FSTACK_INSTANCE", "FF_PROC_ID"]
        .iter()
        .any(|name| variable(name).is_some_and(|text| !text.is_empty()))
}

fn number(
    name: &'static str,
    option: &'static str,
    text: &str,
    (min, max): (u32, u32),
) -> Result<u32, ConfigError> {
    crate::kind::parse_count(text, min, max).map_err(|must| ConfigError::Value {
        option,
        source: Source::Environment(name),
        text: text.to_owned(),
        must,
    })
}

/// `0x4` → `2`, `0x3` → `0,1`.
fn cores_of_mask(text: &str) -> Result<String, ConfigError> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    let mask = u64::from_str_radix(digits, 16)
        .ok()
        .filter(|mask| *mask != 0);
    let mask = mask.ok_or_else(|| ConfigError::Value {
        option: OPTION.cores.name,
        source: Source::Environment("FF_INITIAL_LCORE_ID"),
        text: text.to_owned(),
        must: "a hexadecimal mask of cores such as 0x4".into(),
    })?;
    let is_set = |core: &u32| mask >> core & 1 == 1;
    let cores: Vec<String> = (0..64)
        .filter(is_set)
        .map(|core: u32| core.to_string())
        .collect();
    Ok(cores.join(","))
}
