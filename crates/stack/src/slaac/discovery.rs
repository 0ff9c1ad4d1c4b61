//! Router discovery of several interfaces, each on its own link.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use slipstack_wire::LinkId;

use super::{Action, Slaac, ranked};
use crate::config::SlaacConfig;
use crate::time::Instant;
use slipstack_terms::Learnt;

/// Router discovery on all links of a stack.
#[derive(Debug)]
pub(crate) struct Discovery {
    config: SlaacConfig,
    /// The first port's own in front.
    links: Vec<Slaac>,
}

impl Discovery {
    /// Begins on each link, or goes on where [`Discovery::image`] has it.
    pub fn new(config: &SlaacConfig, links: impl Iterator<Item = LinkId>, now: Instant) -> Self {
        let mut discovery = Discovery {
            config: config.clone(),
            links: Vec::new(),
        };
        discovery.set_links(links, now);
        // Only links that are there at the start go on from the image; later ones start afresh.
        discovery.config.image = Vec::new();
        discovery
    }

    /// Asks on these links from now on, and on no other.
    pub fn set_links(&mut self, links: impl Iterator<Item = LinkId>, now: Instant) {
        let before = core::mem::take(&mut self.links);
        let mut before: Vec<Option<Slaac>> = before.into_iter().map(Some).collect();
        for link in links {
            let mut known = before.iter_mut();
            let known = known.find(|it| it.as_ref().is_some_and(|it| it.link == link));
            let slaac = known.and_then(Option::take).unwrap_or_else(|| {
                let image = find_image(&self.config.image, link);
                Slaac::new(&self.config, link, image, now)
            });
            self.links.push(slaac);
        }
    }

    pub fn on(&mut self, link: LinkId) -> Option<&mut Slaac> {
        self.links.iter_mut().find(|it| it.link == link)
    }

    /// Returns whether a probe is one of ours that came back.
    pub fn is_own_probe(&self, ip: Ipv6Addr, nonce: Option<[u8; 6]>) -> bool {
        self.links.iter().any(|it| it.is_own_probe(ip, nonce))
    }

    /// Addresses whose solicited-node groups are joined, with their links.
    pub fn heard(&self) -> impl Iterator<Item = (Ipv6Addr, u16)> + '_ {
        let links = self.links.iter();
        links.flat_map(|it| it.heard().map(|ip| (ip, it.link.0)))
    }

    /// Removes expired state, and returns due messages with their links.
    pub fn on_time(&mut self, now: Instant, actions: &mut Vec<(LinkId, Action)>) {
        for it in &mut self.links {
            let mut own = Vec::new();
            it.on_time(now, &mut own);
            actions.extend(own.into_iter().map(|action| (it.link, action)));
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.links.iter().filter_map(Slaac::next_deadline).min()
    }

    pub fn is_settled(&self) -> bool {
        self.links.iter().all(Slaac::is_settled)
    }

    /// Returns the configuration that holds now.
    pub fn learnt(&self, now: Instant) -> Learnt {
        let mut all = Learnt::default();
        for it in &self.links {
            let learnt = it.learnt(now);
            all.addresses.extend(learnt.addresses);
            all.networks.extend(learnt.networks);
            all.redirects.extend(learnt.redirects);
            match it.link.0 {
                0 => all.mtu = learnt.mtu,
                link => all.further_mtus.extend(learnt.mtu.map(|mtu| (link, mtu))),
            }
            all.links.extend(learnt.links);
        }
        let routers = self.links.iter().flat_map(|it| it.routers(now));
        all.routers = ranked(routers.collect());
        all
    }

    /// Returns the images of all links, each behind its number and its length.
    pub fn image(&self) -> Vec<u64> {
        let mut out = Vec::new();
        for it in &self.links {
            let image = it.image();
            out.extend([it.link.0.into(), image.len() as u64]);
            out.extend(image);
        }
        out
    }
}

/// Returns the image of one link, empty if there is none.
fn find_image(mut images: &[u64], link: LinkId) -> &[u64] {
    while let [number, len, rest @ ..] = images {
        let len = usize::try_from(*len).unwrap_or(usize::MAX).min(rest.len());
        let (image, others) = rest.split_at(len);
        if *number == u64::from(link.0) {
            return image;
        }
        images = others;
    }
    &[]
}
