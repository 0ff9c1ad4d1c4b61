//! The network between the hosts: one broadcast domain, with a link out of each host.

use std::net::IpAddr;

use slipstack_stack::rng::Rng;
use slipstack_stack::{Instant, RxChecksum, RxMeta};

use crate::link::{DropReason, Link, LinkCounters, LinkParams, too_big};
use crate::nat::Nat;
use crate::vlan::{Tagging, Tags};

/// A frame's arrival at a host.
#[derive(Debug)]
pub struct Arrival {
    pub to: usize,
    pub bytes: Vec<u8>,
    pub meta: RxMeta,
}

/// The sender of a frame on a link, and how it was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: usize,
    to: Recipients,
    has_partial_checksum: bool,
    is_super_frame: bool,
}

#[derive(Clone, Copy, Debug)]
enum Recipients {
    One(usize),
    AllOthers,
}

/// Frames that have left their links.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    taken_off: u64,
    /// As `taken_off`, counted once for each recipient.
    copies: u64,
    handed_out: u64,
    /// For a mapping that the NAT has forgotten.
    refused_by_nat: u64,
}

#[derive(Debug)]
pub struct Network {
    links: Vec<Link<Sent>>,
    /// The link that each host's frames take.
    link_of: Vec<usize>,
    macs: Vec<[u8; 6]>,
    /// Arrived and not yet handed out.
    arrived: Vec<Arrival>,
    tally: Tally,
    /// Sends an error from this address for packets that are too big for a link; without it such
    /// frames are lost silently.
    pub router: Option<IpAddr>,
    nat: Option<Nat>,
    tagging: Option<Tagging>,
    /// The number of the link by which frames come to the hosts' stacks.
    link: u16,
    seeds: Rng,
}

impl Network {
    /// A link of its own out of each host, all with the same parameters.
    pub fn new(params: LinkParams, mut rng: Rng, macs: Vec<[u8; 6]>) -> Self {
        let links = macs
            .iter()
            .map(|_| Link::new(params, fork(&mut rng)))
            .collect();
        Self {
            links,
            link_of: (0..macs.len()).collect(),
            macs,
            arrived: Vec::new(),
            tally: Tally::default(),
            router: None,
            nat: None,
            tagging: None,
            link: 0,
            seeds: rng,
        }
    }

    /// Another host, with a link like that out of the first; its station.
    pub fn add_host(&mut self, mac: [u8; 6]) -> usize {
        let params = self.links.first().map(|link| *link.params());
        let link = Link::new(params.unwrap_or_default(), fork(&mut self.seeds));
        self.link_of.push(self.links.len());
        self.links.push(link);
        self.macs.push(mac);
        self.macs.len() - 1
    }

    /// Frames come to the hosts' stacks by this link.
    pub fn set_link(&mut self, link: u16) {
        self.link = link;
    }

    /// From now on frames carry tags.
    pub fn tag(&mut self, tags: Tags) {
        self.tagging = Some(Tagging::new(tags, fork(&mut self.seeds)));
    }

    /// Frames that interfaces left because they were not of their VLAN.
    pub fn foreign(&self) -> u64 {
        self.tagging.as_ref().map_or(0, |tagging| tagging.foreign)
    }

    /// Puts a NAT between a host and the others.
    pub fn put_nat_before(&mut self, host: usize) {
        self.nat = Some(Nat::new(host));
    }

    /// The NAT forgets its mappings.
    pub fn rebind_nat(&mut self) {
        if let Some(nat) = &mut self.nat {
            nat.rebind();
        }
    }

    /// The link out of a host.
    fn link(&mut self, host: usize) -> &mut Link<Sent> {
        &mut self.links[self.link_of[host]]
    }

    /// `host` shares the link out of `owner`: a bottleneck for both.
    pub fn share_link(&mut self, host: usize, owner: usize) {
        self.link_of[host] = self.link_of[owner];
    }

    /// For all links, from now on.
    pub fn set_params(&mut self, params: LinkParams) {
        for link in &mut self.links {
            link.change(params);
        }
    }

    /// For the link out of one host, from now on.
    pub fn set_params_of(&mut self, host: usize, params: LinkParams) {
        self.link(host).change(params);
    }

    /// For all links, later.
    pub fn change_at(&mut self, at: Instant, params: LinkParams) {
        for link in &mut self.links {
            link.change_at(at, params);
        }
    }

    pub fn params_of(&self, host: usize) -> &LinkParams {
        self.links[self.link_of[host]].params()
    }

    pub fn counters_of(&self, host: usize) -> &LinkCounters {
        self.links[self.link_of[host]].counters()
    }

    /// Cuts or heals all links.
    pub fn set_cut(&mut self, is_cut: bool) {
        for link in &mut self.links {
            link.change(LinkParams {
                is_cut,
                ..*link.params()
            });
        }
    }

    /// Frames on their way.
    pub fn flying_len(&self) -> usize {
        self.arrived.len() + self.links.iter().map(Link::len).sum::<usize>()
    }

    pub fn next_arrival(&self) -> Option<Instant> {
        self.links.iter().filter_map(Link::next_deadline).min()
    }

    /// Takes the next frame that has arrived by `now`.
    pub fn pop_arrival(&mut self, now: Instant) -> Option<Arrival> {
        if self.arrived.is_empty() {
            self.receive(now);
        }
        let arrival = self.arrived.pop()?;
        self.tally.handed_out += 1;
        Some(arrival)
    }

    /// Returns whether every frame is on its way, handed out, or lost for a reason that is counted.
    pub fn balance(&self) -> Result<(), String> {
        for (index, link) in self.links.iter().enumerate() {
            link.balance()
                .map_err(|why| format!("link {index}: {why}"))?;
        }
        let delivered: u64 = self.links.iter().map(|l| l.counters().delivered).sum();
        let Tally {
            taken_off,
            copies,
            handed_out,
            refused_by_nat,
        } = self.tally;
        if delivered != taken_off {
            return Err(format!("{delivered} frames delivered, {taken_off} taken"));
        }
        let known = handed_out + refused_by_nat + self.foreign() + self.arrived.len() as u64;
        if copies != known {
            return Err(format!("{copies} frames left links, {known} are known"));
        }
        Ok(())
    }

    /// Arrivals that hosts were given.
    pub fn handed_out(&self) -> u64 {
        self.tally.handed_out
    }

    /// Frames that links have damaged.
    pub fn corrupted(&self) -> u64 {
        let links = self.links.iter();
        links.map(|link| link.counters().corrupted).sum()
    }

    /// Takes one frame off the link where it is due first, for all its recipients.
    fn receive(&mut self, now: Instant) {
        let due = |link: &Link<Sent>| link.next_deadline().unwrap_or(Instant::FAR_FUTURE);
        let Some(first) = (0..self.links.len()).min_by_key(|i| due(&self.links[*i])) else {
            return;
        };
        let Some(delivery) = self.links[first].poll(now) else {
            return;
        };
        self.tally.taken_off += 1;
        let Sent {
            from,
            to,
            has_partial_checksum,
            is_super_frame,
        } = delivery.tag;
        let checksum = match has_partial_checksum {
            true => RxChecksum::Partial,
            false => RxChecksum::Unknown,
        };
        let meta = RxMeta {
            checksum,
            gso: is_super_frame,
            link: self.link,
            ..RxMeta::UNKNOWN
        };
        match to {
            Recipients::One(to) => self.arrive(to, delivery.bytes, meta),
            Recipients::AllOthers => {
                for to in (0..self.macs.len()).rev().filter(|to| *to != from) {
                    self.arrive(to, delivery.bytes.clone(), meta);
                }
            }
        }
    }

    fn arrive(&mut self, to: usize, bytes: Vec<u8>, meta: RxMeta) {
        self.tally.copies += 1;
        let bytes = match &mut self.tagging {
            Some(tagging) => tagging.take_off(bytes),
            None => Some(bytes),
        };
        let Some(mut bytes) = bytes else {
            return;
        };
        let nat = self.nat.as_ref().filter(|nat| nat.host == to);
        if nat.is_none_or(|nat| nat.inwards(&mut bytes)) {
            self.arrived.push(Arrival { to, bytes, meta });
        } else {
            self.tally.refused_by_nat += 1;
        }
    }

    /// Sends a frame from a host. A frame to an unknown address is lost.
    pub fn send(&mut self, now: Instant, from: usize, bytes: &[u8], meta: RxMeta) {
        let Some(to) = self.recipients(from, bytes) else {
            return;
        };
        let sent = Sent {
            from,
            to,
            has_partial_checksum: meta.checksum == RxChecksum::Partial,
            is_super_frame: meta.gso,
        };
        let mut bytes = bytes.to_vec();
        if let Some(nat) = self.nat.as_ref().filter(|nat| nat.host == from) {
            nat.outwards(&mut bytes);
        }
        let answer = self.too_big_answer(from, &bytes);
        if let Some(tagging) = &mut self.tagging {
            let stray = tagging.stray(&bytes);
            bytes = tagging.put_on(&bytes);
            if let Some(stray) = stray {
                self.link(from).offer(now, stray, sent).ok();
            }
        }
        // Lost frames are counted by the link.
        let outcome = self.link(from).offer(now, bytes, sent);
        if let (Err(DropReason::TooBig), Some(answer), Recipients::One(next)) =
            (outcome, answer, to)
        {
            let sent = Sent {
                from: next,
                to: Recipients::One(from),
                has_partial_checksum: false,
                is_super_frame: false,
            };
            self.link(next).offer(now, answer, sent).ok();
        }
    }

    /// Returns the router's answer to a frame that does not fit the sender's link.
    fn too_big_answer(&mut self, from: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let router = self.router?;
        let link = self.link(from);
        let mtu = u16::try_from(link.params().mtu).unwrap_or(u16::MAX);
        link.is_too_big(bytes)
            .then(|| too_big::answer(bytes, mtu, router))?
    }

    fn recipients(&self, from: usize, bytes: &[u8]) -> Option<Recipients> {
        let dst = bytes.first_chunk::<6>()?;
        if dst[0] & 1 == 1 {
            return Some(Recipients::AllOthers);
        }
        let to = self.macs.iter().position(|mac| mac == dst)?;
        (to != from).then_some(Recipients::One(to))
    }
}

/// A generator of its own for each link, so that one does not disturb another.
fn fork(rng: &mut Rng) -> Rng {
    let mut seed = [0; 32];
    for chunk in seed.chunks_exact_mut(4) {
        chunk.copy_from_slice(&rng.next_u32().to_le_bytes());
    }
    Rng::new(&seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];

    fn network(params: LinkParams) -> Network {
        Network::new(params, Rng::new(&[3; 32]), MACS.to_vec())
    }

    fn frame_to(dst: [u8; 6], len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&dst);
        frame
    }

    fn arrivals(network: &mut Network, now: Instant) -> Vec<usize> {
        std::iter::from_fn(|| network.pop_arrival(now))
            .map(|arrival| arrival.to)
            .collect()
    }

    #[test]
    fn unicast_reaches_one_and_broadcast_all_others() {
        let mut network = network(LinkParams {
            delay_ns: 100,
            ..LinkParams::default()
        });
        network.send(Instant::ZERO, 0, &frame_to(MACS[2], 60), RxMeta::UNKNOWN);
        network.send(Instant::ZERO, 0, &frame_to([0xff; 6], 60), RxMeta::UNKNOWN);
        network.send(
            Instant::ZERO,
            0,
            &frame_to([2, 9, 9, 9, 9, 9], 60),
            RxMeta::UNKNOWN,
        );
        assert_eq!(arrivals(&mut network, Instant(99)), []);
        assert_eq!(arrivals(&mut network, Instant(100)), [2, 1, 2]);
        assert_eq!(network.flying_len(), 0);
    }

    #[test]
    fn the_audit_finds_a_frame_lost_without_a_reason() {
        let spoils: [fn(&mut Network); 4] = [
            |network| drop(network.links[0].poll(Instant::FAR_FUTURE)),
            |network| network.tally.handed_out += 1,
            |network| network.tally.refused_by_nat += 1,
            |network| {
                network.receive(Instant::FAR_FUTURE);
                network.arrived.clear();
            },
        ];
        for spoil in spoils {
            let mut network = network(LinkParams::default());
            let frame = frame_to(MACS[2], 60);
            network.send(Instant::ZERO, 0, &frame, RxMeta::UNKNOWN);
            assert_eq!(network.balance(), Ok(()));
            spoil(&mut network);
            assert!(network.balance().is_err());
        }
    }

    #[test]
    fn hosts_that_share_a_link_share_its_rate_and_others_do_not() {
        let params = LinkParams {
            rate: 8_000_000,
            ..LinkParams::default()
        };
        let mut network = network(params);
        network.share_link(1, 0);
        network.send(Instant::ZERO, 0, &frame_to(MACS[2], 1000), RxMeta::UNKNOWN);
        network.send(Instant::ZERO, 1, &frame_to(MACS[2], 1000), RxMeta::UNKNOWN);
        network.send(Instant::ZERO, 2, &frame_to(MACS[0], 1000), RxMeta::UNKNOWN);
        assert_eq!(arrivals(&mut network, Instant(1_000_000)), [2, 0]);
        assert_eq!(arrivals(&mut network, Instant(2_000_000)), [2]);
    }
}
