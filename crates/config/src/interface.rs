//! Further interfaces in an option's text: `eth1,ip=10.2.0.2/24,gw=10.2.0.1`, several separated by
//! semicolons.

use core::fmt;
use core::net::IpAddr;

use crate::addressing;
use crate::cidr::{Cidr, parse_address, parse_cidr};
use crate::vlan::ID_MAX;

/// Interfaces of a stack beside the first.
const FURTHER_MAX: usize = 15;
/// The table of the stack's own addresses.
const LOCAL_TABLE: u32 = 255;

/// A further interface, with the stack's addresses on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSpec {
    pub name: String,
    pub addresses: Vec<Cidr>,
    /// At most one of each family.
    pub gateways: Vec<IpAddr>,
    /// The routing table that its gateways are in; `None`: the main one if they are the first of
    /// their family, else one of its own.
    pub table: Option<u32>,
    /// The VLAN of its own link; `None`: untagged.
    pub vlan: Option<u16>,
}

pub(crate) fn parse_interfaces(text: &str) -> Result<Vec<InterfaceSpec>, String> {
    let specs = text.split(';').map(parse_interface);
    let specs: Vec<InterfaceSpec> = specs.collect::<Result<_, _>>()?;
    let has = |name: &str| specs.iter().filter(|spec| spec.name == name).count();
    if let Some(twice) = specs.iter().find(|spec| has(&spec.name) > 1) {
        return Err(format!(
            "interfaces that differ: {} is there twice",
            twice.name
        ));
    }
    if specs.len() > FURTHER_MAX {
        return Err(format!("at most {FURTHER_MAX} interfaces beside --if"));
    }
    Ok(specs)
}

pub(crate) fn check_interface(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    if (1..=15).contains(&text.len()) && text != "." && text != ".." && text.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(
            "the name of a network interface: 1 to 15 characters without `/`, `:` and spaces"
                .into(),
        )
    }
}

fn parse_interface(text: &str) -> Result<InterfaceSpec, String> {
    let syntax = || {
        "an interface with words such as in eth1,ip=10.2.0.2/24,gw=10.2.0.1 (ip=, gw=, table=, \
         vlan=)"
            .to_owned()
    };
    let mut words = text.split(',');
    let name = words.next().unwrap_or_default();
    check_interface(name)?;
    let mut spec = InterfaceSpec {
        name: name.to_owned(),
        addresses: Vec::new(),
        gateways: Vec::new(),
        table: None,
        vlan: None,
    };
    for word in words {
        match word.split_once('=').ok_or_else(syntax)? {
            ("ip", address) => spec.addresses.push(parse_cidr(address)?),
            ("gw", address) => spec.gateways.push(parse_address(address)?),
            ("table", id) => spec.table = Some(id.parse().map_err(|_| syntax())?),
            ("vlan", id) => spec.vlan = Some(id.parse().map_err(|_| syntax())?),
            _ => return Err(syntax()),
        }
    }
    check(&spec)?;
    Ok(spec)
}

fn check(spec: &InterfaceSpec) -> Result<(), String> {
    addressing::check("an interface", &spec.addresses, &spec.gateways)?;
    if [Some(0), Some(LOCAL_TABLE)].contains(&spec.table) {
        return Err("an interface whose table is not 0 and not 255".to_owned());
    }
    if spec.vlan.is_some_and(|id| !(1..=ID_MAX).contains(&id)) {
        return Err(format!("an interface in a VLAN from 1 to {ID_MAX}"));
    }
    Ok(())
}

impl fmt::Display for InterfaceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        addressing::write_words(f, &self.addresses, &self.gateways, self.table)?;
        if let Some(vlan) = self.vlan {
            write!(f, ",vlan={vlan}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_and_written() {
        for text in [
            "eth1",
            "eth1,ip=10.2.0.2/24",
            "eth1,ip=10.2.0.2/24,ip=fd00:2::2/64,gw=10.2.0.1,gw=fd00:2::1,table=9,vlan=7",
        ] {
            assert_eq!(parse_interface(text).unwrap().to_string(), text);
        }
        assert_eq!(
            parse_interfaces("eth1;eth2,ip=10.1.0.5/24").unwrap().len(),
            2
        );
    }

    #[test]
    fn invalid_interface_specs_are_refused() {
        for text in [
            "",
            "eth/1",
            "eth1;eth1",
            "eth1,gw=10.1.0.1",
            "eth1,ip=10.1.0.5/24,gw=10.2.0.1",
            "eth1,ip=10.1.0.5/24,gw=10.1.0.5",
            "eth1,ip=10.1.0.5/24,table=255",
            "eth1,ip=10.1.0.5/24,vlan=4095",
            "eth1,ip=10.1.0.5/24,color=red",
        ] {
            assert!(parse_interfaces(text).is_err(), "{text}");
        }
    }
}
