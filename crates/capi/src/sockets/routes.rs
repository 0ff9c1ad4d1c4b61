//! `ff_route_ctl`: routes of IPv4 in the main table.

use std::net::{IpAddr, Ipv4Addr};

use slipstack_attach::net::{Change, Mode, RouteEntry, RouteKey};
use slipstack_posix::Errno;

/// `enum FF_ROUTE_CTL`.
const ADD: i32 = 0;
const DELETE: i32 = 1;
const CHANGE: i32 = 2;
/// `enum FF_ROUTE_FLAG`: one host, whatever the netmask says.
const HOST: i32 = 0;

/// The addresses of a call, those that were given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    pub to: Option<Ipv4Addr>,
    pub gateway: Option<Ipv4Addr>,
    pub mask: Option<Ipv4Addr>,
}

/// The change of the network that a call asks for.
///
/// # Errors
/// EINVAL: no such operation, no destination, a netmask with holes, or no gateway where one is
/// wanted.
pub fn change_of(operation: i32, flag: i32, given: Given) -> Result<Change, Errno> {
    let to = given.to.ok_or(Errno::EINVAL)?;
    let len = match given.mask.filter(|_| flag != HOST) {
        _ if flag == HOST => 32,
        Some(mask) => prefix_len(mask).ok_or(Errno::EINVAL)?,
        // FreeBSD's: a network of 0 is the default route, others are hosts.
        None if to.is_unspecified() => 0,
        None => 32,
    };
    let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
    let network = IpAddr::V4(Ipv4Addr::from_bits(to.to_bits() & mask));
    let mode = match operation {
        ADD => Mode::Add,
        CHANGE => Mode::Change,
        DELETE => {
            let via = given.gateway.map(IpAddr::V4);
            let key = RouteKey::to((network, len));
            return Ok(Change::DelRoute(RouteKey { via, ..key }));
        }
        _ => return Err(Errno::EINVAL),
    };
    let gateway = IpAddr::V4(given.gateway.ok_or(Errno::EINVAL)?);
    let route = RouteEntry {
        to: (network, len),
        ..RouteEntry::default_by(gateway)
    };
    Ok(Change::AddRoute { route, mode })
}

fn prefix_len(mask: Ipv4Addr) -> Option<u8> {
    let ones = mask.to_bits().leading_ones();
    (ones == mask.to_bits().count_ones()).then_some(ones as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(to: [u8; 4], gateway: Option<[u8; 4]>, mask: Option<[u8; 4]>) -> Given {
        Given {
            to: Some(to.into()),
            gateway: gateway.map(Ipv4Addr::from),
            mask: mask.map(Ipv4Addr::from),
        }
    }

    #[test]
    fn a_netmask_becomes_a_prefix_and_bits_beyond_it_are_cleared() {
        let gateway = [10, 0, 0, 1];
        let asked = given([192, 0, 2, 77], Some(gateway), Some([255, 255, 255, 0]));
        let route = RouteEntry {
            to: (IpAddr::from([192, 0, 2, 0]), 24),
            ..RouteEntry::default_by(gateway.into())
        };
        let mode = Mode::Add;
        assert_eq!(
            change_of(ADD, 1, asked),
            Ok(Change::AddRoute { route, mode })
        );
    }

    #[test]
    fn a_route_to_a_host_takes_no_netmask_and_a_default_route_needs_none() {
        let host = given([192, 0, 2, 77], None, Some([255, 0, 0, 0]));
        let key = RouteKey::to((IpAddr::from([192, 0, 2, 77]), 32));
        assert_eq!(change_of(DELETE, HOST, host), Ok(Change::DelRoute(key)));
        let all = given([0; 4], None, None);
        let key = RouteKey::to((IpAddr::from([0; 4]), 0));
        assert_eq!(change_of(DELETE, 1, all), Ok(Change::DelRoute(key)));
    }

    #[test]
    fn contradictory_or_incomplete_route_calls_are_refused() {
        let holes = given([10, 0, 0, 0], Some([10, 0, 0, 1]), Some([255, 0, 255, 0]));
        assert_eq!(change_of(ADD, 1, holes), Err(Errno::EINVAL));
        let none = given([10, 0, 0, 0], None, None);
        assert_eq!(change_of(ADD, 1, none), Err(Errno::EINVAL));
        assert_eq!(change_of(7, 1, none), Err(Errno::EINVAL));
        assert_eq!(change_of(ADD, 1, Given::default()), Err(Errno::EINVAL));
    }
}
