//! BPF programs that choose a socket of a SO_REUSEPORT group (reuseport_select_sock()).
//!
//! The result of a classic program is the number of a member; one beyond the last leaves the choice
//! to the hash.
//! Members may be sockets of other stacks: the order of the group is decided outside.

use alloc::vec::Vec;
use core::net::SocketAddr;

use slipstack_terms::{Beside, run_classic};

use super::Udp;
use super::extended::{self, Answer, Asked};
use super::input::hash_of;
use crate::chooser::{Chooser, ChooserCode};
use crate::effects::{DatagramIn, Effects};
use crate::ids::UdpId;
use crate::network_layer::Cx;

/// The receiver that a BPF program has chosen for a datagram.
pub(super) enum Chosen {
    Here(UdpId),
    /// Datagram that has been handed to another stack.
    Elsewhere,
    /// The program drops it.
    Nowhere,
}

impl Udp {
    /// Returns whether a group of the port has a program.
    pub fn has_choosers(&self, port: u16) -> bool {
        self.choosers.iter().any(|(local, _)| local.port() == port)
    }

    /// Sets the programs of all groups on a port, by the addresses that they are bound to.
    pub fn set_choosers(&mut self, port: u16, choosers: Vec<(SocketAddr, Chooser)>) {
        self.choosers.retain(|(local, _)| local.port() != port);
        self.choosers.extend(choosers);
    }

    /// The datagrams that come until this is called with `None` have been chosen for the socket of
    /// this rank elsewhere.
    pub fn expect(&mut self, rank: Option<u64>) {
        self.expected = rank;
    }

    /// Asks the program of the group of `taker`, which the hash has found. `None`: there is none,
    /// or it leaves the choice to the hash.
    #[cold]
    pub(super) fn choose(
        &self,
        taker: UdpId,
        datagram: &DatagramIn<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Option<Chosen> {
        let socket = self.find(taker)?;
        let is_in_group = socket.options.reuse_port && socket.remote.is_none();
        let bound = socket.bound;
        let mut choosers = self.choosers.iter().filter(|_| is_in_group);
        let (_, chooser) = choosers.find(|(local, _)| *local == bound)?;
        if let Some(rank) = self.expected {
            return self.find_ranked(bound, rank).map(Chosen::Here);
        }
        let member = match self.ask(chooser, bound, datagram, (cx, fx)) {
            Answer::Selected(member) => member,
            Answer::Any => return None,
            Answer::Dropped => return Some(Chosen::Nowhere),
        };
        if let Some(id) = self.find_ranked(bound, member.rank) {
            return Some(Chosen::Here(id));
        }
        let is_taken = fx.chosen_datagram(member, datagram);
        is_taken.then_some(Chosen::Elsewhere)
    }

    /// Runs the program of a group over a datagram, or over the first of those that are joined.
    fn ask(
        &self,
        chooser: &Chooser,
        bound: SocketAddr,
        datagram: &DatagramIn<'_>,
        (cx, fx): (&mut Cx<'_>, &mut impl Effects),
    ) -> Answer {
        let size = datagram
            .segment
            .map_or(usize::MAX, |size| size.get().into());
        let payload = &datagram.payload[..datagram.payload.len().min(size)];
        let members = &chooser.members;
        let code = match &chooser.code {
            ChooserCode::Classic(code) => code,
            ChooserCode::Extended(program) => {
                let asked = Asked {
                    datagram,
                    payload,
                    bound,
                    hash: hash_of(&self.key, datagram.from) as u32,
                };
                return extended::ask(program, members, &asked, cx.rng, fx);
            }
        };
        let mut beside = |asked| {
            Some(match asked {
                Beside::Cpu => fx.processor(),
                Beside::Random => cx.rng.below(u32::MAX),
            })
        };
        let number = run_classic(code, payload, &mut beside);
        match members.get(number as usize) {
            Some(member) => Answer::Selected(*member),
            None => Answer::Any,
        }
    }

    /// Returns the socket of a group with this rank.
    fn find_ranked(&self, bound: SocketAddr, rank: u64) -> Option<UdpId> {
        let indices = self.ports.get(&bound.port())?;
        indices.iter().find_map(|&index| {
            let slot = &self.slots[index as usize];
            let socket = slot.socket.as_ref()?;
            let is_it = socket.bound == bound && socket.options.socket.rank == rank;
            is_it.then(|| UdpId::new(index, slot.generation))
        })
    }
}
