//! The packet filter as a configuration wants it (`--filter`).

use slipstack_attach::inquiry;
use slipstack_channel::control::net::{
    FilterRule, FilterState, FilterTable, NetworkState, change_filter,
};
use slipstack_config::Settings;

use super::batch;
use super::firewall::Firewall;
use super::text::Writer;
use crate::failure::Failure;

/// The filter that the settings describe; `None`: they say nothing of it.
pub fn wanted(settings: &Settings, state: &NetworkState) -> Result<Option<FilterState>, Failure> {
    let Some(given) = &settings.filter else {
        return Ok(None);
    };
    let (name, text) = match given.starts_with(['/', '.']) {
        true => {
            let text = std::fs::read_to_string(given);
            let text = text.map_err(|error| Failure::new(format!("{given}: {error}")))?;
            (given.as_str(), text)
        }
        false => ("filter", given.replace(';', "\n")),
    };
    let mut firewall = Firewall::offline(settings, state.clone());
    batch::hold(&mut firewall, name, &text)?;
    let batch = firewall.batch.take().unwrap_or_default();
    if !batch.network.is_empty() {
        return Err(Failure::new(format!(
            "{name}: rules with setfib are no part of the filter: use --rule"
        )));
    }
    let made = change_filter(&FilterState::default(), &batch.filter, 1, &mut Vec::new());
    let filter = made.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    Ok(Some(filter))
}

/// Returns the changes of a running filter: the filter as it is to be, and lines that say so;
/// `None` if there are none.
pub fn difference(
    settings: &Settings,
    state: &NetworkState,
) -> Result<Option<(FilterState, String)>, Failure> {
    let Some(wanted) = wanted(settings, state)? else {
        return Ok(None);
    };
    let received = inquiry::filter(settings, true);
    let received = received.map_err(|error| Failure::new(error.to_string()))?;
    let tables = received.tables.into_iter().map(|table| FilterTable {
        name: table.head.name,
        revision: table.head.revision,
        entries: table.entries.unwrap_or_default(),
    });
    let now = FilterState {
        rules: received.rules,
        disabled_sets: received.disabled_sets,
        tables: tables.collect(),
    };
    if now.is_like(&wanted) {
        return Ok(None);
    }
    let text = lines(&now, &wanted, state);
    Ok(Some((wanted, text)))
}

fn lines(now: &FilterState, wanted: &FilterState, state: &NetworkState) -> String {
    let writer = Writer {
        state,
        has_names: false,
        is_compact: false,
        is_brief: false,
    };
    let of = |filter: &FilterState| -> Vec<String> {
        let rule = |rule: &FilterRule| {
            format!(
                "filter {:05} set {} {}",
                rule.number,
                rule.set,
                writer.text(rule)
            )
        };
        let table = |table: &FilterTable| {
            format!("table {} of {} prefixes", table.name, table.entries.len())
        };
        let rules = filter.rules.iter().map(rule);
        rules.chain(filter.tables.iter().map(table)).collect()
    };
    let (before, after) = (of(now), of(wanted));
    let gone = before.iter().filter(|line| !after.contains(line));
    let new = after.iter().filter(|line| !before.contains(line));
    let gone = gone.map(|line| format!("- {line}\n"));
    let text: String = gone.chain(new.map(|line| format!("+ {line}\n"))).collect();
    match text.is_empty() {
        true => "+ filter: sets, or prefixes of tables\n".to_owned(),
        false => text,
    }
}
