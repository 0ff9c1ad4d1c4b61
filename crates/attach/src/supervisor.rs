//! The keeper as seen by an engine in this process.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use slipstack_channel::control::net::{FilterReceived, NetworkState};
use slipstack_channel::control::{
    ChooserState, GroupSocket, Refusal, Reply, Request, TimeWaitEntry, text_file,
};
use slipstack_channel::{PortRange, SocketError, Transport};
use slipstack_engine::supervisor::Supervisor;
use slipstack_engine::{Asked, NeighbourTable, PortAuthority, PortClaim, Renewed};
use slipstack_keeper::Neighbours;
use slipstack_mem::PrivateFd;

use crate::assembly::reopened;
use crate::error::Error;
use crate::inquiry::join_filter;
use crate::link::{KeeperClient, REGION};

/// One engine's way to the keeper.
pub struct Keeper {
    pub link: Arc<KeeperClient>,
    /// The claim of the engine's lease, which goes when the engine does.
    pub _claim: Option<PrivateFd>,
}

impl Keeper {
    /// The first and last place of a block of ports.
    fn lease(&self, request: &Request) -> Option<(u16, u16)> {
        match self.link.ask(request, &[]) {
            Ok((Reply::Ports { first, last }, _)) => Some((first, last)),
            _ => None,
        }
    }
}

impl Supervisor for Keeper {
    fn control(&self) -> Option<Arc<PrivateFd>> {
        self.link.on_time();
        self.link.watched()
    }

    fn on_control(&self) {
        self.link.on_readable();
    }

    fn hand_over(&self, images: u32) -> bool {
        let request = Request::Handover { id: REGION, images };
        self.link.ask(&request, &[]).is_ok()
    }

    fn pass_on_time_waits(&self, entries: &[TimeWaitEntry]) {
        self.link.pass_on_time_waits(entries);
    }

    fn end_session(&self) {
        let _ = self.link.ask(&Request::EndSession, &[]);
    }
}

impl PortAuthority for Keeper {
    fn lease_ports(&self) -> Option<(u16, u16)> {
        self.lease(&Request::LeasePorts)
    }

    fn lease_ports_beyond(&self, range: PortRange) -> Option<(u16, u16)> {
        let range = (range.first, range.last);
        self.lease(&Request::LeasePortsBeyond { range })
    }

    /// Asks for the descriptors of the slot that the engine has.
    fn renew_device(&self, ports: Vec<usize>) -> Option<Renewed> {
        let (lease, fds) = match self.link.ask(&Request::LeaseSlot { thread: 0 }, &[]) {
            Ok((Reply::Slot(lease), fds)) => (*lease, fds),
            _ => return None,
        };
        reopened((lease, fds), ports)
    }

    fn listen_on(&self, claim: &PortClaim, transport: Transport) -> Result<(), SocketError> {
        let request = Request::ListenOn {
            protocol: transport,
            address: claim.addr.ip(),
            port: claim.addr.port(),
            is_v6_only: claim.is_v6_only,
            is_reuse_port: claim.is_reuse_port,
            link: claim.link,
        };
        match self.link.ask(&request, &[]) {
            Ok(_) => Ok(()),
            Err(Error::Refused {
                refusal: Refusal::AddressInUse,
                ..
            }) => Err(SocketError::AddrInUse),
            Err(_) => Err(SocketError::NetDown),
        }
    }

    fn listen_yield(&self, port: u16, transport: Transport, is_on: bool) -> bool {
        let request = Request::ListenYield {
            protocol: transport,
            port,
            is_on,
        };
        self.link.ask(&request, &[]).is_ok()
    }

    fn steer_flow(&self, local: SocketAddr, remote: SocketAddr, is_on: bool) {
        let request = Request::SteerFlow {
            local,
            remote,
            is_on,
        };
        // If the request fails, the flow goes where the port goes.
        let _ = self.link.ask(&request, &[]);
    }

    fn bring_flow(&self, local: SocketAddr, remote: SocketAddr) {
        // If the request fails, the keeper hands each of the flow's segments on.
        self.link.tell(&Request::BringFlow { local, remote });
    }

    fn take_flow(&self, local: SocketAddr, remote: SocketAddr) {
        // If the request fails, the connection waits for an answer until its time is over.
        let _ = self.link.ask(&Request::BringFlow { local, remote }, &[]);
    }

    fn join_group(&self, socket: GroupSocket, is_on: bool) -> bool {
        let request = Request::JoinGroup { socket, is_on };
        let answer = self.link.ask(&request, &[]);
        matches!(answer, Ok((Reply::Choosers(entries), _)) if !entries.is_empty())
    }

    fn choose(&self, local: SocketAddr, set_ms: u32, code: &[u8]) {
        let code = code.to_vec();
        let request = Request::Choose {
            local,
            set_ms,
            code,
        };
        // If the request fails, the hash goes on choosing.
        let _ = self.link.ask(&request, &[]);
    }

    fn choosers(&self, port: u16) -> Option<(Vec<ChooserState>, Vec<OwnedFd>)> {
        match self.link.ask(&Request::Choosers { port }, &[]) {
            Ok((Reply::Choosers(entries), maps)) => Some((entries, maps)),
            _ => None,
        }
    }

    fn network(&self) -> Option<NetworkState> {
        match self.link.ask(&Request::Network, &[]) {
            Ok((Reply::Network(entries), _)) => Some(*entries),
            _ => None,
        }
    }

    fn filter(&self, known: &[u64]) -> Option<FilterReceived> {
        let known = known.to_vec();
        match self.link.ask(&Request::Filter { known }, &[]).ok()? {
            (Reply::Filter(entries), files) => join_filter(entries, files),
            _ => None,
        }
    }

    fn log_filter(&self, lines: Vec<String>) {
        self.link.tell(&Request::FilterLog { lines });
    }

    fn next_inquiry(&self) -> Option<Asked> {
        match self.link.ask(&Request::NextInquiry, &[]) {
            Ok((Reply::Inquiry { id, inquiry }, _)) => Some(Asked {
                id,
                inquiry: *inquiry,
            }),
            _ => None,
        }
    }

    fn answer_inquiry(&self, id: u64, text: &[u8]) {
        // The operator learns that the answer is missing.
        if let Ok(file) = text_file(text) {
            let request = Request::AnswerInquiry { id };
            let _ = self.link.ask(&request, &[file.as_fd()]);
        }
    }

    fn listen_off(&self, (addr, link): (SocketAddr, u16), transport: Transport, is_over: bool) {
        let _ = self.link.ask(
            &Request::ListenOff {
                protocol: transport,
                address: addr.ip(),
                port: addr.port(),
                link,
                is_over,
            },
            &[],
        );
    }
}

/// The keeper's table of neighbours.
#[derive(Debug)]
pub struct NeighbourView(pub Neighbours);

impl NeighbourTable for NeighbourView {
    fn find(&self, address: IpAddr) -> Option<[u8; 6]> {
        self.0.find(address)
    }

    fn answers(&self, address: IpAddr) -> Option<u64> {
        self.0.answers(address)
    }

    fn moves(&self) -> u64 {
        self.0.moves()
    }
}
