//! Heuristics that can be switched off one by one, to measure the effect of each (`make
//! heuristics`). Correctness depends on none of them.

/// The variable that names the rules which are not in force, separated by commas.
pub const WITHOUT: &str = "SLIPSTACK_WITHOUT";

/// A rule of thumb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A wait that finds nothing polls for some microseconds before it sleeps.
    Spin,
    /// Data sent for a batch of events leaves with its last answer.
    Holds,
    /// Connections stay on their engine while most end after few reads.
    Moves,
    /// A thread whose sleeps are short sleeps on a timer first.
    Naps,
}

impl Rule {
    pub const ALL: [Rule; 4] = [Rule::Spin, Rule::Holds, Rule::Moves, Rule::Naps];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Spin => "spin",
            Rule::Holds => "holds",
            Rule::Moves => "moves",
            Rule::Naps => "naps",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// The rules that are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristics(u16);

impl Default for Heuristics {
    /// All rules.
    fn default() -> Heuristics {
        Heuristics(u16::MAX)
    }
}

impl Heuristics {
    /// All rules but those named.
    ///
    /// # Errors
    /// A sentence, if there is no rule of a name.
    pub fn without(names: &str) -> Result<Heuristics, String> {
        let mut left = u16::MAX;
        for name in names.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let Some(rule) = Rule::ALL.into_iter().find(|rule| rule.name() == name) else {
                let known: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
                let known = known.join(", ");
                return Err(format!(
                    "{WITHOUT}: no rule is named {name}; there are {known}"
                ));
            };
            left &= !rule.bit();
        }
        Ok(Heuristics(left))
    }

    /// Reads the environment.
    ///
    /// # Errors
    /// As [`Heuristics::without`].
    pub fn of_environment() -> Result<Heuristics, String> {
        Heuristics::without(&std::env::var(WITHOUT).unwrap_or_default())
    }

    #[inline]
    #[must_use]
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & rule.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_heuristics_are_off_and_all_others_on() {
        let all = Heuristics::without("").unwrap();
        assert!(Rule::ALL.into_iter().all(|rule| all.has(rule)));
        let some = Heuristics::without("moves, naps").unwrap();
        for rule in Rule::ALL {
            assert_eq!(some.has(rule), !matches!(rule, Rule::Moves | Rule::Naps));
        }
        let error = Heuristics::without("move").unwrap_err();
        assert!(
            error.contains("named move;") && error.contains("holds, moves"),
            "{error}"
        );
    }
}
