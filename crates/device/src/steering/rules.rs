//! Rules that choose an engine for each new flow of a port, in place of the hash. The eBPF programs
//! apply them (`bpf/rules.rs`) and store each choice in a map. This file has the rules and look-ups
//! of the stored choices.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use slipstack_mem::PrivateFd;

use super::row::{ROWS_MAX, Row};
use super::{Flow, SLOTS_MAX, Steering, key_of, layout, slot_bit};
use crate::bpf::rules::{Chooser, RuleCode};
use crate::bpf::{sys, user};
use crate::error::DeviceError;

/// Flows whose choice is remembered. Of more, those that were silent for longest are forgotten:
/// they go by the hash, and from there to their engine.
const FLOWS_MAX: u32 = 1 << 18;

/// A rule that chooses by the first frame of a flow.
#[derive(Debug)]
pub enum Rule {
    /// The engines of the port by turns.
    Turns,
    /// The engine of the first row that has the sender; the hash where there is none.
    Table(Vec<Row>),
    /// The engine that a program of the user's answers ([`Rule::of_program`]).
    Program(OwnedFd),
}

impl Rule {
    /// The program in an object file: a socket filter that answers the number of an engine, modulo
    /// how many the port has, or a negative number for the hash.
    ///
    /// # Errors
    /// One sentence, with the verifier's words if it refuses the program.
    pub fn of_program(path: &Path) -> Result<Rule, DeviceError> {
        user::load(path).map(Rule::Program)
    }
}

/// The memory of a rule, and for the keeper the rule.
#[derive(Debug)]
pub(super) struct Chosen {
    flows: PrivateFd,
    rule: Option<Kept>,
}

/// A rule as it is kept for the programs.
#[derive(Debug)]
enum Kept {
    Turns,
    Table(Vec<Row>),
    /// The array that the program is asked through.
    Program(PrivateFd),
}

impl Chosen {
    pub(super) fn create(rule: Rule) -> io::Result<Chosen> {
        let flows = sys::create_map(
            "slip_chosen",
            sys::MAP_LRU_HASH,
            sys::KEY_LEN as u32,
            sys::SLOT_LEN,
            FLOWS_MAX,
            0,
        )?;
        let rule = match rule {
            Rule::Turns => Kept::Turns,
            Rule::Table(mut rows) => {
                rows.truncate(ROWS_MAX);
                // The narrowest network is asked first.
                rows.sort_by_key(|row| core::cmp::Reverse(row.prefix_len));
                Kept::Table(rows)
            }
            Rule::Program(program) => {
                let array = sys::create_map("slip_rule", sys::MAP_PROGRAMS, 4, 4, 1, 0)?;
                sys::update_fd(array.as_fd(), 0, program.as_fd())?;
                Kept::Program(array.into())
            }
        };
        Ok(Chosen {
            flows: flows.into(),
            rule: Some(rule),
        })
    }

    /// A rule as the programs are made of it; `None`: an engine's view.
    pub(super) fn chooser(&self) -> Option<Chooser<'_>> {
        Some(Chooser {
            rule: match self.rule.as_ref()? {
                Kept::Turns => RuleCode::Turns,
                Kept::Table(rows) => RuleCode::Table(rows),
                Kept::Program(array) => RuleCode::Program(array.as_fd()),
            },
            flows: self.flows.as_fd(),
        })
    }
}

impl Steering {
    /// As an engine's view ([`Steering::from_fds`]) that knows what a rule has chosen, from what
    /// [`Steering::chosen_fd`] gave.
    #[must_use]
    pub fn with_chosen(mut self, flows: OwnedFd) -> Steering {
        let flows = flows.into();
        self.chosen = Some(Chosen { flows, rule: None });
        self
    }

    /// A descriptor of the flows that a rule has chosen for, to look them up; `None`: there is no
    /// such rule.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn chosen_fd(&self) -> Result<Option<OwnedFd>, DeviceError> {
        let flows = self
            .chosen
            .as_ref()
            .map(|it| sys::read_only(it.flows.as_fd()));
        flows.transpose().map_err(|source| {
            let doing = "making read-only handles of the steering tables";
            DeviceError::system(doing, "CAP_SYS_ADMIN", source)
        })
    }

    /// The rule as the programs are made of it.
    pub(crate) fn chooser(&self) -> Option<Chooser<'_>> {
        self.chosen.as_ref()?.chooser()
    }

    /// Descriptors that have to be held so that the rule stays in force.
    pub(crate) fn rule_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let chosen = self.chosen.iter();
        chosen.flat_map(|chosen| {
            let array = match &chosen.rule {
                Some(Kept::Program(array)) => Some(array.as_fd()),
                _ => None,
            };
            [Some(chosen.flows.as_fd()), array].into_iter().flatten()
        })
    }

    /// The slot that a rule has chosen for a flow of a group, if it is alive.
    pub(super) fn find_chosen(&self, flow: &Flow) -> Option<u16> {
        let chosen = self.chosen.as_ref()?;
        let slot = sys::lookup(chosen.flows.as_fd(), &key_of(flow)).ok()?;
        let slot = slot as u16 & (SLOTS_MAX as u16 - 1);
        self.is_alive(slot).then_some(slot)
    }

    /// Writes the members of a group down for the rules that count them.
    pub(super) fn set_members(&self, group: u8, slots: &[u16]) -> Result<(), DeviceError> {
        let table = self.writable()?;
        let at = layout::MEMBERS + usize::from(group) * layout::MEMBERS_LEN;
        let mut bits = [0u8; SLOTS_MAX / 8];
        for (place, slot) in slots.iter().enumerate() {
            let (byte, bit) = slot_bit(*slot);
            bits[byte] |= bit;
            table.u8(at + layout::MEMBERS_LIST + place, *slot as u8);
        }
        for (place, byte) in bits.into_iter().enumerate() {
            table.u8(at + place, byte);
        }
        table.u8(at + layout::MEMBERS_COUNT, slots.len() as u8);
        Ok(())
    }
}
