//! Lists of interfaces: libc's and the kernel's, with the stack's addresses beside the kernel's.

pub mod abi;
mod families;
mod requests;

use std::net::IpAddr;

use slipstack_posix::OwnAddress;

use crate::process;
use crate::thread::InCall;

pub use requests::{ask, is_request};

/// Returns the stack's addresses for lists.
#[cold]
fn own_addresses() -> Vec<OwnAddress> {
    let Some(process) = process::activate() else {
        return Vec::new();
    };
    let _in_call = InCall::enter();
    process.own_addresses()
}

/// As [`own_addresses`], for a request on `fd`: a socket is in the network namespace in which it
/// was made, wherever the thread is.
#[cold]
fn own_addresses_at(fd: i32) -> Vec<OwnAddress> {
    let Some(process) = process::activate() else {
        return Vec::new();
    };
    let _in_call = InCall::enter();
    process.own_addresses_at(fd)
}

/// The number of an interface that the stack alone has: a VLAN of the device.
#[cold]
fn number_of(name: &[u8]) -> Option<u32> {
    let process = process::activate()?;
    let _in_call = InCall::enter();
    process.interface_named(name)
}

/// The name of an interface that the stack alone has.
#[cold]
fn name_of(index: u32) -> Option<String> {
    let process = process::activate()?;
    let _in_call = InCall::enter();
    process.interface_numbered(index)
}

/// A struct sockaddr_in or sockaddr_in6.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Address([u8; 32]);

impl Address {
    /// A link-local address has the scope of its interface.
    fn new(ip: IpAddr, interface: u32) -> Address {
        let mut bytes = [0; 32];
        let family = match ip {
            IpAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.octets());
                libc::AF_INET
            }
            IpAddr::V6(v6) => {
                bytes[8..24].copy_from_slice(&v6.octets());
                if v6.is_unicast_link_local() {
                    bytes[24..28].copy_from_slice(&interface.to_ne_bytes());
                }
                libc::AF_INET6
            }
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        Address(bytes)
    }
}
