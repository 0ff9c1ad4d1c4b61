//! How the program's side gets an engine, whatever the placement.

use core::fmt;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use crate::driver::Driver;
use crate::program::ProgramEnd;

/// An engine and the channel to it.
pub struct Attachment {
    pub program: ProgramEnd,
    pub driver: Arc<dyn Driver>,
    /// One line for people: what was taken.
    pub describe: String,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("describe", &self.describe)
            .finish_non_exhaustive()
    }
}

/// Why no engine could be had: one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError {
    pub sentence: String,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for AttachError {}

/// What belongs on the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Own addresses with their prefix lengths.
    pub addrs: Vec<(IpAddr, u8)>,
    pub gateways: Vec<IpAddr>,
}

impl Policy {
    /// Whether the address is one of the stack's.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.addrs.iter().any(|(own, _)| *own == ip)
    }

    /// Whether the stack reaches the address: on a link of its own, or through the gateway
    /// (never the loopback network, which is the kernel's).
    pub fn is_reachable(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(v4) = ip.to_canonical() else {
            return false;
        };
        if v4.is_loopback() || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() {
            return false;
        }
        self.gateways.iter().any(IpAddr::is_ipv4)
            || self.addrs.iter().any(|&(own, prefix)| match own {
                IpAddr::V4(own) => (own.to_bits() ^ v4.to_bits()) & mask(prefix) == 0,
                IpAddr::V6(_) => false,
            })
    }
}

fn mask(prefix: u8) -> u32 {
    match prefix {
        0 => 0,
        bits => u32::MAX << (32 - u32::from(bits.min(32))),
    }
}

/// The way to an engine. Does nothing until it is asked to attach.
pub trait Attach: Send + Sync {
    /// One more engine for this process.
    fn attach(&self) -> Result<Attachment, AttachError>;

    /// What belongs on the stack. May have to speak to the keeper, once.
    fn policy(&self) -> Result<Policy, AttachError>;

    /// In a forked child: the parent's attachments are not ours; forget them without touching
    /// them, so that `attach` starts anew.
    fn after_fork_child(&self);

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
            gateways: Vec::new(),
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(policy.is_own(ip("10.0.0.5")) && policy.is_own(ip("::ffff:10.0.0.5")));
        assert!(policy.is_reachable(ip("10.0.0.77")));
        assert!(!policy.is_reachable(ip("10.0.1.77")));
        policy.gateways.push(ip("10.0.0.1"));
        assert!(policy.is_reachable(ip("1.1.1.1")));
        assert!(!policy.is_reachable(ip("127.0.0.1")) && !policy.is_reachable(ip("::1")));
    }
}
