//! VLANs in an option's text: `10,ip=10.10.10.5/24,gw=10.10.10.1`, several of them separated by
//! semicolons.

use core::fmt;
use core::net::IpAddr;

use crate::addressing;
use crate::cidr::{Cidr, parse_address, parse_cidr};
use crate::interface::check_interface;

/// VLANs of a device at most: as many as F-Stack takes, and the one that the device's own link may
/// be in.
const VLANS_MAX: usize = 129;
/// IEEE 802.1Q 9.6: 4095 is reserved.
pub(crate) const ID_MAX: u16 = 4094;
/// IEEE 802.1Q 9.6: a priority has three bits.
const PRIORITY_MAX: u8 = 7;
/// Every IPv4 link takes packets of this size (RFC 791).
const MTU_MIN: u16 = 68;
/// The tables that every stack has of its own: default, main, local.
const FIRST_RESERVED: u32 = 253;
const LAST_RESERVED: u32 = 255;

/// A VLAN with the stack's addresses in it; without addresses it is the VLAN of the device's own
/// link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanSpec {
    pub id: u16,
    /// The VLAN that it is within.
    pub within: Option<u16>,
    pub addresses: Vec<Cidr>,
    /// At most one of each family.
    pub gateways: Vec<IpAddr>,
    /// The routing table that its gateways are in; `None`: the one of its number.
    pub table: Option<u32>,
    pub mtu: Option<u16>,
    /// Tags of the VLAN, or of the VLAN that it is within, are a provider's (802.1ad).
    pub is_provider: bool,
    /// The priority in its tags.
    pub priority: u8,
    /// The interface that it is of; `None`: that of `--if`.
    pub interface: Option<String>,
}

impl VlanSpec {
    /// Returns whether it is the VLAN of the device's own link, whose addresses are those of
    /// `--ip`.
    pub fn is_own_link(&self) -> bool {
        self.addresses.is_empty()
    }

    /// The routing table of its gateways.
    pub fn table(&self) -> u32 {
        self.table.unwrap_or(self.id.into())
    }
}

pub(crate) fn parse_vlans(text: &str) -> Result<Vec<VlanSpec>, String> {
    let specs: Vec<VlanSpec> = text.split(';').map(parse_vlan).collect::<Result<_, _>>()?;
    let key = |it: &VlanSpec| (it.id, it.within, it.interface.clone());
    let is_same = |a: &VlanSpec, b: &VlanSpec| key(a) == key(b);
    let has = |spec| specs.iter().filter(|it| is_same(it, spec)).count();
    if let Some(twice) = specs.iter().find(|spec| has(spec) > 1) {
        return Err(format!("VLANs that differ: {} is there twice", twice.id));
    }
    if specs.iter().filter(|spec| spec.is_own_link()).count() > 1 {
        return Err("several VLANs only where all but one have ip=ADDRESS/LENGTH".to_owned());
    }
    let is_other_outer = |inner: &VlanSpec| {
        let is_outer = |it: &&VlanSpec| {
            Some(it.id) == inner.within && it.within.is_none() && it.interface == inner.interface
        };
        let outer = specs.iter().find(is_outer);
        outer.is_some_and(|outer| inner.is_provider && !outer.is_provider)
    };
    if let Some(inner) = specs.iter().find(|spec| is_other_outer(spec)) {
        let outer = inner.within.unwrap_or(0);
        return Err(format!(
            "one kind of tags of VLAN {outer}: proto=802.1ad there and with {outer}.{}",
            inner.id
        ));
    }
    let is_within_own = |inner: &VlanSpec| {
        let mut own = specs.iter().filter(|it| it.is_own_link());
        inner.interface.is_none() && own.any(|own| Some(own.id) == inner.within)
    };
    if specs.iter().any(is_within_own) {
        return Err("VLANs within others than the one that --ip is in".to_owned());
    }
    if specs.len() > VLANS_MAX {
        return Err(format!("at most {VLANS_MAX} VLANs"));
    }
    Ok(specs)
}

fn parse_vlan(text: &str) -> Result<VlanSpec, String> {
    let syntax = || {
        format!(
            "a VLAN from 1 to {ID_MAX}, alone or with words such as in \
             10,ip=10.10.10.5/24,gw=10.10.10.1 (ip=, gw=, table=, mtu=, \
             proto=, pcp=, if=), or one within a VLAN as in 10.20,ip=10.20.0.5/24"
        )
    };
    let mut words = text.split(',');
    let (within, id) = words.next().and_then(parse_ids).ok_or_else(syntax)?;
    let mut spec = VlanSpec {
        id,
        within,
        addresses: Vec::new(),
        gateways: Vec::new(),
        table: None,
        mtu: None,
        is_provider: false,
        priority: 0,
        interface: None,
    };
    for word in words {
        match word.split_once('=').ok_or_else(syntax)? {
            ("ip", address) => spec.addresses.push(parse_cidr(address)?),
            ("gw", address) => spec.gateways.push(parse_address(address)?),
            ("table", id) => spec.table = Some(id.parse().map_err(|_| syntax())?),
            ("if", name) => {
                check_interface(name)?;
                spec.interface = Some(name.to_owned());
            }
            ("proto", "802.1ad") => spec.is_provider = true,
            ("proto", "802.1Q" | "802.1q") => spec.is_provider = false,
            ("pcp", priority) => {
                let priority: Option<u8> = priority.parse().ok();
                spec.priority = priority
                    .filter(|it| *it <= PRIORITY_MAX)
                    .ok_or_else(syntax)?;
            }
            ("mtu", mtu) => spec.mtu = Some(mtu.parse().map_err(|_| syntax())?),
            _ => return Err(syntax()),
        }
    }
    check(&spec)?;
    Ok(spec)
}

/// The number of a VLAN, before it that of the VLAN that it is within: `10.20`.
fn parse_ids(text: &str) -> Option<(Option<u16>, u16)> {
    let number = |text: &str| {
        let id = text.parse().ok();
        id.filter(|id| (1..=ID_MAX).contains(id))
    };
    match text.split_once('.') {
        Some((outer, inner)) => Some((Some(number(outer)?), number(inner)?)),
        None => Some((None, number(text)?)),
    }
}

fn check(spec: &VlanSpec) -> Result<(), String> {
    addressing::check("a VLAN", &spec.addresses, &spec.gateways)?;
    let is_bare = spec.gateways.is_empty() && spec.table.is_none() && spec.mtu.is_none();
    let is_bare = is_bare && spec.interface.is_none() && !spec.is_provider && spec.priority == 0;
    let is_bare = is_bare && spec.within.is_none();
    if spec.addresses.is_empty() && !is_bare {
        return Err("a VLAN with ip=ADDRESS/LENGTH where it has other words".to_owned());
    }
    let (first, last) = (FIRST_RESERVED, LAST_RESERVED);
    if spec.within.is_some() && spec.table.is_none() && !spec.gateways.is_empty() {
        return Err("a VLAN within a VLAN with table=NUMBER: the table of its gateways".to_owned());
    }
    let is_reserved = spec.table.is_none() && (first..=last).contains(&u32::from(spec.id));
    if is_reserved && !spec.gateways.is_empty() {
        return Err(format!(
            "a VLAN with table=NUMBER: the tables {first} to {last} are not those of VLANs"
        ));
    }
    if [Some(0), Some(LAST_RESERVED)].contains(&spec.table) {
        return Err("a VLAN whose table is not 0 and not 255".to_owned());
    }
    if spec.mtu.is_some_and(|mtu| mtu < MTU_MIN) {
        return Err(format!("a VLAN with an MTU of at least {MTU_MIN}"));
    }
    Ok(())
}

impl fmt::Display for VlanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.within {
            write!(f, "{outer}.")?;
        }
        write!(f, "{}", self.id)?;
        addressing::write_words(f, &self.addresses, &self.gateways, self.table)?;
        if let Some(mtu) = self.mtu {
            write!(f, ",mtu={mtu}")?;
        }
        if self.is_provider {
            f.write_str(",proto=802.1ad")?;
        }
        if self.priority != 0 {
            write!(f, ",pcp={}", self.priority)?;
        }
        if let Some(name) = &self.interface {
            write!(f, ",if={name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_are_read_and_written() {
        for text in [
            "7",
            "10,ip=10.10.10.5/24,ip=110.110.10.1/32,gw=10.10.10.1",
            "20,ip=10.10.20.5/24,ip=fd00:20::5/64,gw=10.10.20.1,gw=fd00:20::1,table=254,mtu=1400",
            "10,ip=10.10.10.5/24,if=eth1",
            "10,ip=10.10.10.5/24,proto=802.1ad,pcp=5",
            "10.20,ip=10.10.20.5/24,gw=10.10.20.1,table=9,proto=802.1ad",
        ] {
            let vlan = parse_vlan(text).unwrap();
            assert_eq!(vlan.to_string(), text);
        }
        assert_eq!(parse_vlans("7;10,ip=10.1.0.5/24").unwrap().len(), 2);
    }

    #[test]
    fn invalid_vlan_specs_are_refused() {
        for text in [
            "",
            "0",
            "4095",
            "7;8",
            "7;7,ip=10.1.0.5/24",
            "7,gw=10.1.0.1",
            "7,ip=10.1.0.5/24,gw=10.2.0.1",
            "7,ip=10.1.0.5/24,gw=10.1.0.5",
            "254,ip=10.1.0.5/24,gw=10.1.0.1",
            "7,ip=10.1.0.5/24,mtu=60",
            "7,ip=10.1.0.5/24,color=red",
            "7,if=eth1",
            "7,pcp=3",
            "7.8",
            "7.8.9,ip=10.1.0.5/24",
            "7.4095,ip=10.1.0.5/24",
            "7.8,ip=10.1.0.5/24,gw=10.1.0.1",
            "7.8,ip=10.1.0.5/24;7.8,ip=10.2.0.5/24",
            "7,ip=10.1.0.5/24;7.8,ip=10.2.0.5/24,proto=802.1ad",
            "7;7.8,ip=10.2.0.5/24",
            "7,ip=10.1.0.5/24,pcp=8",
            "7,ip=10.1.0.5/24,proto=802.3",
            "7,ip=10.1.0.5/24,if=eth1;7,ip=10.2.0.5/24,if=eth1",
        ] {
            assert!(parse_vlans(text).is_err(), "{text}");
        }
    }
}
