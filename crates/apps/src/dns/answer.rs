//! Which records answer a question (RFC 1034 4.3.2, wildcards as of RFC 4592).

use super::message::{Builder, Query, Section, rcode};
use super::name;
use super::zone::{A, AAAA, ANY, CNAME, DNAME, DS, MX, NS, Node, RrSet, SOA, SRV, Zone, Zones};

/// Aliases that are followed.
const ALIASES_MAX: usize = 8;
const CLASS_IN: u16 = 1;
/// BADVERS (RFC 6891 9), its upper bits.
const BAD_VERSION: u8 = 1;

/// Where a search in a zone ends.
enum Found<'a> {
    Node(&'a Node),
    /// The name is an alias for another because of a DNAME above it.
    Redirected(&'a RrSet, Vec<u8>),
    /// Another zone's, whose name servers these are.
    Delegated(Vec<u8>, &'a RrSet),
    Nothing,
}

/// Answers a query in at most `max` bytes.
pub fn answer(zones: &Zones, query: &Query<'_>, max: usize) -> Vec<u8> {
    let mut out = Builder::new(query, max);
    if query.edns.is_some_and(|edns| edns.version != 0) {
        return out.finish(BAD_VERSION);
    }
    let qname = name::lower(query.qname);
    let zone = match query.qtype {
        DS => zones.find_parent(&qname),
        _ => zones.find(&qname),
    };
    let Some(zone) = zone.filter(|_| query.qclass == CLASS_IN) else {
        out.rcode = rcode::REFUSED;
        return out.finish(0);
    };
    out.is_authoritative = true;
    resolve(zones, zone, query, qname, &mut out);
    out.finish(0)
}

fn resolve<'a>(
    zones: &'a Zones,
    mut zone: &'a Zone,
    query: &Query<'_>,
    mut at: Vec<u8>,
    out: &mut Builder,
) {
    // The first name as it was asked for, so that it is a pointer to the question.
    let mut owner = query.qname.to_vec();
    let mut followed = Vec::new();
    for step in 0..ALIASES_MAX {
        let next = match search(zone, &at, query.qtype) {
            Found::Delegated(cut, servers) => return refer(zone, &cut, servers, step == 0, out),
            Found::Nothing => {
                out.rcode = rcode::NAME;
                return deny(zone, out);
            }
            Found::Redirected(set, target) => {
                let dname_owner = at[at.len() - dname_len(&at, set, zone)..].to_vec();
                put(out, Section::Answer, &dname_owner, set);
                let alias = [target.clone().into_boxed_slice()];
                if !out.put_set(Section::Answer, &owner, (CNAME, set.ttl), &alias) {
                    return out.truncate();
                }
                if query.qtype == CNAME || query.qtype == ANY {
                    return;
                }
                target
            }
            Found::Node(node) => match node.find(CNAME) {
                Some(set) if query.qtype != CNAME && query.qtype != ANY => {
                    put(out, Section::Answer, &owner, set);
                    set.rdata[0].to_vec()
                }
                _ => return put_node(zone, node, query.qtype, &owner, out),
            },
        };
        owner.clone_from(&next);
        followed.push(std::mem::replace(&mut at, name::lower(&next)));
        if followed.contains(&at) {
            return;
        }
        match zones.find(&at) {
            Some(other) => zone = other,
            None => return,
        }
    }
}

/// The length of the name that has this DNAME set, above `name`.
fn dname_len(name: &[u8], set: &RrSet, zone: &Zone) -> usize {
    let mut at = name::parent(name);
    while let Some(above) = at {
        let node = zone.node(above).and_then(|node| node.find(DNAME));
        if node.is_some_and(|found| std::ptr::eq(found, set)) {
            return above.len();
        }
        at = name::parent(above);
    }
    0
}

fn search<'a>(zone: &'a Zone, qname: &[u8], qtype: u16) -> Found<'a> {
    // From the apex down: the first cut or redirection counts.
    let mut above: Vec<&[u8]> = Vec::new();
    let mut at = Some(qname);
    while let Some(name) = at.filter(|name| name.len() >= zone.apex.len()) {
        above.push(name);
        at = name::parent(name);
    }
    let mut closest = zone.apex.as_slice();
    for name in above.iter().rev() {
        let Some(node) = zone.node(name) else { break };
        closest = name;
        let is_apex = *name == zone.apex;
        let is_cut_itself = *name == qname && qtype == DS;
        if let (false, false, Some(set)) = (is_apex, is_cut_itself, node.find(NS)) {
            return Found::Delegated(name.to_vec(), set);
        }
        if let (true, Some(set)) = (*name != qname, node.find(DNAME)) {
            let prefix = &qname[..qname.len() - name.len()];
            let target = [prefix, &set.rdata[0]].concat();
            return match target.len() > name::NAME_MAX {
                true => Found::Nothing,
                false => Found::Redirected(set, target),
            };
        }
        if *name == qname {
            return Found::Node(node);
        }
    }
    match zone.node(&name::wildcard(closest)) {
        Some(node) => Found::Node(node),
        None => Found::Nothing,
    }
}

fn put(out: &mut Builder, section: Section, owner: &[u8], set: &RrSet) {
    if !out.put_set(section, owner, (set.rtype, set.ttl), &set.rdata) {
        out.truncate();
    }
}

fn put_node(zone: &Zone, node: &Node, qtype: u16, owner: &[u8], out: &mut Builder) {
    let set = match qtype {
        // RFC 8482 4.1: one set of those that there are.
        ANY => node.sets.first(),
        qtype => node.find(qtype),
    };
    let Some(set) = set else {
        return deny(zone, out);
    };
    put(out, Section::Answer, owner, set);
    put_targets(zone, set, out);
}

/// The SOA record with the time that a denial is kept (RFC 2308 3).
fn deny(zone: &Zone, out: &mut Builder) {
    let soa = zone.node(&zone.apex).and_then(|apex| apex.find(SOA));
    let Some(soa) = soa else { return };
    let data = &soa.rdata[0];
    let minimum = data
        .last_chunk::<4>()
        .map_or(soa.ttl, |bytes| u32::from_be_bytes(*bytes));
    let ttl = soa.ttl.min(minimum);
    if !out.put_set(Section::Authority, &zone.apex, (SOA, ttl), &soa.rdata) {
        out.truncate();
    }
}

/// Names the servers of a zone below. Their addresses, where they are below the cut, belong to it
/// (RFC 9471).
fn refer(zone: &Zone, cut: &[u8], servers: &RrSet, is_first: bool, out: &mut Builder) {
    out.is_authoritative &= !is_first;
    put(out, Section::Authority, cut, servers);
    for server in &servers.rdata {
        let target = name::lower(server);
        let is_put = put_addresses(zone, &target, out);
        if !is_put && name::is_within(&target, cut) {
            out.truncate();
        }
    }
}

/// Addresses of what a set points to, as far as there is room.
fn put_targets(zone: &Zone, set: &RrSet, out: &mut Builder) {
    let skip = match set.rtype {
        NS => 0,
        MX => 2,
        SRV => 6,
        _ => return,
    };
    for data in &set.rdata {
        if let Some(target) = data.get(skip..) {
            put_addresses(zone, &name::lower(target), out);
        }
    }
}

/// `false`: not all of them fit.
fn put_addresses(zone: &Zone, target: &[u8], out: &mut Builder) -> bool {
    let Some(node) = zone.node(target) else {
        return true;
    };
    let sets = [A, AAAA].into_iter().filter_map(|rtype| node.find(rtype));
    sets.into_iter().all(|set| {
        out.put_set(
            Section::Additional,
            target,
            (set.rtype, set.ttl),
            &set.rdata,
        )
    })
}
