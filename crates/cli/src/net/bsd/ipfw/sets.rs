//! `set`: rules that are switched on and off together.

use slipstack_channel::control::net::{FILTER_SET_MAX, FilterChange};

use super::firewall::Firewall;
use crate::failure::Failure;
use crate::net::words::Words;
use crate::output::print;

impl Firewall<'_> {
    /// `set show|swap|move|disable|enable …`, or `set N COMMAND`.
    pub fn set_command(&mut self, mut words: Words<'_>) -> Result<(), Failure> {
        match words.peek() {
            Some("show") => {
                words.next();
                words.end()?;
                self.show_sets()
            }
            Some("swap") => {
                words.next();
                let sets = FilterChange::SwapSets(words.parsed("swap")?, words.parsed("swap")?);
                words.end()?;
                self.change(vec![sets], Vec::new())
            }
            Some("move") => {
                words.next();
                self.move_set(words)
            }
            Some("enable" | "disable") => self.enable(words),
            Some(_) => {
                let set: u8 = words.parsed("set")?;
                self.of_set(words, set)
            }
            None => Err(words.missing("show, swap, move, enable, disable or a number")),
        }
    }

    fn show_sets(&mut self) -> Result<(), Failure> {
        let disabled = self.filter()?.disabled_sets;
        let of = |is_disabled: bool| {
            let sets = (0..FILTER_SET_MAX).filter(|set| (disabled >> set & 1 == 1) == is_disabled);
            sets.map(|set| format!(" {set}")).collect::<String>()
        };
        if self.style.is_json {
            let (on, off): (Vec<u8>, Vec<u8>) =
                (0..FILTER_SET_MAX).partition(|set| disabled >> set & 1 == 0);
            let told = serde_json::json!({"enabled": on, "disabled": off});
            return print(&format!("{told}\n"));
        }
        let off = match of(true) {
            none if none.is_empty() => String::new(),
            sets => format!("disable{sets} "),
        };
        print(&format!("{off}enable{}\n", of(false)))
    }

    /// `move rule N to SET`, `move SET to SET`
    fn move_set(&mut self, mut words: Words<'_>) -> Result<(), Failure> {
        let is_rule = words.take("rule");
        let from: u32 = words.parsed("move")?;
        if !words.take("to") {
            return Err(words.missing("to"));
        }
        let to = words.parsed("to")?;
        words.end()?;
        let change = match (is_rule, u8::try_from(from)) {
            (true, _) => FilterChange::MoveRule { number: from, to },
            (false, Ok(from)) => FilterChange::MoveSet { from, to },
            (false, Err(_)) => return Err(words.wrong("set", &from.to_string())),
        };
        self.change(vec![change], Vec::new())
    }

    /// `disable N … enable N …`
    fn enable(&mut self, mut words: Words<'_>) -> Result<(), Failure> {
        let (mut enabled, mut disabled) = (0u32, 0u32);
        let mut is_on = true;
        while let Some(word) = words.next() {
            let set = match word {
                "enable" | "disable" => {
                    is_on = word == "enable";
                    continue;
                }
                set => set.parse::<u8>().ok().filter(|set| *set <= FILTER_SET_MAX),
            };
            let bit = 1 << set.ok_or_else(|| words.wrong("set", word))?;
            match is_on {
                true => enabled |= bit,
                false => disabled |= bit,
            }
        }
        if enabled == 0 && disabled == 0 {
            return Err(words.missing("the number of a set"));
        }
        let change = FilterChange::Enable { enabled, disabled };
        self.change(vec![change], Vec::new())
    }

    fn of_set(&mut self, mut words: Words<'_>, set: u8) -> Result<(), Failure> {
        if set > FILTER_SET_MAX {
            return Err(words.wrong("set", &set.to_string()));
        }
        match words.next() {
            Some("list") => self.list(words, Some(set)),
            Some("show") => {
                self.style.has_counts = true;
                self.list(words, Some(set))
            }
            Some("flush") => self.flush(words, Some(set)),
            Some("delete") if words.peek().is_none() => self.delete_set(set, true),
            Some("delete") => self.delete(words, Some(set)),
            Some("zero") => self.zero(words, Some(set), false),
            Some("resetlog") => self.zero(words, Some(set), true),
            Some("table") => Err(Failure::new("ipfw: tables are of no set: leave it out")),
            Some(other) => Err(words.unknown(other)),
            None => Err(words.missing("list, show, flush, delete, zero or resetlog")),
        }
    }
}
