//! Requests of `ff_ioctl` about interfaces (netdevice(7)): a socket of the stack is asked about the
//! stack's interfaces, of which the kernel knows other addresses.

pub mod abi;

use std::net::{IpAddr, Ipv4Addr};

use libc::c_ulong;
use slipstack_attach::net::{Change, Interface};
use slipstack_posix::{Errno, OwnAddress};

/// Returns whether a request is about interfaces.
pub fn is_request(request: c_ulong) -> bool {
    (libc::SIOCGIFNAME..=libc::SIOCSIFTXQLEN).contains(&request)
}

/// struct ifreq: a name, and an address or a number.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    name: [u8; libc::IF_NAMESIZE],
    value: [u8; 24],
}

impl Request {
    /// An entry of SIOCGIFCONF.
    fn of(interface: &Interface, ip: Ipv4Addr) -> Request {
        let mut entry = Request {
            name: [0; libc::IF_NAMESIZE],
            value: [0; 24],
        };
        entry.set_name(&interface.name);
        entry.set_address(ip);
        entry
    }

    fn set_name(&mut self, name: &str) {
        let len = name.len().min(libc::IF_NAMESIZE - 1);
        self.name = [0; libc::IF_NAMESIZE];
        self.name[..len].copy_from_slice(&name.as_bytes()[..len]);
    }

    fn set_address(&mut self, ip: Ipv4Addr) {
        self.value[..16].fill(0);
        self.value[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        self.value[4..8].copy_from_slice(&ip.octets());
    }

    fn set_number(&mut self, number: i32) {
        self.value[..4].copy_from_slice(&number.to_ne_bytes());
    }

    fn number(&self) -> i32 {
        self.value
            .first_chunk()
            .map_or(0, |it| i32::from_ne_bytes(*it))
    }

    fn has_name(&self, name: &str) -> bool {
        let own = self.name.split(|byte| *byte == 0).next();
        own == Some(name.as_bytes())
    }

    /// Returns the interface with its name, or with its number among the ports in F-Stack's form.
    fn find<'a>(&self, interfaces: &'a [Interface]) -> Option<&'a Interface> {
        let by_name = interfaces.iter().find(|it| self.has_name(&it.name));
        let mut ports = interfaces.iter().filter(|it| it.is_port()).enumerate();
        by_name.or_else(|| {
            let found = ports.find(|(at, _)| self.has_name(&format!("f-stack-{at}")));
            found.map(|(_, interface)| interface)
        })
    }

    /// Returns the address that it is about: the one in it, if the interface has that, or else the
    /// interface's first.
    fn subject(&self, interface: &Interface) -> Result<OwnAddress, Errno> {
        let octets: [u8; 4] = [4, 5, 6, 7].map(|at| self.value[at]);
        let given = addresses(interface).find(|own| own.ip == IpAddr::from(octets));
        let subject = given.or_else(|| addresses(interface).next());
        subject.ok_or(Errno(libc::EADDRNOTAVAIL))
    }
}

/// The IPv4 addresses of an interface.
fn addresses(interface: &Interface) -> impl Iterator<Item = OwnAddress> {
    let v4 = interface.addresses.iter().filter(|(ip, _)| ip.is_ipv4());
    v4.map(|(ip, prefix)| OwnAddress {
        ip: *ip,
        prefix: *prefix,
        interface: interface.index,
        name: interface.name.clone(),
    })
}

/// The list of SIOCGIFCONF.
fn list(interfaces: &[Interface]) -> Vec<Request> {
    let mut entries = Vec::new();
    for interface in interfaces {
        let v4 = addresses(interface).filter_map(|own| plain(own.ip));
        entries.extend(v4.map(|ip| Request::of(interface, ip)));
    }
    entries
}

fn plain(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

fn flags_of(interface: &Interface) -> i16 {
    let usual = libc::IFF_BROADCAST | libc::IFF_MULTICAST;
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    (usual | if interface.is_down { 0 } else { up }) as i16
}

/// Answers a request in its place, or returns the change of the network that it wants.
///
/// # Errors
/// ENODEV: there is no such interface. EADDRNOTAVAIL: it has no address. EINVAL, as on FreeBSD: the
/// request is not one that is answered, or is one that sets an address and has no netmask.
fn answer(
    request: c_ulong,
    about: &mut Request,
    interfaces: &[Interface],
) -> Result<Option<Change>, Errno> {
    if request == libc::SIOCGIFNAME {
        let index = about.number().cast_unsigned();
        let mut all = interfaces.iter();
        let found = all.find(|it| index != 0 && it.index == index);
        about.set_name(&found.ok_or(Errno(libc::ENODEV))?.name);
        return Ok(None);
    }
    let interface = about.find(interfaces).ok_or(Errno(libc::ENODEV))?;
    match request {
        libc::SIOCGIFFLAGS => {
            about.value[..2].copy_from_slice(&flags_of(interface).to_ne_bytes());
        }
        libc::SIOCGIFADDR | libc::SIOCGIFDSTADDR => {
            let own = about.subject(interface)?;
            plain(own.ip)
                .into_iter()
                .for_each(|ip| about.set_address(ip));
        }
        libc::SIOCGIFNETMASK => {
            let mask = plain(about.subject(interface)?.netmask());
            mask.into_iter().for_each(|ip| about.set_address(ip));
        }
        libc::SIOCGIFBRDADDR => {
            let last = about.subject(interface)?.broadcast();
            about.set_address(last.unwrap_or(Ipv4Addr::UNSPECIFIED));
        }
        libc::SIOCGIFMTU => about.set_number(interface.mtu.into()),
        libc::SIOCGIFMETRIC => about.set_number(0),
        libc::SIOCGIFINDEX => about.set_number(interface.index.cast_signed()),
        libc::SIOCGIFHWADDR => {
            about.value[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
            about.value[2..8].copy_from_slice(&interface.mac);
        }
        request => return change(request, about, interface).map(Some),
    }
    Ok(None)
}

fn change(request: c_ulong, about: &Request, interface: &Interface) -> Result<Change, Errno> {
    let name = interface.name.clone();
    match request {
        libc::SIOCSIFFLAGS => Ok(Change::SetUp {
            name,
            is_up: about.number() & libc::IFF_UP != 0,
        }),
        libc::SIOCSIFMTU => Ok(Change::SetMtu {
            name,
            mtu: u16::try_from(about.number()).map_err(|_| Errno::EINVAL)?,
        }),
        libc::SIOCDIFADDR => Ok(Change::DelAddress {
            interface: name,
            ip: about.subject(interface)?.ip,
            prefix_len: None,
        }),
        // Groups are joined by IP_ADD_MEMBERSHIP; names are those of the configuration.
        libc::SIOCADDMULTI | libc::SIOCDELMULTI | libc::SIOCSIFNAME | libc::SIOCSIFMETRIC => {
            Err(Errno::EOPNOTSUPP)
        }
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces() -> Vec<Interface> {
        vec![Interface {
            name: "eth7".to_owned(),
            index: 3,
            mtu: 1500,
            addresses: vec![
                ("fd00::1".parse().unwrap(), 64),
                ("10.0.0.5".parse().unwrap(), 24),
                ("10.0.0.6".parse().unwrap(), 32),
            ],
            ..Interface::default()
        }]
    }

    fn about(name: &str) -> Request {
        let mut request = Request::of(&interfaces()[0], Ipv4Addr::UNSPECIFIED);
        request.set_name(name);
        request
    }

    fn address(request: &Request) -> [u8; 4] {
        [4, 5, 6, 7].map(|at| request.value[at])
    }

    #[test]
    fn an_interface_is_known_by_its_name_and_by_f_stacks() {
        for name in ["eth7", "f-stack-0"] {
            let mut request = about(name);
            assert_eq!(
                answer(libc::SIOCGIFADDR, &mut request, &interfaces()),
                Ok(None)
            );
            assert_eq!(address(&request), [10, 0, 0, 5]);
            assert_eq!(
                answer(libc::SIOCGIFNETMASK, &mut request, &interfaces()),
                Ok(None)
            );
            assert_eq!(address(&request), [255, 255, 255, 0]);
        }
        let mut other = about("eth8");
        let refused = answer(libc::SIOCGIFADDR, &mut other, &interfaces());
        assert_eq!(refused, Err(Errno(libc::ENODEV)));
        assert_eq!(list(&interfaces()).len(), 2);
    }

    #[test]
    fn a_request_names_which_of_several_addresses_it_is_about() {
        let mut request = about("eth7");
        request.set_address([10, 0, 0, 6].into());
        let removal = Change::DelAddress {
            interface: "eth7".to_owned(),
            ip: [10, 0, 0, 6].into(),
            prefix_len: None,
        };
        let asked = answer(libc::SIOCDIFADDR, &mut request, &interfaces());
        assert_eq!(asked, Ok(Some(removal)));
        assert_eq!(
            answer(libc::SIOCGIFNETMASK, &mut request, &interfaces()),
            Ok(None)
        );
        assert_eq!(address(&request), [255; 4]);
    }

    #[test]
    fn flag_and_mtu_requests_become_changes_and_obsolete_requests_are_refused() {
        let mut request = about("eth7");
        assert_eq!(
            answer(libc::SIOCGIFFLAGS, &mut request, &interfaces()),
            Ok(None)
        );
        assert_ne!(request.number() & libc::IFF_UP, 0);
        request.set_number(0);
        let down = Change::SetUp {
            name: "eth7".to_owned(),
            is_up: false,
        };
        let asked = answer(libc::SIOCSIFFLAGS, &mut request, &interfaces());
        assert_eq!(asked, Ok(Some(down)));
        for request in [libc::SIOCSIFADDR, libc::SIOCSIFNETMASK] {
            let refused = answer(request, &mut about("eth7"), &interfaces());
            assert_eq!(refused, Err(Errno::EINVAL));
        }
    }
}
