//! The network layer: addresses, routes and neighbours, and output from a transport segment to a
//! frame with its IP and Ethernet headers.

mod datagram;
mod macs;
mod mtu;
mod next_hop;
mod output;
mod packet;
mod transmit;
mod v6;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use slipstack_wire::{ethernet, igmp};

use slipstack_network::{NetworkState, RuleAction};

use crate::announce::Announcements;
use crate::choices::Choices;
use crate::config::{Role, StackConfig};
use crate::configured::{links, routes4, routes6};
use crate::counters::Counters;
use crate::default_router::LostRouters;
use crate::destination::Destinations;
use crate::effects::Effects;
use crate::error::SocketError;
use crate::fib::{Fib, Query, Target};
use crate::filter::{Board, Filter};
use crate::groups::{Asker, GroupFilter, Groups};
use crate::identification::Identifications;
use crate::neighbour::{Neighbours, Resolution, Station};
use crate::options::DEFAULT_TTL;
use crate::path_mtu::PathMtus;
use crate::rng::{Rng, SipKey};
use crate::route::{Found, Route, Routes};
use crate::route6::Routes6;
use crate::slaac::Discovery;
use crate::time::Instant;
use slipstack_terms::Learnt;

pub(crate) use macs::Macs;
use next_hop::Hop;
pub use next_hop::NextHop;
pub(crate) use next_hop::Way;
pub use packet::{HEADER_MAX, L4_HEADER_MAX, OutPacket, OutSegment, Output, Path};
pub(crate) use transmit::transmit;

/// RFC 5227 1.1.
const DEFEND_INTERVAL_NS: u64 = 10_000_000_000;
/// RFC 791: every link takes packets of this size.
const LINK_MTU_MIN: u16 = 68;

/// The parts of the stack that protocols above the network layer need, borrowed for one call.
#[derive(Debug)]
pub struct Cx<'a> {
    pub config: &'a StackConfig,
    pub net: &'a mut NetworkLayer,
    pub rng: &'a mut Rng,
    pub counters: &'a mut Counters,
}

/// Payload of a segment to one of our own addresses. It reaches its receiver in one frame, which an
/// inbox takes whole.
const LOCAL_TSO_MAX: u32 = 32 << 10;

/// Addresses, routes, neighbours and paths of all links.
#[derive(Debug)]
pub struct NetworkLayer {
    pub(crate) choices: Choices,
    pub(crate) macs: Macs,
    /// Rules that packets have to pass, if there are some.
    pub(crate) filter: Option<Box<Filter>>,
    /// Counts of flows that the filters of several stacks share.
    pub(crate) limits: Option<Board>,
    mtu: u16,
    /// The largest packet that any link takes.
    mtu_max: u16,
    tso_max: u32,
    pub(crate) routes: Routes,
    pub(crate) routes6: Routes6,
    /// Key of flow labels.
    label_key: SipKey,
    pub(crate) neighbours: Neighbours,
    destinations: Destinations,
    identifications: Identifications,
    /// Our addresses that others have claimed, and when they were defended last.
    defended: Vec<(Ipv4Addr, Instant)>,
    /// Allocated when addresses are first announced.
    pub(crate) announcements: Option<Announcements>,
    /// Multicast groups besides those of our own addresses. Allocated for the first.
    pub(crate) groups: Option<Box<Groups>>,
    /// Made for the first that is learnt.
    path_mtus: Option<Box<PathMtus>>,
    /// Asks the link's routers, if we do.
    pub(crate) slaac: Option<Box<Discovery>>,
    /// Configuration learnt from routers.
    pub(crate) learnt: Box<Learnt>,
    /// Which of their routers do not answer.
    pub(crate) lost_routers: LostRouters,
    /// Counts its changes.
    pub(crate) learnt_revision: u32,
    /// Further links, each with the largest packet that it takes.
    link_mtus: Vec<(u16, u16)>,
}

impl NetworkLayer {
    pub fn new(config: &StackConfig, rng: &mut Rng) -> Self {
        let routes6 = routes6(&config.network);
        let mut link = Self {
            macs: Macs::new(config.mac),
            filter: None,
            limits: None,
            mtu: config.network.own().mtu,
            mtu_max: config.network.own().mtu,
            tso_max: config.tso_max,
            routes: routes4(&config.network),
            groups: own_groups(config, &routes6),
            routes6,
            neighbours: Neighbours::new(config.neighbour.clone(), rng.sip_key()),
            choices: Choices::default(),
            destinations: Destinations::new(),
            identifications: Identifications::new(rng),
            defended: Vec::new(),
            announcements: None,
            path_mtus: None,
            slaac: None,
            learnt: Box::default(),
            lost_routers: LostRouters::default(),
            learnt_revision: 0,
            label_key: rng.sip_key(),
            link_mtus: Vec::new(),
        };
        link.set_links(&config.network);
        link.neighbours.set_permanent(&config.network.neighbours);
        link
    }

    /// Records the MTUs of further links, and our link-layer addresses there.
    pub(crate) fn set_links(&mut self, network: &NetworkState) {
        self.link_mtus = links(network).map(|it| (it.link, it.mtu)).collect();
        self.link_mtus.sort_unstable();
        let mut macs = network.ports().map(|it| it.mac);
        // A network that is made by hand tells none; an interface may be made again with another.
        if let Some(first) = macs.next().filter(|mac| *mac != [0; 6]) {
            self.macs.first = first;
        }
        self.macs.set_others(&macs.collect::<Vec<_>>());
        self.renew_mtu_max();
    }

    /// The next hop that was last found for a destination ([`bound::bits`]), if it may still be
    /// used.
    #[inline]
    pub fn recall(&self, dst: u128, now: Instant) -> Option<NextHop> {
        self.destinations
            .find(dst)
            .filter(|hop| self.is_current(hop, now))
    }

    /// Returns the limits of the way to a destination behind this next hop.
    #[inline]
    pub fn path_over(&self, hop: &NextHop) -> Path {
        Path {
            mtu: hop.mtu,
            tso_max: self.tso_max_of(hop.local),
            local: hop.local,
        }
    }

    /// Returns how many bytes one segment on its way through the device, or to ourselves, may have;
    /// 0: as many as a packet.
    #[inline]
    fn tso_max_of(&self, is_local: bool) -> u32 {
        if is_local {
            LOCAL_TSO_MAX
        } else {
            self.tso_max
        }
    }

    /// Returns the path's limits for a destination whose next hop may be known; `None` if there is
    /// no route.
    #[inline]
    pub fn path_by(
        &self,
        now: Instant,
        hop: &Option<NextHop>,
        query: impl FnOnce() -> Query,
    ) -> Option<Path> {
        match hop {
            Some(hop) => Some(self.path_over(hop)),
            None => self.find_path_by(now, &query()),
        }
    }

    /// Returns whether a next hop may still be used.
    #[inline]
    pub fn is_current(&self, hop: &NextHop, now: Instant) -> bool {
        hop.epoch == self.neighbours.epoch() && now < hop.valid_until
    }

    /// Returns whether datagrams to this IPv4 group on a link are for us. Queries are, if this
    /// stack answers them.
    pub(crate) fn hears_v4(&self, link: u16, group: Ipv4Addr) -> bool {
        group == igmp::ALL_SYSTEMS || self.hears(link, group.into())
    }

    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if self.routes.is_broadcast(ip))
    }

    /// Returns whether a socket has joined the group on this link.
    pub(crate) fn hears(&self, link: u16, group: IpAddr) -> bool {
        let groups = self.groups.as_ref();
        groups.is_some_and(|groups| groups.hears(link, group))
    }

    /// Requests that timers are checked no later than this.
    pub(crate) fn look_at(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.neighbours.look_at(at);
        }
    }

    /// Returns whether one of our addresses, which another station claims, is to be defended now,
    /// and records it.
    pub(crate) fn may_defend(&mut self, now: Instant, ip: Ipv4Addr) -> bool {
        let found = self.defended.iter_mut().find(|(own, _)| *own == ip);
        match found {
            Some((_, last)) if now < last.plus_nanos(DEFEND_INTERVAL_NS) => return false,
            Some((_, last)) => *last = now,
            None => self.defended.push((ip, now)),
        }
        true
    }

    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the link on which a neighbour is; 0 = the device's own.
    pub(crate) fn link_of(&self, ip: IpAddr) -> u16 {
        match ip {
            IpAddr::V4(ip) => self.routes.link_of(ip),
            IpAddr::V6(ip) => self.routes6.link_of(ip),
        }
    }

    /// Requests for neighbours are sent from addresses that are ours.
    pub(crate) fn renew_sources(&mut self) {
        let Self {
            neighbours,
            routes,
            routes6,
            ..
        } = self;
        neighbours.renew_sources(|ip, source| match (ip, source) {
            (IpAddr::V4(ip), IpAddr::V4(source)) => {
                let renewed = match routes.is_own(source) {
                    true => None,
                    false => routes.find_source(ip),
                };
                (IpAddr::V4(renewed.unwrap_or(source)), routes.link_of(ip))
            }
            (IpAddr::V6(ip), IpAddr::V6(source)) => {
                let renewed = match routes6.is_own(source) {
                    true => None,
                    false => routes6.find_source(ip),
                };
                (IpAddr::V6(renewed.unwrap_or(source)), routes6.link_of(ip))
            }
            (_, source) => (source, 0),
        });
    }

    /// Returns the link on which we have an address.
    pub fn link_of_own(&self, ip: IpAddr) -> u16 {
        match ip {
            IpAddr::V4(ip) => self.routes.link_of_own(ip),
            IpAddr::V6(ip) => self.routes6.link_of_own(ip),
        }
    }

    /// Returns whether an address is one of ours.
    #[inline]
    pub fn is_own(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.routes.is_own(ip),
            IpAddr::V6(ip) => self.routes6.is_own(ip),
        }
    }

    /// The address we use towards `dst`; `None` = no route.
    pub fn find_source(&self, dst: IpAddr) -> Option<IpAddr> {
        self.find_source_by(&Query::to(dst))
    }

    /// Finds the source address for a socket by its choice and its ports.
    pub fn find_source_by(&self, query: &Query) -> Option<IpAddr> {
        match query.dst {
            IpAddr::V4(dst) => self.routes.find_source_by(dst, query).map(IpAddr::V4),
            IpAddr::V6(dst) => self.routes6.find_source_by(dst, query).map(IpAddr::V6),
        }
    }

    /// `None`: there is no route.
    pub fn find_path(&self, now: Instant, src: Option<IpAddr>, dst: IpAddr) -> Option<Path> {
        self.find_path_by(now, &Query::between(src, dst))
    }

    /// Finds the way for a socket with a choice.
    pub fn find_path_by(&self, now: Instant, query: &Query) -> Option<Path> {
        let (found, dst) = (self.find_route(query)?, query.dst);
        let local = found.route == Route::Local;
        Some(Path {
            mtu: self.mtu_of(now, dst, &found),
            tso_max: self.tso_max_of(local),
            local,
        })
    }

    fn find_route(&self, query: &Query) -> Option<Found> {
        match query.dst {
            IpAddr::V4(_) => self.routes.find(query),
            IpAddr::V6(_) => self.routes6.find(query),
        }
    }

    /// Returns the error for an unreachable destination: Linux distinguishes a route that refuses
    /// from no route.
    #[cold]
    pub(crate) fn refusal(&self, query: &Query) -> SocketError {
        let fib = self.fib(query.dst.is_ipv6());
        match fib.find_refusal(query) {
            Some(Target::Refused(RuleAction::Prohibit)) => SocketError::NotPermitted,
            // fib4_rule_action(): any other action is EINVAL.
            Some(Target::Refused(RuleAction::Blackhole)) => SocketError::InvalidArgument,
            Some(Target::Unreachable) => SocketError::HostUnreachable,
            _ => SocketError::NetUnreachable,
        }
    }

    /// Next hop of a packet of others, with the size that its path takes.
    pub(crate) fn find_transit(&self, now: Instant, packet: &OutPacket) -> Option<Found> {
        let found = self.find_route(&packet.query())?;
        let mtu = Some(self.mtu_of(now, packet.dst, &found));
        Some(Found { mtu, ..found })
    }

    /// The tables and rules of a family.
    pub(crate) fn fib(&self, is_v6: bool) -> &Fib {
        if is_v6 {
            &self.routes6.fib
        } else {
            &self.routes.fib
        }
    }

    /// Changes them; all next hops that are kept somewhere are looked up again.
    pub(crate) fn change_fib<R>(&mut self, is_v6: bool, change: impl FnOnce(&mut Fib) -> R) -> R {
        self.neighbours.renew_epoch();
        let fib = match is_v6 {
            true => &mut self.routes6.fib,
            false => &mut self.routes.fib,
        };
        let result = change(fib);
        fib.build_index();
        result
    }

    /// RFC 1122 3.2.1.7: returns the hop limit of packets whose sender has selected this one, or
    /// none (0), by the query for their route.
    #[inline]
    pub(crate) fn ttl(&self, is_v6: bool, chosen: u8, query: impl FnOnce() -> Query) -> u8 {
        match chosen {
            0 if is_v6 && !self.learnt.links.is_empty() => self.told_hop_limit(&query()),
            0 => DEFAULT_TTL,
            chosen => chosen,
        }
    }

    /// RFC 4861 6.3.2: the hop limit that the routers of the link advertise by which a packet
    /// leaves.
    #[cold]
    fn told_hop_limit(&self, query: &Query) -> u8 {
        let link = self.find_route(query).map_or(0, |found| found.link);
        let mut links = self.learnt.links.iter();
        let told = links.find(|it| it.link == link);
        told.and_then(|it| it.hop_limit).unwrap_or(DEFAULT_TTL)
    }

    fn find_next_hop(
        &mut self,
        now: Instant,
        packet: &OutPacket,
        counters: &mut Counters,
        fx: &mut impl Effects,
    ) -> Hop {
        let Some(found) = self.find_route(&packet.query()) else {
            return Hop::NoRoute;
        };
        let mtu = self.mtu_of(now, packet.dst, &found);
        let (mac, local, valid_until) = match found.route {
            Route::Local => (self.macs.first, true, Instant::FAR_FUTURE),
            Route::Broadcast => (ethernet::BROADCAST, false, Instant::FAR_FUTURE),
            Route::Multicast => (group_mac(packet.dst), false, Instant::FAR_FUTURE),
            Route::Neighbour(hop) => {
                // The source may be nobody's address here (IP_TRANSPARENT).
                let asker = Some(packet.src).filter(|src| self.is_own(*src));
                let asker = asker.or_else(|| self.find_source(hop));
                let station = Station {
                    mac: self.macs.on(found.link),
                    ip: asker.unwrap_or(packet.src),
                    link: found.link,
                };
                match self.neighbours.resolve(now, hop, station, counters, fx) {
                    Resolution::Known { mac, valid_until } => (mac, false, valid_until),
                    Resolution::Asking => {
                        // Stands in frames until the neighbour has answered.
                        let unresolved = NextHop {
                            mac: [0; 6],
                            local: false,
                            mtu,
                            link: found.link,
                            class: packet.choice.class,
                            epoch: self.neighbours.epoch(),
                            valid_until: now,
                        };
                        return Hop::Asking(hop, unresolved);
                    }
                    Resolution::TableFull => return Hop::TableFull,
                }
            }
        };
        Hop::Known(NextHop {
            mac,
            local,
            mtu,
            link: if local { 0 } else { found.link },
            class: packet.choice.class,
            epoch: self.neighbours.epoch(),
            valid_until,
        })
    }
}

/// Returns the groups of our own addresses, which are reported to routers and switches by the stack
/// that answers for them.
fn own_groups(config: &StackConfig, routes: &Routes6) -> Option<Box<Groups>> {
    if config.role == Role::Engine {
        return None;
    }
    let mut groups: Option<Box<Groups>> = None;
    for group in routes.reported_groups() {
        let groups = groups.get_or_insert_default();
        groups.want(Asker::Address, group, GroupFilter::ALL);
    }
    if let Some(groups) = &mut groups {
        groups.keep_quiet();
    }
    groups
}

fn group_mac(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(group) => ethernet::multicast_v4(group),
        IpAddr::V6(group) => ethernet::multicast_v6(group),
    }
}
