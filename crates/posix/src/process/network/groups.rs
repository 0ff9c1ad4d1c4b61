//! Calls about multicast groups on the stack's interface: the socket's memberships, and the changes
//! sent to the engine.

use std::net::{IpAddr, Ipv4Addr};

use slipstack_channel::{MulticastOption, SocketOption};

use crate::errno::Errno;
use crate::process::network::Network;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::Options;
use crate::socket::options::multicast::{
    Interface, change, interface, interface_of, link_of_any, parse,
};
use crate::socket::options::structures::{IP_MSFILTER, group_of, v4_at, word_at};
use crate::socket::options::way::leaving;

impl Network {
    /// A call about groups. `Ok(false)`: it is about none, or about an interface of the kernel's.
    pub(crate) fn set_membership(
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
        let (link, changes) = {
            let mut cold = socket.cold.lock();
            let link = match self.link_named(request.interface) {
                Some(link) => link,
                None => link_of_any(&cold.memberships, &request),
            };
            (link, change(&mut cold.memberships, &request, link)?)
        };
        if let Some(Decided::Dgram(dgram)) = socket.decided()
            && let Some((engine, sock)) = dgram.part()
        {
            for change in changes {
                let group = request.group;
                let option = MulticastOption::Group {
                    group,
                    link,
                    change,
                };
                engine.set_option(sock, SocketOption::Multicast(option));
            }
            engine.commands();
        }
        Ok(true)
    }

    /// IP_MULTICAST_IF and IPV6_MULTICAST_IF that name the stack's interface: no kernel socket
    /// takes them.
    pub(crate) fn is_stacks_interface(&self, level: i32, name: i32, value: &[u8]) -> bool {
        match interface_of(level, name, value) {
            Some(Interface::Any) | None => false,
            Some(interface) => self.is_stacks(interface, Ipv4Addr::UNSPECIFIED.into()),
        }
    }

    /// The link of the stack that a call names; `None`: it names none.
    fn link_named(&self, interface: Interface) -> Option<u16> {
        let policy = self.policy()?;
        let found = match interface {
            Interface::Any => None,
            Interface::Address(own) => {
                let own = IpAddr::V4(own);
                policy.interface_with(own)
            }
            Interface::Index(index) => policy
                .network()
                .interfaces
                .iter()
                .find(|it| it.index == index),
        };
        found.map(|it| it.link)
    }

    /// Has datagrams leave by the interface that IP_MULTICAST_IF, IP_UNICAST_IF or one of their
    /// counterparts of IPv6 names.
    pub(crate) fn note_leaving(&self, socket: &Description, level: i32, name: i32, value: &[u8]) {
        let Some(recorded) = leaving(level, name) else {
            return;
        };
        let interface = interface_of(level, name, value);
        let link = interface.and_then(|interface| self.link_named(interface));
        let place = link.map_or(0, |link| i32::from(link) + 1);
        socket.set_way(recorded, &place.to_ne_bytes());
    }

    /// Returns the value of an option that names an interface of the stack: the kernel's part does
    /// not have it.
    pub(crate) fn leaving_by(
        &self,
        socket: &Description,
        level: i32,
        name: i32,
    ) -> Option<[u8; 4]> {
        leaving(level, name)?;
        if (level, name) == (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) {
            return Some(self.stacks_interface(socket)?.octets());
        }
        let cold = socket.cold.lock();
        let value = cold.options.bytes(level, name)?;
        let is_stacks = self.is_stacks_interface(level, name, value);
        value.first_chunk().copied().filter(|_| is_stacks)
    }

    /// The address that IP_MULTICAST_IF has named, if it is the stack's.
    fn stacks_interface(&self, socket: &Description) -> Option<Ipv4Addr> {
        let (level, name) = (libc::IPPROTO_IP, libc::IP_MULTICAST_IF);
        let cold = socket.cold.lock();
        let chosen = interface_of(level, name, cold.options.bytes(level, name)?)?;
        match chosen {
            Interface::Address(own) if self.is_stacks(chosen, own.into()) => Some(own),
            _ => None,
        }
    }

    /// The group that a filter's structure names with its link, if it is one of the stack's.
    pub(crate) fn group_on_stack(&self, name: i32, value: &[u8]) -> Option<(IpAddr, u16)> {
        let group = group_of(name, value)?;
        let interface = if name == IP_MSFILTER {
            interface(0, v4_at(value, 4)?)
        } else {
            interface(word_at(value, 0)?, Ipv4Addr::UNSPECIFIED)
        };
        let link = self.link_named(interface).unwrap_or(0);
        self.is_stacks(interface, group).then_some((group, link))
    }

    fn is_stacks(&self, interface: Interface, group: IpAddr) -> bool {
        self.policy().is_some_and(|policy| match interface {
            Interface::Any => policy.takes_group(group),
            Interface::Address(own) => policy.is_own(own.into()),
            Interface::Index(index) => policy
                .network()
                .interfaces
                .iter()
                .any(|it| it.index == index),
        })
    }

    /// Returns whether datagrams of a socket to a group leave by the stack.
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
