//! The stack's addresses, for lists of interfaces.

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use slipstack_channel::Policy;
use slipstack_channel::control::net::{Interface, zone};
use slipstack_mem::Descriptor;

use crate::interfaces::OwnAddress;
use crate::process::Process;

impl Process {
    /// Returns the stack's interfaces, as the configuration and its changes have made them.
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        let policy = self.network.policy();
        policy.map_or_else(Vec::new, |policy| policy.network().interfaces.clone())
    }

    /// The number of an interface of the stack by its name.
    #[must_use]
    pub fn interface_named(&self, name: &[u8]) -> Option<u32> {
        let policy = self.network.policy()?;
        let mut interfaces = policy.network().interfaces.iter();
        let found = interfaces.find(|it| it.index != 0 && it.name.as_bytes() == name);
        found.map(|it| it.index)
    }

    /// The name of an interface of the stack by its number.
    #[must_use]
    pub fn interface_numbered(&self, index: u32) -> Option<String> {
        let policy = self.network.policy()?;
        let mut interfaces = policy.network().interfaces.iter();
        let found = interfaces.find(|it| index != 0 && it.index == index);
        found.map(|it| it.name.clone())
    }

    /// Returns the stack's addresses, IPv4 first; none if the keeper cannot be asked or the kernel
    /// lacks its interface.
    #[must_use]
    pub fn own_addresses(&self) -> Vec<OwnAddress> {
        let policy = self.network.policy();
        policy.map_or_else(Vec::new, |policy| {
            addresses_of(&policy, |interface| {
                let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
                let any = socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()?;
                netdevice::index_to_name(&any, interface).ok()
            })
        })
    }

    /// As [`Process::own_addresses`], by a thread that may be in another network namespace than the
    /// socket that it asks.
    #[must_use]
    pub fn own_addresses_at(&self, socket: i32) -> Vec<OwnAddress> {
        let policy = self.network.policy();
        policy.map_or_else(Vec::new, |policy| {
            addresses_of(&policy, |interface| {
                netdevice::index_to_name(Descriptor::new(socket)?.as_fd(), interface).ok()
            })
        })
    }
}

/// `name_of` finds the kernel's name of an interface.
fn addresses_of(policy: &Policy, name_of: impl Fn(u32) -> Option<String>) -> Vec<OwnAddress> {
    let Some(name) = name_of(policy.interface()) else {
        return Vec::new();
    };
    let addresses = policy.addresses().iter().map(|&(ip, prefix)| {
        let other = policy.interface_with(ip).filter(|it| it.link != 0);
        OwnAddress {
            ip: zone::plain_ip(ip),
            prefix,
            interface: other.map_or(policy.interface(), |it| it.index),
            name: other.map_or(&name, |it| &it.name).clone(),
        }
    });
    let mut own: Vec<OwnAddress> = addresses.collect();
    own.sort_by_key(|own| own.ip.is_ipv6());
    own
}
