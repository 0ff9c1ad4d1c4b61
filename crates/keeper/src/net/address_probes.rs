//! Probes for addresses that are to be added: asks the link whether another station has them, and
//! looks for an answer in received frames.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::conflict::{Wanted, claim};

/// The addresses with their links, and the stations that claim them.
#[derive(Debug, Default)]
pub(super) struct AddressProbes {
    all: HashMap<(u16, IpAddr), Asked>,
}

#[derive(Debug)]
struct Asked {
    wanted: Wanted,
    owner: Option<[u8; 6]>,
    /// Changes that wait for the answer.
    askers: usize,
}

impl AddressProbes {
    pub fn add(&mut self, wanted: Wanted) {
        let asked = self.all.entry((wanted.link, wanted.ip));
        let asked = asked.or_insert(Asked {
            wanted,
            owner: None,
            askers: 0,
        });
        asked.askers += 1;
    }

    pub fn remove(&mut self, wanted: &Wanted) {
        let key = (wanted.link, wanted.ip);
        if let Some(asked) = self.all.get_mut(&key) {
            asked.askers -= 1;
            if asked.askers == 0 {
                self.all.remove(&key);
            }
        }
    }

    pub fn owner(&self, wanted: &Wanted) -> Option<[u8; 6]> {
        self.all.get(&(wanted.link, wanted.ip))?.owner
    }

    /// Looks for a claim in a frame that has come on a link.
    pub fn note(&mut self, frame: &[u8], link: u16) {
        if self.all.is_empty() {
            return;
        }
        if let Some((ip, station)) = claim(frame)
            && let Some(asked) = self.all.get_mut(&(link, ip))
            && asked.wanted.is_claimed(link, ip, station)
        {
            asked.owner = Some(station);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_wire::arp::ArpPacket;
    use slipstack_wire::ethernet::BROADCAST;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn arp(station: [u8; 6], sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let asked = ArpPacket::request(station, sender.into(), target.into());
        asked.frame_to(BROADCAST).into()
    }

    #[test]
    fn a_claim_counts_on_its_link_and_from_another_station_only() {
        let ip = [10, 0, 0, 9];
        let wanted = Wanted {
            link: 7,
            own: OWN,
            ip: ip.into(),
        };
        let other = [2, 0, 0, 0, 0, 9];
        let table = [
            ("another says so", arp(other, ip, [10, 0, 0, 1]), 7, true),
            ("another probes too", arp(other, [0; 4], ip), 7, true),
            (
                "another asks for it",
                arp(other, [10, 0, 0, 1], ip),
                7,
                false,
            ),
            ("on another link", arp(other, ip, [10, 0, 0, 1]), 8, false),
            ("our own probe", arp(OWN, [0; 4], ip), 7, false),
        ];
        for (what, frame, link, is_conflict) in table {
            let mut address_probes = AddressProbes::default();
            address_probes.add(wanted);
            address_probes.note(&frame, link);
            assert_eq!(
                address_probes.owner(&wanted).is_some(),
                is_conflict,
                "{what}"
            );
        }
    }

    #[test]
    fn an_address_is_resolved_until_the_last_waiting_packet_is_dropped() {
        let wanted = Wanted {
            link: 0,
            own: OWN,
            ip: [10, 0, 0, 9].into(),
        };
        let mut address_probes = AddressProbes::default();
        address_probes.add(wanted);
        address_probes.add(wanted);
        address_probes.remove(&wanted);
        assert!(!address_probes.all.is_empty());
        address_probes.remove(&wanted);
        assert!(address_probes.all.is_empty());
    }
}
