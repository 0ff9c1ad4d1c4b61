//! Addresses and gateways of an interface or a VLAN in an option: `ip=`, `gw=` and `table=`.

use core::fmt;
use core::net::IpAddr;

use crate::cidr::Cidr;

/// Addresses of one interface or VLAN at most.
const ADDRESSES_MAX: usize = 256;

/// Checks the number of addresses, and that each gateway is in one of their networks and the only
/// one of its family. `what` begins the sentence: "a VLAN".
pub fn check(what: &str, addresses: &[Cidr], gateways: &[IpAddr]) -> Result<(), String> {
    if addresses.len() > ADDRESSES_MAX {
        return Err(format!("{what} with at most {ADDRESSES_MAX} addresses"));
    }
    for (at, gateway) in gateways.iter().enumerate() {
        let is_family = |other: &IpAddr| other.is_ipv4() == gateway.is_ipv4();
        if gateways[..at].iter().any(is_family) {
            return Err(format!("{what} with at most one gateway of each family"));
        }
        let mut own = addresses.iter();
        if !own.any(|ip| ip.contains(*gateway) && ip.address != *gateway) {
            return Err(format!(
                "{what} in one of whose networks the gateway {gateway} is"
            ));
        }
    }
    Ok(())
}

/// Writes the words as they are read.
pub fn write_words(
    f: &mut fmt::Formatter<'_>,
    addresses: &[Cidr],
    gateways: &[IpAddr],
    table: Option<u32>,
) -> fmt::Result {
    for address in addresses {
        write!(f, ",ip={address}")?;
    }
    for gateway in gateways {
        write!(f, ",gw={gateway}")?;
    }
    match table {
        Some(table) => write!(f, ",table={table}"),
        None => Ok(()),
    }
}
