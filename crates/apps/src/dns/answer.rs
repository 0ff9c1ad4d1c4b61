//! Selection of the records that answer a question (RFC 1034 4.3.2; wildcards: RFC 4592; DNAME:
//! RFC 6672; signed zones: RFC 4035 3.1, RFC 5155 7.2).

use super::builder::{Builder, Section};
use super::denial;
use super::message::{Query, UDP_MAX, rcode};
use super::name;
use super::types::{
    A, AAAA, ANY, AXFR, CLASS_ANY, CLASS_IN, CNAME, DNAME, DS, IXFR, MX, NS, RRSIG, SRV,
};
use super::zone::{Node, Proofs, RrSet, Zone, Zones};

/// Aliases that are followed.
const ALIASES_MAX: usize = 16;

/// Kinds of responses, which are limited in rate each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Positive,
    NoData,
    NoName,
    Referral,
    Error,
}

/// A response without the parts that differ between clients: id, EDNS, signature.
#[derive(Debug)]
pub struct Rendered {
    pub bytes: Vec<u8>,
    pub kind: Kind,
    /// Length of the suffix of the name that the response is about: all of it, or the name that
    /// covers all names below it: a wildcard's parent, a cut, the closest existing name.
    pub source_len: u8,
    pub rcode: u8,
}

/// End of a search in a zone.
enum Found<'a> {
    /// The node; of a wildcard, also its parent's name and the wildcard's own.
    Node(&'a Node, Option<(&'a [u8], Vec<u8>)>),
    /// The name is an alias for another because of a DNAME of this owner. `None`: that name would
    /// be too long.
    Redirected(&'a [u8], &'a RrSet, Option<Vec<u8>>),
    /// A delegation to another zone, with its name servers.
    Delegated(&'a [u8], &'a Node, &'a RrSet),
    /// Nothing; the name is below this one.
    Nothing(&'a [u8]),
}

/// Answers a query in at most `max` bytes.
pub fn render(zones: &Zones, query: &Query<'_>, max: usize) -> Rendered {
    let mut out = Builder::new(query, max);
    let qname = name::lower(query.qname);
    let kind = match find_zone(zones, query, &qname) {
        Ok(zone) => {
            // RFC 1034 3.7.1: an answer for any class is not authoritative.
            out.is_authoritative = query.qclass == CLASS_IN;
            Resolver {
                zone,
                query,
                out: &mut out,
                kind: Kind::Positive,
                source_len: qname.len(),
            }
            .resolve(&qname)
        }
        Err(code) => {
            out.rcode = code;
            (Kind::Error, 0)
        }
    };
    let (kind, source_len) = kind;
    if out.is_truncated() && max > UDP_MAX {
        // There is no transport that takes longer messages.
        out = Builder::new(query, max);
        out.rcode = rcode::SERVER_FAILURE;
    }
    Rendered {
        kind,
        source_len: source_len as u8,
        rcode: out.rcode,
        bytes: out.finish(),
    }
}

/// The zone to answer from, or the code with which it is refused.
fn find_zone<'a>(zones: &'a Zones, query: &Query<'_>, qname: &[u8]) -> Result<&'a Zone, u8> {
    let is_class = matches!(query.qclass, CLASS_IN | CLASS_ANY);
    let zone = zones
        .find_for(qname, query.qtype)
        .filter(|_| is_class)
        .ok_or(match query.qtype {
            AXFR | IXFR => rcode::NOT_AUTHORITATIVE,
            _ => rcode::REFUSED,
        })?;
    let zone = zone.zone.as_deref().ok_or(rcode::SERVER_FAILURE)?;
    match query.qtype {
        // RFC 5936 2.2.1: there is no zone of this name. Transfers of one are not answered here.
        AXFR | IXFR if *qname != *zone.apex => Err(rcode::NOT_AUTHORITATIVE),
        AXFR | IXFR => Err(rcode::REFUSED),
        _ => Ok(zone),
    }
}

struct Resolver<'a, 'q, 'o> {
    zone: &'a Zone,
    query: &'q Query<'q>,
    out: &'o mut Builder,
    kind: Kind,
    source_len: usize,
}

impl<'a> Resolver<'a, '_, '_> {
    fn resolve(mut self, qname: &[u8]) -> (Kind, usize) {
        let mut at = qname.to_vec();
        // The first name as in the question, so that it is a pointer to the question.
        let mut owner = self.query.qname.to_vec();
        let mut followed: Vec<Vec<u8>> = Vec::new();
        for step in 0..ALIASES_MAX {
            let Some(next) = self.step(step, &at, &owner) else {
                break;
            };
            owner.clone_from(&next);
            followed.push(std::mem::replace(&mut at, name::lower(&next)));
            if followed.contains(&at) || !name::is_within(&at, &self.zone.apex) {
                break;
            }
        }
        (self.kind, self.source_len)
    }

    /// Answers for one name; returns the next one if it is an alias.
    fn step(&mut self, step: usize, at: &[u8], owner: &[u8]) -> Option<Vec<u8>> {
        let zone = self.zone;
        match search(zone, at, self.query.qtype) {
            Found::Delegated(cut, node, servers) => {
                self.out.is_authoritative &= step > 0;
                self.kind = Kind::Referral;
                self.source_len = cut.len();
                self.refer(cut, node, servers);
                None
            }
            Found::Nothing(closest) => {
                self.out.rcode = rcode::NAME;
                self.kind = Kind::NoName;
                self.source_len = closest.len();
                self.deny();
                let is_proven = denial::no_name(self.out, zone, at, closest);
                self.require(is_proven);
                None
            }
            Found::Redirected(above, set, target) => self.redirect(owner, above, set, target),
            Found::Node(node, wildcard) => match Zone::alias(node, self.query.qtype) {
                Some(set) => {
                    self.answer(owner, set);
                    self.prove_wildcard(at, wildcard.as_ref());
                    Some(set.rdata[0].to_vec())
                }
                None => {
                    self.put_node(at, owner, node, wildcard.as_ref());
                    None
                }
            },
        }
    }

    fn answer(&mut self, owner: &[u8], set: &RrSet) {
        let is_put = self.out.put_set(Section::Answer, owner, set);
        self.require(is_put);
    }

    /// Marks the response as truncated if a required record did not fit.
    fn require(&mut self, is_put: bool) {
        if !is_put {
            self.out.truncate();
        }
    }

    fn redirect(
        &mut self,
        owner: &[u8],
        above: &[u8],
        set: &RrSet,
        target: Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        self.answer(above, set);
        let Some(target) = target else {
            // RFC 6672 2.2: YXDOMAIN.
            self.out.rcode = rcode::TOO_LONG;
            return None;
        };
        let alias: [Box<[u8]>; 1] = [target.clone().into()];
        let list = [(CNAME, &alias[..])];
        let is_put = self.out.put_all(Section::Answer, owner, set.ttl, &list);
        self.require(is_put);
        (self.query.qtype != CNAME).then_some(target)
    }

    /// A name that exists only by a wildcard is proven not to exist itself.
    fn prove_wildcard(&mut self, at: &[u8], wildcard: Option<&(&[u8], Vec<u8>)>) {
        if let Some((closest, _)) = wildcard {
            self.source_len = closest.len();
            let is_proven = denial::wildcard_answer(self.out, self.zone, at, closest);
            self.require(is_proven);
        }
    }

    fn put_node(
        &mut self,
        at: &[u8],
        owner: &[u8],
        node: &Node,
        wildcard: Option<&(&'a [u8], Vec<u8>)>,
    ) {
        let zone = self.zone;
        let found = match self.query.qtype {
            // RFC 8482 4.1: one set of those that there are.
            ANY => node.sets.first(),
            RRSIG => return self.put_signatures(at, owner, node, wildcard),
            qtype => node.find(qtype),
        };
        let Some(set) = found else {
            return self.put_no_data(at, node, wildcard);
        };
        self.answer(owner, set);
        self.prove_wildcard(at, wildcard);
        put_targets(zone, set, self.out);
    }

    fn put_no_data(&mut self, at: &[u8], node: &Node, wildcard: Option<&(&'a [u8], Vec<u8>)>) {
        self.kind = Kind::NoData;
        self.deny();
        let is_proven = match wildcard {
            None => denial::no_data(self.out, self.zone, at, node),
            Some((closest, own)) => {
                self.source_len = closest.len();
                denial::wildcard_no_data(self.out, self.zone, (at, closest), (own, node))
            }
        };
        self.require(is_proven);
    }

    /// All signatures of a name, which are sets of a kind of their own.
    fn put_signatures(
        &mut self,
        at: &[u8],
        owner: &[u8],
        node: &Node,
        wildcard: Option<&(&'a [u8], Vec<u8>)>,
    ) {
        if node.sets.iter().all(|set| set.sigs.is_empty()) {
            return self.put_no_data(at, node, wildcard);
        }
        for set in &node.sets {
            let list = [(RRSIG, &set.sigs[..])];
            let is_put = self.out.put_all(Section::Answer, owner, set.ttl, &list);
            self.require(is_put);
        }
        self.prove_wildcard(at, wildcard);
    }

    /// The SOA record with the time that a denial is kept (RFC 2308 3).
    fn deny(&mut self) {
        if let Some(soa) = self.zone.soa_set() {
            let ttl = soa.ttl.min(self.zone.soa.minimum);
            let apex = &self.zone.apex;
            let out = &mut self.out;
            let is_put = out.put_set_with_ttl(Section::Authority, apex, soa, ttl);
            self.require(is_put);
        }
    }

    /// Names the servers of a zone below. Their addresses, where they are below the cut, belong to
    /// it (RFC 9471).
    fn refer(&mut self, cut: &[u8], node: &Node, servers: &RrSet) {
        let is_put = self.out.put_set(Section::Authority, cut, servers);
        self.require(is_put);
        let is_wanted = self.out.is_dnssec_ok && !matches!(self.zone.proofs, Proofs::Unsigned);
        let is_proven = match node.find(DS) {
            Some(set) => !is_wanted || self.out.put_set(Section::Authority, cut, set),
            None => denial::no_data(self.out, self.zone, cut, node),
        };
        self.require(is_proven);
        let mut targets = Targets::new(self.zone);
        for server in &servers.rdata {
            let target = name::lower(server);
            let is_glue = name::is_within(&target, cut);
            if !targets.put(target, self.out) && is_glue {
                self.out.truncate();
            }
        }
        targets.sign(self.out);
    }
}

fn search<'a>(zone: &'a Zone, qname: &[u8], qtype: u16) -> Found<'a> {
    // From the apex down: the first cut or redirection counts.
    let mut above: Vec<&[u8]> = Vec::with_capacity(8);
    let mut at = Some(qname);
    while let Some(name) = at.filter(|name| name.len() >= zone.apex.len()) {
        above.push(name);
        at = name::parent(name);
    }
    let mut closest: &'a [u8] = &zone.apex;
    for name in above.iter().rev() {
        let Some((own, node)) = zone.entry(name) else {
            break;
        };
        closest = own;
        let is_cut_itself = *name == qname && qtype == DS;
        if let (false, Some(set)) = (*own == *zone.apex || is_cut_itself, node.find(NS)) {
            return Found::Delegated(own, node, set);
        }
        if *name == qname {
            return Found::Node(node, None);
        }
        if let Some(set) = node.find(DNAME) {
            let prefix = &qname[..qname.len() - name.len()];
            let target = [prefix, &set.rdata[0]].concat();
            let target = Some(target).filter(|target| target.len() <= name::NAME_MAX);
            return Found::Redirected(own, set, target);
        }
    }
    let wildcard = name::wildcard(closest);
    match zone.node(&wildcard) {
        Some(node) => Found::Node(node, Some((closest, wildcard))),
        None => Found::Nothing(closest),
    }
}

/// Adds the addresses of a record set's targets, as far as there is room.
fn put_targets(zone: &Zone, set: &RrSet, out: &mut Builder) {
    let skip = match set.rtype {
        NS => 0,
        MX => 2,
        SRV => 6,
        _ => return,
    };
    let mut targets = Targets::new(zone);
    for data in &set.rdata {
        if let Some(target) = data.get(skip..) {
            targets.put(name::lower(target), out);
        }
    }
    targets.sign(out);
}

/// Addresses in the additional section. RFC 4035 3.1.1: their signatures are left out first.
struct Targets<'a> {
    zone: &'a Zone,
    unsigned: Vec<(Vec<u8>, &'a RrSet)>,
}

impl<'a> Targets<'a> {
    fn new(zone: &'a Zone) -> Targets<'a> {
        Targets {
            zone,
            unsigned: Vec::new(),
        }
    }

    /// `false`: not all of them fit.
    fn put(&mut self, target: Vec<u8>, out: &mut Builder) -> bool {
        let Some(node) = self.zone.node(&target) else {
            return true;
        };
        let mut is_whole = true;
        for rtype in [A, AAAA] {
            let Some(set) = node.find(rtype) else {
                continue;
            };
            let list = [(rtype, &set.rdata[..])];
            let is_put = out.put_all(Section::Additional, &target, set.ttl, &list);
            is_whole &= is_put;
            if is_put && out.is_dnssec_ok && !set.sigs.is_empty() {
                self.unsigned.push((target.clone(), set));
            }
        }
        is_whole
    }

    fn sign(self, out: &mut Builder) {
        for (target, set) in self.unsigned {
            let list = [(RRSIG, &set.sigs[..])];
            out.put_all(Section::Additional, &target, set.ttl, &list);
        }
    }
}
