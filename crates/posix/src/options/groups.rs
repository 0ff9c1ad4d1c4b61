//! Calls about groups on the stack's interface: what they change, and what the engine is told of
//! it.

use std::net::{IpAddr, Ipv4Addr};

use slipstack_channel::{MulticastOption, SocketOption};

use crate::description::{Decided, Description, Kind};
use crate::errno::Errno;
use crate::options::Options;
use crate::options::multicast::{Interface, change, interface, interface_of, parse};
use crate::options::structures::{IP_MSFILTER, group_of, v4_at, word_at};
use crate::process::Process;

impl Process {
    /// A call about groups. `Ok(false)`: it is about none, or about an interface of the kernel's.
    pub(super) fn set_membership(
        &self,
        socket: &Description,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<bool, Errno> {
        if socket.kind != Kind::Dgram {
            return Ok(false);
        }
        let Some(request) = parse(level, name, value) else {
            return Ok(false);
        };
        if !self.is_stacks(request.interface, request.group) {
            return Ok(false);
        }
        let changes = {
            let mut cold = socket.cold.lock();
            change(&mut cold.memberships, &request)?
        };
        if let Some(Decided::Dgram(dgram)) = socket.decided()
            && let Some((link, sock)) = dgram.part()
        {
            for change in changes {
                let group = request.group;
                let option = MulticastOption::Group { group, change };
                link.set_option(sock, SocketOption::Multicast(option));
            }
            link.commands();
        }
        Ok(true)
    }

    /// IP_MULTICAST_IF and IPV6_MULTICAST_IF that name the stack's interface: no kernel socket
    /// takes them.
    pub(super) fn is_stacks_interface(&self, level: i32, name: i32, value: &[u8]) -> bool {
        match interface_of(level, name, value) {
            Some(Interface::Any) | None => false,
            Some(interface) => self.is_stacks(interface, Ipv4Addr::UNSPECIFIED.into()),
        }
    }

    /// The address that IP_MULTICAST_IF has named, if it is the stack's.
    pub(super) fn stacks_interface(&self, socket: &Description) -> Option<Ipv4Addr> {
        let (level, name) = (libc::IPPROTO_IP, libc::IP_MULTICAST_IF);
        let cold = socket.cold.lock();
        let chosen = interface_of(level, name, cold.options.bytes(level, name)?)?;
        match chosen {
            Interface::Address(own) if self.is_stacks(chosen, own.into()) => Some(own),
            _ => None,
        }
    }

    /// The group that a filter's structure names, if it is on the stack's interface.
    pub(super) fn group_on_stack(&self, name: i32, value: &[u8]) -> Option<IpAddr> {
        let group = group_of(name, value)?;
        let interface = if name == IP_MSFILTER {
            interface(0, v4_at(value, 4)?)
        } else {
            interface(word_at(value, 0)?, Ipv4Addr::UNSPECIFIED)
        };
        self.is_stacks(interface, group).then_some(group)
    }

    fn is_stacks(&self, interface: Interface, group: IpAddr) -> bool {
        self.policy().is_some_and(|policy| match interface {
            Interface::Any => policy.takes_group(group),
            Interface::Address(own) => policy.is_own(own.into()),
            Interface::Index(index) => policy.links.iter().any(|it| it.index == index),
        })
    }

    /// Whether what a socket sends to a group leaves by the stack.
    pub(crate) fn sends_to_group(&self, options: &Options, group: IpAddr, scope: u32) -> bool {
        let (level, name) = match group {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MULTICAST_IF),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF),
        };
        let chosen = options.bytes(level, name);
        let chosen = chosen.and_then(|value| interface_of(level, name, value));
        let interface = match (scope, chosen) {
            (0, Some(chosen)) => chosen,
            (0, None) => Interface::Any,
            (scope, _) => Interface::Index(scope),
        };
        self.is_stacks(interface, group)
    }
}
