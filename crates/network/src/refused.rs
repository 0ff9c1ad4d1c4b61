//! Reasons why a change of the network is refused.

use core::fmt;

/// Reason why a change was refused, in the words of Linux where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Exists,
    NoSuchAddress,
    NoSuchRoute,
    NoSuchRule,
    NoSuchNeighbour,
    NoSuchInterface,
    InvalidGateway,
    InvalidSource,
    InvalidMtu,
    InvalidVlan,
    InvalidName,
    InvalidAddress,
    InvalidTable,
    AddressElsewhere,
    OwnInterface,
    Overlaps,
    TooMany,
    InvalidPriority,
    TooManyTags,
    NotShared,
    InvalidPorts,
}

impl Refused {
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Refused::Exists => "File exists",
            Refused::NoSuchAddress => "Cannot assign requested address",
            Refused::NoSuchRoute => "No such process",
            Refused::NoSuchRule | Refused::NoSuchNeighbour => "No such file or directory",
            Refused::NoSuchInterface => "Cannot find device",
            Refused::InvalidGateway => "Nexthop has invalid gateway",
            Refused::InvalidSource => "Invalid source address: it is none of the stack's",
            Refused::InvalidMtu => "Invalid MTU: at least 68 bytes, at most what the device takes",
            Refused::InvalidVlan => "Invalid VLAN: a number from 1 to 4094",
            Refused::InvalidName => "Invalid name of an interface",
            Refused::InvalidAddress => "Invalid address: the address of one host is wanted",
            Refused::InvalidTable => "Invalid table: not 0 and not 255, the stack's own addresses",
            Refused::AddressElsewhere => {
                "File exists: another interface of the stack has the address"
            }
            Refused::OwnInterface => "Operation not supported: it is the device's own interface",
            Refused::Overlaps => {
                "File exists: the network is that of another interface of the stack"
            }
            Refused::TooMany => "No buffer space available: there are as many as there may be",
            Refused::NotShared => {
                "Operation not supported: the kernel does not share the stack's addresses; start \
                 it with --kni"
            }
            Refused::InvalidPorts => "Invalid ports: at most 256 ranges of ports from 1 to 65535",
            Refused::TooManyTags => {
                "Operation not supported: a VLAN is of a port, or of a VLAN of a port"
            }
            Refused::InvalidPriority => "Invalid priority: 0 to 7, of a VLAN",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}
