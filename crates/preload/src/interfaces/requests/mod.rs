//! ioctl requests about interfaces (netdevice(7)). Any internet socket of the kernel answers them;
//! the addresses of the stack's interface are added.

mod abi;

pub use abi::ask;

use std::net::{IpAddr, Ipv4Addr};

use slipstack_posix::OwnAddress;

use super::{Address, name_of, number_of};

/// Missing in the libc crate (linux/sockios.h).
const NAME: u64 = 0x8910;
const LIST: u64 = 0x8912;
const INDEX: u64 = 0x8933;
const ADDRESS: u64 = 0x8915;
const DESTINATION: u64 = 0x8917;
const BROADCAST: u64 = 0x8919;
const NETMASK: u64 = 0x891b;

/// Requests about interfaces, routes and neighbours (SIOC…).
pub fn is_request(request: u64) -> bool {
    (0x890b..0x89ff).contains(&request)
}

/// A struct ifreq: a name and an address.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    name: [u8; libc::IF_NAMESIZE],
    address: [u8; 24],
}

impl Request {
    fn new(own: &OwnAddress) -> Request {
        let mut name = [0; libc::IF_NAMESIZE];
        let len = own.name.len().min(name.len() - 1);
        name[..len].copy_from_slice(&own.name.as_bytes()[..len]);
        let address = [0; 24];
        let mut request = Request { name, address };
        request.set(own.ip);
        request
    }

    fn set(&mut self, ip: IpAddr) {
        let Address(bytes) = Address::new(ip, 0);
        self.address[..16].copy_from_slice(&bytes[..16]);
    }

    fn name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or(&[])
    }

    /// The number of an interface, which stands where an address does.
    fn index(&self) -> u32 {
        self.address
            .first_chunk()
            .map_or(0, |word| u32::from_ne_bytes(*word))
    }

    /// Fills in the number or the name of an interface that only the stack has, if that is
    /// requested.
    fn answer_by_stack(&mut self, request: u64) -> bool {
        match request {
            INDEX => {
                let Some(index) = number_of(self.name()) else {
                    return false;
                };
                self.address[..4].copy_from_slice(&index.to_ne_bytes());
                true
            }
            NAME => {
                let found = name_of(self.index());
                let Some(name) = found.filter(|name| name.len() < self.name.len()) else {
                    return false;
                };
                self.name = [0; libc::IF_NAMESIZE];
                self.name[..name.len()].copy_from_slice(name.as_bytes());
                true
            }
            _ => false,
        }
    }

    fn is_about(&self, own: &OwnAddress) -> bool {
        self.name() == own.name.as_bytes()
    }

    /// Returns the address in the program's request, if an interface has several (devinet_ioctl).
    fn given(&self) -> Option<IpAddr> {
        let family = u16::from_ne_bytes([self.address[0], self.address[1]]);
        let octets: [u8; 4] = self.address[4..8].try_into().ok()?;
        (i32::from(family) == libc::AF_INET).then(|| Ipv4Addr::from(octets).into())
    }

    /// Fills in the requested property of this address.
    fn answer(&mut self, request: u64, own: &OwnAddress) {
        self.set(match request {
            NETMASK => own.netmask(),
            BROADCAST => own.broadcast().unwrap_or(Ipv4Addr::UNSPECIFIED).into(),
            _ => own.ip,
        });
    }
}

/// Returns whether the request concerns one address.
fn is_about_address(request: u64) -> bool {
    matches!(request, ADDRESS | DESTINATION | BROADCAST | NETMASK)
}
