//! Catalog zones: a zone that lists the zones which a secondary is to have (RFC 9432).

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::name;
use super::policy::Policy;
use super::types::{PTR, TXT};
use super::zone::{Zone, Zones};

/// RFC 9432 4.1: the version of the format, as the data of a TXT record.
const VERSION: &[u8] = b"\x012";

/// Updates the zones to the list of the catalog with this apex: new ones come from the catalog's
/// primaries, those no longer listed are removed. Configured zones stay.
///
/// # Errors
/// One sentence: the zone is no catalog; nothing is changed.
pub fn follow(zones: &mut Zones, apex: &[u8]) -> Result<(), &'static str> {
    let Some(served) = zones.at(apex) else {
        return Ok(());
    };
    let policy = Arc::clone(&served.policy);
    let Some(zone) = served.zone.clone().filter(|_| policy.is_catalog) else {
        return Ok(());
    };
    let members = members(&zone)?;
    zones
        .retain(|name, policy| policy.member_of.as_deref() != Some(apex) || members.contains(name));
    for member in members {
        if zones.at(&member).is_none() {
            let policy = policy_of(&member, apex, &policy);
            zones.set(&member, None, Arc::new(policy));
        }
    }
    Ok(())
}

fn members(zone: &Zone) -> Result<HashSet<Vec<u8>>, &'static str> {
    let version = [b"\x07version", &zone.apex[..]].concat();
    let version = zone.node(&version).and_then(|node| node.find(TXT));
    if version.is_none_or(|set| set.rdata.len() != 1 || *set.rdata[0] != *VERSION) {
        return Err("its version is not 2 (RFC 9432 4.1); its zones stay as they are");
    }
    let list = [b"\x05zones", &zone.apex[..]].concat();
    let listed = zone.records().filter(|record| {
        record.rtype == PTR && name::parent(record.owner) == Some(list.as_slice())
    });
    Ok(listed.map(|record| name::lower(record.data)).collect())
}

fn policy_of(member: &[u8], apex: &[u8], catalog: &Policy) -> Policy {
    let text = name::text(member);
    // A name may contain anything, including paths to other folders.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let copy = catalog.file.as_ref().filter(|_| text.chars().all(is_plain));
    let copy: Option<PathBuf> = copy.map(|file| file.with_file_name(format!("{text}zone")));
    Policy {
        origin: text,
        file: copy,
        is_catalog: false,
        member_of: Some(apex.to_vec()),
        ..catalog.clone()
    }
}
