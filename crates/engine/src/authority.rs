//! An engine's requests to the keeper, which steers frames and answers ARP for its device.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};

use slipstack_channel::control::net::{FilterReceived, Inquiry, NetworkState};
use slipstack_channel::control::{ChooserState, GroupSocket};
use slipstack_channel::{SocketError, Transport};
use slipstack_device::Device;
use slipstack_stack::PortRange;

/// An inquiry with the number by which the keeper knows it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub id: u64,
    pub inquiry: Inquiry,
}

/// Opens a device under descriptor numbers as near to these as there are.
pub type Renewed = Box<dyn FnOnce(&[RawFd]) -> Option<Box<dyn Device>>>;

/// The address at which a socket takes its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortClaim {
    pub addr: SocketAddr,
    /// The number in [`slipstack_stack::PortHold::link`].
    pub link: u16,
    /// [::] does not take IPv4 in.
    pub is_v6_only: bool,
    pub is_reuse_port: bool,
}

/// Hands out ports and steers their frames to this engine's slot. Calls are rare and may block
/// for a round trip to the keeper.
pub trait PortAuthority: Send {
    /// One more block of outgoing ports, inclusive.
    fn lease_ports(&self) -> Option<(u16, u16)>;

    /// As [`PortAuthority::lease_ports`], of this range and beyond the pool.
    fn lease_ports_beyond(&self, range: PortRange) -> Option<(u16, u16)> {
        let _ = range;
        None
    }

    /// Requests the frames to this port.
    ///
    /// # Errors
    /// Another client has the port, or there is no keeper.
    fn listen_on(&self, claim: &PortClaim, transport: Transport) -> Result<(), SocketError>;

    /// Frames to this port go to other engines that serve it (or no longer so). `false`: there are
    /// none, everything stays as it is.
    fn listen_yield(&self, port: u16, transport: Transport, is_on: bool) -> bool {
        let _ = (port, transport, is_on);
        false
    }

    /// The descriptors of this engine's slot of a device that has been opened again, to be opened
    /// under numbers that the former ones had. `ports`: the positions of the interfaces that are
    /// others now.
    fn renew_device(&self, ports: Vec<usize>) -> Option<Renewed> {
        let _ = ports;
        None
    }

    /// Requests a flow of datagrams from `remote`, and that other datagrams to the port go to other
    /// engines that serve it; or ends this.
    fn steer_flow(&self, local: SocketAddr, remote: SocketAddr, is_on: bool) {
        let _ = (local, remote, is_on);
    }

    /// Requests a connection that the directory names, whichever engines serve its port.
    fn bring_flow(&self, local: SocketAddr, remote: SocketAddr) {
        let _ = (local, remote);
    }

    /// As [`PortAuthority::bring_flow`], and in force when it returns.
    fn take_flow(&self, local: SocketAddr, remote: SocketAddr) {
        let _ = (local, remote);
    }

    /// A datagram socket of this engine joins the SO_REUSEPORT group of its address, or leaves it.
    /// Returns whether a program chooses among the group's sockets.
    fn join_group(&self, socket: GroupSocket, is_on: bool) -> bool {
        let _ = (socket, is_on);
        false
    }

    /// A program chooses among the sockets of a group from now on.
    fn choose(&self, local: SocketAddr, set_ms: u32, code: &[u8]) {
        let _ = (local, set_ms, code);
    }

    /// Returns the BPF programs of all groups of a UDP port, with the maps that they refer to, or
    /// `None` if the keeper cannot be asked.
    fn choosers(&self, port: u16) -> Option<(Vec<ChooserState>, Vec<OwnedFd>)> {
        let _ = port;
        None
    }

    /// Returns the current network, or `None` if the keeper cannot be asked.
    fn network(&self) -> Option<NetworkState> {
        None
    }

    /// Returns the packet filter; tables whose revisions are known come without their prefixes.
    /// `None` if the keeper cannot be asked.
    fn filter(&self, known: &[u64]) -> Option<FilterReceived> {
        let _ = known;
        None
    }

    /// Matches of rules that are to be logged.
    fn log_filter(&self, lines: Vec<String>) {
        let _ = lines;
    }

    /// Returns the next question of an operator to this engine, if there is one.
    fn next_inquiry(&self) -> Option<Asked> {
        None
    }

    /// The answer to it.
    fn answer_inquiry(&self, id: u64, text: &[u8]) {
        let _ = (id, text);
    }

    /// Gives a claim back; `is_over` if the connection that it was for has ended.
    fn listen_off(&self, at: (SocketAddr, u16), transport: Transport, is_over: bool);
}

/// Link-layer addresses that another process learns for this engine.
pub trait NeighbourTable: Send + fmt::Debug {
    fn find(&self, address: IpAddr) -> Option<[u8; 6]>;

    /// Returns a number that changes whenever the neighbour has answered; `None` if answers are not
    /// counted.
    fn answers(&self, address: IpAddr) -> Option<u64> {
        let _ = address;
        None
    }

    /// A number that changes whenever a neighbour is found at another link-layer address.
    fn moves(&self) -> u64 {
        0
    }
}
