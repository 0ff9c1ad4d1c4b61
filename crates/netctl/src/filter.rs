//! The packet filter: rules in order, and changes of them.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Rules of one filter.
pub const FILTER_RULES_MAX: usize = 4096;
/// Distance of a rule without a number from the last one.
const STEP: u32 = 100;
/// The greatest number; the one above it is the rule for everything else.
const NUMBER_MAX: u32 = 65_534;

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterAction {
    Allow,
    Deny,
    Count,
    SkipTo(u32),
    /// RST for what is TCP.
    Reset,
    Unreach(UnreachCode),
}

/// Which ICMP error the sender gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnreachCode {
    Net,
    Host,
    Port,
    Prohibited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterDirection {
    In,
    Out,
}

/// Segments of TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterPart {
    Established,
    Setup,
}

/// One end of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterEnd {
    /// With `is_me` everybody's if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nets: Vec<(IpAddr, u8)>,
    /// The stack's own addresses, whatever they are.
    #[serde(skip_serializing_if = "is_false")]
    pub is_me: bool,
    /// Everybody else.
    #[serde(skip_serializing_if = "is_false")]
    pub is_not: bool,
    /// From and to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<(u16, u16)>,
    #[serde(skip_serializing_if = "is_false")]
    pub is_not_ports: bool,
}

fn is_false(it: &bool) -> bool {
    !it
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterRule {
    /// Given by the keeper: tells a rule from all others, for its counts.
    pub id: u64,
    /// 0 in a change: behind the last one.
    pub number: u32,
    pub action: FilterAction,
    /// IP protocol number.
    pub protocol: Option<u8>,
    pub is_v6: Option<bool>,
    pub from: FilterEnd,
    pub to: FilterEnd,
    pub direction: Option<FilterDirection>,
    /// 0 = the device's own link.
    pub vlan: Option<u16>,
    pub part: Option<FilterPart>,
}

/// A change of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterChange {
    /// Behind the others of its number.
    Add(FilterRule),
    /// All of this number.
    Delete(u32),
    /// All.
    Flush,
}

/// Why a change was refused, with its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    Number(usize),
    NotFound(usize),
    TooMany(usize),
    Backwards(usize),
}

impl FilterError {
    pub fn at(self) -> usize {
        match self {
            FilterError::Number(at)
            | FilterError::NotFound(at)
            | FilterError::TooMany(at)
            | FilterError::Backwards(at) => at,
        }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::Number(_) => write!(f, "a rule's number is from 1 to {NUMBER_MAX}"),
            FilterError::NotFound(_) => f.write_str("there is no rule of this number"),
            FilterError::TooMany(_) => write!(f, "there are {FILTER_RULES_MAX} rules, no more fit"),
            FilterError::Backwards(_) => {
                f.write_str("skipto goes forward: to a greater number than the rule's own")
            }
        }
    }
}

impl std::error::Error for FilterError {}

/// The rules after all of the changes; `id` is that of the first new one. Adds the numbers of new rules to `numbers`.
///
/// # Errors
/// The first change that cannot be made.
pub fn change_filter(
    rules: &[FilterRule],
    changes: &[FilterChange],
    mut id: u64,
    numbers: &mut Vec<u32>,
) -> Result<Vec<FilterRule>, FilterError> {
    let mut next = rules.to_vec();
    for (at, change) in changes.iter().enumerate() {
        match change {
            FilterChange::Flush => next.clear(),
            FilterChange::Delete(number) => {
                let before = next.len();
                next.retain(|rule| rule.number != *number);
                if next.len() == before {
                    return Err(FilterError::NotFound(at));
                }
            }
            FilterChange::Add(rule) => {
                let last = next.last().map_or(0, |rule| rule.number);
                let number = match rule.number {
                    0 => (last / STEP + 1) * STEP,
                    number => number,
                };
                if !(1..=NUMBER_MAX).contains(&number) {
                    return Err(FilterError::Number(at));
                }
                if matches!(rule.action, FilterAction::SkipTo(to) if to <= number) {
                    return Err(FilterError::Backwards(at));
                }
                if next.len() >= FILTER_RULES_MAX {
                    return Err(FilterError::TooMany(at));
                }
                let place = next.partition_point(|known| known.number <= number);
                let rule = FilterRule {
                    id,
                    number,
                    ..rule.clone()
                };
                id += 1;
                numbers.push(number);
                next.insert(place, rule);
            }
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(number: u32, action: FilterAction) -> FilterRule {
        FilterRule {
            id: 0,
            number,
            action,
            protocol: None,
            is_v6: None,
            from: FilterEnd::default(),
            to: FilterEnd::default(),
            direction: None,
            vlan: None,
            part: None,
        }
    }

    fn numbers(rules: &[FilterRule]) -> Vec<(u32, u64)> {
        rules.iter().map(|rule| (rule.number, rule.id)).collect()
    }

    #[test]
    fn rules_stand_in_order_and_changes_are_made_whole() {
        let add = |number| FilterChange::Add(rule(number, FilterAction::Deny));
        let mut given = Vec::new();
        let rules = change_filter(&[], &[add(200), add(0), add(100), add(200)], 7, &mut given);
        let rules = rules.unwrap();
        assert_eq!(numbers(&rules), [(100, 9), (200, 7), (200, 10), (300, 8)]);
        assert_eq!(given, [200, 300, 100, 200]);
        let text = serde_json::to_string(&rules).unwrap();
        assert_eq!(
            serde_json::from_str::<Vec<FilterRule>>(&text).unwrap(),
            rules
        );
        let mut change = |changes: &[FilterChange]| change_filter(&rules, changes, 20, &mut given);
        let left = change(&[FilterChange::Delete(200), add(250)]).unwrap();
        assert_eq!(numbers(&left), [(100, 9), (250, 20), (300, 8)]);
        assert_eq!(change(&[FilterChange::Flush]).unwrap(), []);
        let back = FilterChange::Add(rule(500, FilterAction::SkipTo(500)));
        let wrong = [
            (FilterChange::Delete(150), FilterError::NotFound(1)),
            (add(65_535), FilterError::Number(1)),
            (back, FilterError::Backwards(1)),
        ];
        for (wrong, why) in wrong {
            assert_eq!(change(&[add(400), wrong]), Err(why));
        }
    }
}
