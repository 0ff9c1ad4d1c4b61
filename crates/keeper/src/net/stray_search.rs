//! The keeper's search for the engine of stray segments and connections.

use std::net::SocketAddr;

use slipstack_channel::{InboxMessage, Passed, PassingHead};
use slipstack_device::{Flow, Port, Steering, Transport};
use slipstack_engine::stray_frame;
use slipstack_stack::{DatagramIn, Ends, IpMeta, datagram_frames};

use super::Net;
use super::effects::NetEffects;
use super::frame_input::{FrameSource, local_by};
use super::parked::Untaken;
use super::strays::{Asked, Next, Strays};
use super::unread::Taken;
use crate::leases::Server;

/// Offset of a segment's flags.
const FLAGS_AT: usize = 13;
const SYN: u8 = 0x02;
const SYN_ACK_RST_FIN: u8 = 0x17;

/// The decision about a segment that the keeper's own stack does not know.
enum Verdict {
    Pass(u16),
    /// Segment that has waited this often, and waits once more.
    Hold(u8),
    /// No engine has it: a reset.
    Answer,
    /// An engine may have it, but cannot be asked: its peer sends it again.
    Drop,
}

/// The outcome of handing a datagram from one engine of its port to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// No engine has refused it, or there is no other one.
    Unneeded,
    Made,
    /// All engines have refused it.
    Refused,
    /// Another engine may have it, but too many searches are going on to ask it.
    Unasked,
}

impl NetEffects {
    /// The slot that gets new connections of a flow; 0: none.
    pub(super) fn find_route(&self, flow: &Flow) -> u16 {
        let Some(steering) = &self.steering else {
            return 0;
        };
        match steering.port(flow.proto, flow.local.port()) {
            Port::Keeper => 0,
            Port::Slot(slot) => slot,
            Port::Group(group) => {
                steering.group_slot(group, steering.bucket(flow.local, flow.remote))
            }
        }
    }

    /// Handles a segment without a connection here. Returns `false` if it is to be answered with a
    /// reset.
    pub(super) fn send_stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        let (Some(coming), Some(flow)) = (self.coming, find_flow(ip, segment)) else {
            return false;
        };
        let verdict = self.judge(&flow, (ip.link, segment), coming);
        let (slot, waits) = match verdict {
            Verdict::Answer => return false,
            Verdict::Drop => {
                self.strays.counts.lost += 1;
                return true;
            }
            Verdict::Pass(slot) => (Some(slot), coming.waits),
            Verdict::Hold(waits) => (None, waits),
        };
        let Some(frame) = stray_frame(ip, segment, self.mac) else {
            return false;
        };
        if let Some(slot) = slot
            && self.inboxes.post(
                slot,
                &InboxMessage::Frame {
                    link: ip.link,
                    frame: &frame,
                },
            )
        {
            self.strays.counts.passed += 1;
            return true;
        }
        let held = (&frame[..], local_by(ip.link));
        self.strays.hold(held, flow.local.port(), waits, coming.now);
        true
    }

    fn judge(
        &mut self,
        flow: &Flow,
        (link, segment): (u16, &[u8]),
        coming: FrameSource,
    ) -> Verdict {
        let FrameSource { now, origin, .. } = coming;
        let is_syn = segment
            .get(FLAGS_AT)
            .is_some_and(|flags| flags & SYN_ACK_RST_FIN == SYN);
        // A peer that starts over has no use for the reset of its former connection.
        let is_doomed = if is_syn {
            self.doomed.remove(flow);
            false
        } else {
            self.doomed.contains(flow)
        };
        if is_doomed {
            return Verdict::Answer;
        }
        let is_moving = self.strays.is_moving(flow.local.port(), now) || self.parked.has(flow);
        let route = self.find_route(flow);
        if is_syn {
            return self.judge_request(flow, (link, segment), (route, is_moving), coming);
        }
        let is_moving = is_moving || self.strays.is_awaited(flow, now);
        // An exception that outlives its flow sends the next one of the same two ends here.
        let is_ours = !coming.is_astray && route == 0;
        if is_ours && !is_moving && !self.strays.is_left(flow.local.port(), now) {
            return Verdict::Answer;
        }
        let first = match &self.steering {
            Some(steering) => steering.find_slot(flow.proto, flow.local, flow.remote),
            None => 0,
        };
        let asked = Asked {
            first,
            route,
            is_anyones: true,
            origin,
            waits: coming.waits,
        };
        match self.strays.next(*flow, segment, asked, now) {
            Next::Slot(slot) => Verdict::Pass(slot),
            Next::Nobody(waits) | Next::Unasked(waits) if is_moving => Verdict::Hold(waits),
            Next::Nobody(_) => Verdict::Answer,
            Next::Unasked(_) => Verdict::Drop,
        }
    }

    /// Decides about a SYN. Steering knows ports: programs may listen on one at different
    /// addresses.
    fn judge_request(
        &mut self,
        flow: &Flow,
        (link, segment): (u16, &[u8]),
        (route, is_moving): (u16, bool),
        coming: FrameSource,
    ) -> Verdict {
        let is_first_look = coming.origin.is_none() && coming.waits == 0;
        let next = if route == 0 {
            Next::Nobody(coming.waits)
        } else if is_first_look {
            Next::Slot(route)
        } else {
            let asked = Asked {
                first: route,
                route,
                is_anyones: self.is_shared(flow),
                origin: coming.origin,
                waits: coming.waits,
            };
            self.strays.next(*flow, segment, asked, coming.now)
        };
        let waits = match next {
            Next::Slot(slot) => return Verdict::Pass(slot),
            Next::Nobody(waits) | Next::Unasked(waits) => waits,
        };
        // A process holds a listening socket: on the kernel the connection would be established.
        let intent = self.intents.find(flow.local, link, coming.now);
        if let Some(intent) = intent {
            let link = self.intents.link_of(&intent);
            if route == 0 || !self.servers.takes(flow.local, link) {
                self.backlogs.want(flow.local.port(), (intent, link));
            }
        }
        // No listener has come in all this time, and nobody is about to be one.
        let is_in_vain = Strays::is_last_wait(waits) && !self.parked.has(flow);
        match intent.is_some() || (is_moving && !is_in_vain) {
            true => Verdict::Hold(waits),
            false if matches!(next, Next::Unasked(_)) => Verdict::Drop,
            false => Verdict::Answer,
        }
    }

    /// Handles a datagram for a port that this stack does not have: it goes to the engine that
    /// serves it, unless that one sent it here, or waits for the socket that intends to receive it.
    /// Returns `false` if there is none, and the sender gets an ICMP error. One that an engine may
    /// have which cannot be asked is dropped.
    pub(super) fn on_stray_datagram(
        &mut self,
        datagram: &DatagramIn<'_>,
        is_to_group: bool,
    ) -> bool {
        let Some(coming) = self.coming else {
            return false;
        };
        let flow = Flow {
            proto: Transport::Udp,
            local: datagram.to,
            remote: datagram.from,
        };
        let slot = match (&self.steering, is_to_group) {
            (Some(steering), false) => steering.find_slot(flow.proto, flow.local, flow.remote),
            _ => 0,
        };
        let link = Ends::new([0; 6], self.mac);
        let first = (slot, coming.origin);
        let offer = match is_to_group {
            true => Offer::Unneeded,
            false => self.offer_datagram(datagram, &flow, first, coming.now),
        };
        if offer == Offer::Made {
            return true;
        }
        let is_asked = offer == Offer::Refused || coming.origin == Some(slot);
        if slot != 0 && !is_asked && self.strays.has_engine(slot) {
            for frame in datagram_frames(datagram, link) {
                let (link, frame) = (datagram.link, &frame);
                self.inboxes
                    .post(slot, &InboxMessage::Frame { link, frame });
            }
            return true;
        }
        // A datagram to a group that one engine has received the others have too.
        if is_to_group && (coming.origin.is_some() || datagram.to.ip().is_multicast()) {
            return false;
        }
        let Some(intent) = self
            .dgram_intents
            .find(datagram.to, datagram.link, coming.now)
        else {
            let is_dropped = offer == Offer::Unasked;
            self.strays.counts.lost += u64::from(is_dropped);
            return is_dropped;
        };
        for frame in datagram_frames(datagram, link) {
            let held = (datagram.link, frame);
            self.unread
                .hold(flow.local.port(), intent.rcvbuf, held, coming.now);
        }
        true
    }

    /// Hands a datagram that an engine has no socket for to the next engine of its port: programs
    /// may have it at different addresses.
    fn offer_datagram(
        &mut self,
        datagram: &DatagramIn<'_>,
        flow: &Flow,
        (first, origin): (u16, Option<u16>),
        now: u64,
    ) -> Offer {
        if origin.is_none() || !self.is_shared(flow) {
            return Offer::Unneeded;
        }
        let frames: Vec<_> = datagram_frames(datagram, Ends::new([0; 6], self.mac)).collect();
        let Some(whole) = frames.first() else {
            return Offer::Refused;
        };
        let asked = Asked {
            first,
            route: first,
            is_anyones: true,
            origin,
            waits: 0,
        };
        let slot = match self.strays.next(*flow, whole, asked, now) {
            Next::Slot(slot) => slot,
            Next::Nobody(_) => return Offer::Refused,
            Next::Unasked(_) => return Offer::Unasked,
        };
        for frame in &frames {
            let link = datagram.link;
            self.inboxes
                .post(slot, &InboxMessage::Frame { link, frame });
        }
        Offer::Made
    }

    /// Returns whether several engines serve the port.
    fn is_shared(&self, flow: &Flow) -> bool {
        let port = |steering: &Steering| steering.port(flow.proto, flow.local.port());
        matches!(self.steering.as_ref().map(port), Some(Port::Group(_)))
    }

    /// Ports for whose next engine something waits.
    fn awaiting(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        let streams = self.parked.ports().chain(self.strays.held_ports());
        let streams = streams.chain(self.backlogs.ports());
        let datagrams = self.unread.ports().map(|port| (Transport::Udp, port));
        streams.map(|port| (Transport::Tcp, port)).chain(datagrams)
    }

    /// Sends waiting datagrams to the engine that serves the port now.
    pub(super) fn send_unread(&mut self, port: u16, now: u64) {
        let NetEffects {
            unread,
            inboxes,
            steering,
            ..
        } = self;
        let Some(steering) = steering else {
            return;
        };
        unread.send(port, now, |(link, frame)| {
            let flow = super::flows::find_flow(frame);
            let slot = flow.map_or(0, |it| steering.find_slot(it.proto, it.local, it.remote));
            match slot {
                0 => Taken::NobodyServes,
                slot if inboxes.post(slot, &InboxMessage::Frame { link: *link, frame }) => {
                    Taken::Yes
                }
                _ => Taken::NoRoom,
            }
        });
    }

    /// Sends a message of a connection to the engine that listens now, or keeps it. Returns `false`
    /// if there is no room for it.
    pub(super) fn on_passing(&mut self, head: &PassingHead, passed: Passed<'_>) -> bool {
        let Some(flow) = self.parked.add(head, passed) else {
            return false;
        };
        self.send_parked(&flow);
        true
    }

    fn send_parked(&mut self, flow: &Flow) {
        let bucket = |it: &Steering| it.bucket(flow.local, flow.remote);
        let bucket = self.steering.as_ref().map_or(0, bucket);
        let route = self.find_route(flow);
        let at = (flow.local, self.parked.link_of(flow));
        if let Some(slot) = self.servers.choose(at, route, bucket) {
            let NetEffects {
                parked, inboxes, ..
            } = self;
            parked.send(flow, |message| inboxes.post(slot, message));
        }
    }

    /// Gives up the connections that wait for a listener on a port and whose socket is closed, and
    /// returns them.
    pub(super) fn give_up_parked(&mut self, port: u16, now: u64) -> Vec<Untaken> {
        let NetEffects {
            parked, intents, ..
        } = self;
        parked.give_up(port, |local, link| {
            !intents.has(port, now, |it, on| it.takes(local.ip()) && on == link)
        })
    }

    /// Handles a changed route of a port: connections and datagrams that wait for an engine may go
    /// on.
    pub(super) fn on_new_route(&mut self, port: u16) {
        for flow in self.parked.on_port(port) {
            self.send_parked(&flow);
        }
        self.strays.hurry(port);
    }
}

impl Net {
    /// Takes the listeners of all engines, each with its port.
    pub(crate) fn set_servers(&mut self, servers: impl Iterator<Item = (u16, Server)>) {
        self.effects.servers.set(servers);
    }

    /// Ports for whose next engine something waits: [`Net::on_new_route`] and
    /// [`Net::on_new_datagram_routes`] do nothing for others.
    pub fn awaiting(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        self.effects.awaiting()
    }
}

fn find_flow(ip: &IpMeta, segment: &[u8]) -> Option<Flow> {
    let port = |at: usize| {
        let bytes = segment.get(at..at + 2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    };
    Some(Flow {
        proto: Transport::Tcp,
        local: SocketAddr::new(ip.dst, port(2)?),
        remote: SocketAddr::new(ip.src, port(0)?),
    })
}
