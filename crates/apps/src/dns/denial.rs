//! Proofs that something does not exist: NSEC (RFC 4035 3.1.3) and NSEC3 (RFC 5155 7.2).
//!
//! Each function adds what a response needs beside its SOA record, once each, and returns `false`
//! if it does not fit. In an unsigned zone, and for clients that want no proof, it adds nothing.

use super::builder::{Builder, Section};
use super::name;
use super::types::NSEC;
use super::zone::{Hashed, Node, Ordered, Proofs, RrSet, Zone};

/// Records that a proof consists of; at most three, and no one twice.
struct Proof<'a> {
    records: Vec<(&'a [u8], &'a RrSet)>,
}

impl<'a> Proof<'a> {
    fn new() -> Proof<'a> {
        Proof {
            records: Vec::with_capacity(3),
        }
    }

    fn add(&mut self, owner: &'a [u8], set: &'a RrSet) {
        if !self.records.iter().any(|(other, _)| *other == owner) {
            self.records.push((owner, set));
        }
    }

    fn put(self, out: &mut Builder) -> bool {
        let mut records = self.records.into_iter();
        records.all(|(owner, set)| out.put_set(Section::Authority, owner, set))
    }

    // NSEC.

    fn cover(&mut self, zone: &'a Zone, names: &'a Ordered, name: &[u8]) {
        let covering = names.covering(name);
        let found = covering.and_then(|owner| Some((owner, zone.node(owner)?.find(NSEC)?)));
        if let Some((owner, set)) = found {
            self.add(owner, set);
        }
    }

    // NSEC3.

    fn add_hashed(&mut self, chain: &'a Hashed, at: u32) {
        let link = chain.at(at);
        self.add(&link.owner, &link.set);
    }

    fn cover_hashed(&mut self, chain: &'a Hashed, name: &[u8]) {
        let link = chain.covering(name);
        self.add(&link.owner, &link.set);
    }

    /// The closest encloser that has a record, and that the name below it does not exist. Returns
    /// the encloser's length.
    fn closest_encloser(
        &mut self,
        zone: &'a Zone,
        chain: &'a Hashed,
        qname: &[u8],
        closest: &[u8],
    ) -> usize {
        // With opt-out, an insecure delegation and the empty names above it have none.
        let mut encloser = closest;
        loop {
            let hashed_at = zone.node(encloser).and_then(|node| node.hashed_at);
            if let Some(at) = hashed_at {
                self.add_hashed(chain, at);
                break;
            }
            match name::parent(encloser).filter(|above| above.len() >= zone.apex.len()) {
                Some(above) => encloser = above,
                None => break,
            }
        }
        self.cover_hashed(chain, name::next_closer(qname, encloser));
        encloser.len()
    }
}

/// Adds the records that `build` collects, if the query requests proofs. Returns `false` if they
/// did not fit.
fn prove<'z>(out: &mut Builder, build: impl FnOnce(&mut Proof<'z>)) -> bool {
    if !out.is_dnssec_ok {
        return true;
    }
    let mut proof = Proof::new();
    build(&mut proof);
    proof.put(out)
}

/// Proves that neither the name nor a wildcard for it exists.
pub fn no_name(out: &mut Builder, zone: &Zone, qname: &[u8], closest: &[u8]) -> bool {
    prove(out, |proof| match &zone.proofs {
        Proofs::Unsigned => {}
        Proofs::Ordered(names) => {
            proof.cover(zone, names, qname);
            proof.cover(zone, names, &name::wildcard(closest));
        }
        Proofs::Hashed(chain) => {
            let len = proof.closest_encloser(zone, chain, qname, closest);
            let encloser = &closest[closest.len() - len..];
            proof.cover_hashed(chain, &name::wildcard(encloser));
        }
    })
}

/// Proves that the name, which exists, has no set of the type; for a delegation: no DS.
pub fn no_data(out: &mut Builder, zone: &Zone, qname: &[u8], node: &Node) -> bool {
    prove(out, |proof| match &zone.proofs {
        Proofs::Unsigned => {}
        Proofs::Ordered(names) => proof.cover(zone, names, qname),
        Proofs::Hashed(chain) => match (node.hashed_at, name::parent(qname)) {
            (Some(at), _) => proof.add_hashed(chain, at),
            (None, Some(above)) if above.len() >= zone.apex.len() => {
                proof.closest_encloser(zone, chain, qname, above);
            }
            (None, _) => {}
        },
    })
}

/// Proves that the name covered by a wildcard does not exist itself.
pub fn wildcard_answer(out: &mut Builder, zone: &Zone, qname: &[u8], closest: &[u8]) -> bool {
    prove(out, |proof| match &zone.proofs {
        Proofs::Unsigned => {}
        Proofs::Ordered(names) => proof.cover(zone, names, qname),
        Proofs::Hashed(chain) => proof.cover_hashed(chain, name::next_closer(qname, closest)),
    })
}

/// Proves that the name does not exist and that its wildcard has no set of the type, also where the
/// wildcard is an empty name (RFC 4035 3.1.3.4). The name and its
/// closest encloser; the wildcard's name and node.
pub fn wildcard_no_data(
    out: &mut Builder,
    zone: &Zone,
    (qname, closest): (&[u8], &[u8]),
    (wildcard, node): (&[u8], &Node),
) -> bool {
    prove(out, |proof| match &zone.proofs {
        Proofs::Unsigned => {}
        Proofs::Ordered(names) => {
            proof.cover(zone, names, qname);
            proof.cover(zone, names, wildcard);
        }
        Proofs::Hashed(chain) => {
            proof.closest_encloser(zone, chain, qname, closest);
            match node.hashed_at {
                Some(at) => proof.add_hashed(chain, at),
                None => proof.cover_hashed(chain, wildcard),
            }
        }
    })
}
