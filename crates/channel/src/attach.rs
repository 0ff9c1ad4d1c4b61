//! How the program's side gets an engine, whatever the placement.

use core::fmt;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use slipstack_netctl::zone::zone_of_ip;

use crate::driver::Driver;
use crate::program::ProgramEnd;
use crate::report::Why;

/// An engine and the channel to it.
pub struct EngineHandle {
    pub program: ProgramEnd,
    pub driver: Arc<dyn Driver>,
    /// One line for people: what was taken.
    pub describe: String,
}

impl fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHandle")
            .field("describe", &self.describe)
            .finish_non_exhaustive()
    }
}

/// Why no engine could be had: one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError {
    pub sentence: String,
    /// The reason as `slipstack why` reports it.
    pub why: Why,
    /// The engine is somebody else's, who is not there now: he may be back.
    pub may_pass: bool,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for AttachError {}

/// The rules by which a socket belongs on the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Own addresses with their prefix lengths.
    pub addrs: Vec<(IpAddr, u8)>,
    pub gateways: Vec<IpAddr>,
    /// Networks that are reached beside those of the addresses.
    pub networks: Vec<(IpAddr, u8)>,
    /// Revision of the network from which the policy follows.
    pub revision: u64,
    /// Largest IP packet of the stack's link in bytes.
    pub mtu: u16,
    /// The link's MTU for IPv6, if routers ask for less.
    pub mtu_v6: Option<u16>,
    /// The stack's interface by its number in the kernel, 0 = it has none there.
    pub interface: u32,
    /// Groups and broadcasts that name no interface are the stack's: on an interface that was named
    /// for it, and where it has the way to everywhere.
    pub has_groups: bool,
    /// Interfaces of the stack, the device's own first.
    pub links: Vec<PolicyInterface>,
}

/// An interface of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInterface {
    pub name: String,
    /// The kernel's, or of a VLAN one that the kernel has not given.
    pub index: u32,
    /// 0 = the device's own link.
    pub vlan: u16,
    pub addrs: Vec<IpAddr>,
}

impl Policy {
    /// Returns whether the address is one of the stack's.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.addrs.iter().any(|(own, _)| *own == ip)
    }

    /// Returns whether it is sent to everybody on the stack's link: a broadcast of IPv4.
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip.to_canonical() else {
            return false;
        };
        let is_directed = |&(own, prefix): &(IpAddr, u8)| match own {
            IpAddr::V4(own) if prefix < 31 => {
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                ip.to_bits() == own.to_bits() | host || ip.to_bits() == own.to_bits() & !host
            }
            _ => false,
        };
        ip.is_broadcast() || self.addrs.iter().any(is_directed)
    }

    /// Returns whether a group that is named without an interface is the stack's.
    pub fn takes_group(&self, group: IpAddr) -> bool {
        let is_v4 = group.to_canonical().is_ipv4();
        let mut gateways = self.gateways.iter();
        (self.has_groups || gateways.any(|gateway| gateway.is_ipv4() == is_v4))
            && self.addrs.iter().any(|(own, _)| own.is_ipv4() == is_v4)
    }

    /// Returns whether the stack reaches the address: on a link of its own, or through the gateway
    /// (never the loopback network, which is the kernel's).
    pub fn is_reachable(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if ip.is_multicast() || matches!(ip, IpAddr::V4(ip) if ip.is_broadcast()) {
            return self.takes_group(ip);
        }
        if ip.is_loopback() || ip.is_unspecified() {
            return false;
        }
        // From another of our addresses nobody could answer (RFC 4007 9).
        if is_local(ip) {
            let is_there = |own: IpAddr| is_local(own) && zone_of_ip(own) == zone_of_ip(ip);
            return self.addrs.iter().any(|(own, _)| is_there(*own));
        }
        self.gateways
            .iter()
            .any(|gateway| gateway.is_ipv4() == ip.is_ipv4())
            || self.addrs.iter().any(|&net| contains(net, ip))
            || self.networks.iter().any(|&net| contains(net, ip))
    }

    /// Returns whether a station with this address would be on a link of the stack's.
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.addrs.iter().any(|&net| contains(net, ip))
    }

    /// The largest packet to an address that the link takes.
    pub fn mtu_to(&self, ip: IpAddr) -> u16 {
        match (ip.to_canonical(), self.mtu_v6) {
            (IpAddr::V6(_), Some(mtu)) => mtu.min(self.mtu),
            _ => self.mtu,
        }
    }
}

/// Returns whether the address is valid on its link alone.
fn is_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn contains((net, prefix): (IpAddr, u8), ip: IpAddr) -> bool {
    let common = match (net, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    common >= u32::from(prefix)
}

/// The way to an engine. Does nothing until it is asked to attach.
pub trait Attach: Send + Sync {
    /// One more engine for this process.
    fn attach(&self) -> Result<EngineHandle, AttachError>;

    /// One more engine for this process, beside those that it has: for a thread of its own.
    ///
    /// # Errors
    /// There may be no more.
    fn attach_another(&self) -> Result<EngineHandle, AttachError> {
        Err(AttachError {
            sentence: "there is one engine for all threads".to_owned(),
            why: Why::NoStack,
            may_pass: false,
        })
    }

    /// How many engines the threads of this process may have together.
    fn engines_max(&self) -> usize {
        1
    }

    /// Returns whether each thread has an engine from its first connection on, not only where it
    /// pays.
    fn is_engine_each(&self) -> bool {
        false
    }

    /// Returns the policy. May have to ask the keeper, once.
    fn policy(&self) -> Result<Policy, AttachError>;

    /// Returns the policy as it is now, if it may have changed.
    ///
    /// # Errors
    /// Nobody can be asked now.
    fn policy_by_now(&self) -> Result<Policy, AttachError> {
        self.policy()
    }

    /// In a forked child: the parent's attachments are not ours; forget them without touching
    /// them, so that `attach` starts again.
    fn after_fork_child(&self);

    /// Returns whether other processes of the program may use engines of other instances, with
    /// which they share ports.
    fn is_spread(&self) -> bool {
        false
    }

    /// Returns a secret that names the processes with which this one shares ports: it goes to
    /// programs that inherit its listeners.
    fn family(&self) -> u64 {
        0
    }

    /// This process has inherited listeners of that family.
    fn join(&self, family: u64) {
        let _ = family;
    }

    /// Descriptors that attachments hold and that the program must not close.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// Gives the region in which this process describes its sockets to whoever answers `why`.
    fn report(&self, region: BorrowedFd<'_>) {
        let _ = region;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_tells_own_and_reachable_addresses() {
        let mut policy = Policy {
            addrs: vec![("10.0.0.5".parse().unwrap(), 24)],
            mtu: 1500,
            ..Policy::default()
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(policy.is_own(ip("10.0.0.5")) && policy.is_own(ip("::ffff:10.0.0.5")));
        assert!(policy.is_reachable(ip("10.0.0.77")));
        assert!(!policy.is_reachable(ip("10.0.1.77")));
        policy.gateways.push(ip("10.0.0.1"));
        assert!(policy.is_reachable(ip("1.1.1.1")));
        assert!(!policy.is_reachable(ip("127.0.0.1")) && !policy.is_reachable(ip("::1")));
    }

    #[test]
    fn a_family_is_reached_through_its_own_network_and_gateway() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut policy = Policy {
            addrs: vec![(ip("10.0.0.5"), 24), (ip("fd00::5"), 64)],
            gateways: vec![ip("10.0.0.1")],
            mtu: 1500,
            ..Policy::default()
        };
        assert!(policy.is_own(ip("fd00::5")) && policy.is_reachable(ip("fd00::77")));
        assert!(!policy.is_reachable(ip("fd01::1")) && policy.is_reachable(ip("1.1.1.1")));
        // RFC 4007 9: from an address of wider scope no answer would come back.
        assert!(!policy.is_reachable(ip("fe80::1")) && !policy.is_reachable(ip("ff02::1")));
        assert!(policy.is_broadcast(ip("10.0.0.255")) && !policy.is_broadcast(ip("10.0.0.254")));
        assert!(policy.takes_group(ip("239.1.2.3")) && !policy.takes_group(ip("ff0e::7")));
        policy.has_groups = true;
        assert!(policy.is_reachable(ip("ff0e::7")));
        policy.gateways.push(ip("fe80::1"));
        assert!(policy.is_reachable(ip("fd01::1")));
    }
}
