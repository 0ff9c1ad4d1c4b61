//! The network as this process knows it: reachable networks, own addresses, packet sizes.
//!
//! The policy is fetched once, and again when the engine reports that the network has changed.
//! Before there is an engine it is fetched again from time to time.

mod choosing;
mod filters;
mod groups;
mod judging;

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use slipstack_channel::control::net::{LinkId, zone};
use slipstack_channel::{Asker, Policy};
use slipstack_mem::{Lock, now_ns};

use crate::addr::{AddrBytes, Family, Given, is_link_local, scope_of};
use crate::process::engines::Engines;
use crate::socket::description::Description;
use crate::socket::options::Options;

/// Largest age of information that may change.
const AGE_MAX_NS: u64 = 1_000_000_000;

/// The network of the engines that this process has or would have.
pub(crate) struct Network {
    engines: Arc<Engines>,
    /// The first answer.
    first: OnceLock<Option<Policy>>,
    /// Held while the policy is requested.
    asking: Lock<()>,
    now: Lock<Option<Fresh>>,
    /// `now` has something.
    has_other: AtomicBool,
    /// The first answer of the revision that the engine reports.
    settled: OnceLock<Arc<Policy>>,
    /// The engine has reported another revision since.
    has_changed: AtomicBool,
    /// The link's MTU if it was requested again; 0 = not.
    mtu: AtomicU16,
    mtu_asked_ns: AtomicU64,
}

struct Fresh {
    policy: Arc<Policy>,
    asked_ns: u64,
}

impl Network {
    pub(super) fn new(engines: Arc<Engines>) -> Network {
        Network {
            engines,
            first: OnceLock::new(),
            asking: Lock::default(),
            now: Lock::default(),
            has_other: AtomicBool::new(false),
            settled: OnceLock::new(),
            has_changed: AtomicBool::new(false),
            mtu: AtomicU16::new(0),
            mtu_asked_ns: AtomicU64::new(0),
        }
    }

    /// Locks over a fork, after the sockets, because code that holds a socket may lock this.
    pub(crate) fn hold(&self) {
        self.asking.hold();
        self.now.hold();
    }

    pub(crate) fn release(&self) {
        self.now.release();
        self.asking.release();
    }

    /// Returns `None` if the keeper cannot be asked.
    pub(crate) fn policy(&self) -> Option<Current<'_>> {
        let first = self.first_policy()?;
        let revision = self.engines.network_revision();
        if let Some(settled) = self.settled(first)
            && revision == Some(settled.network().revision)
        {
            return Some(Current::Fixed(settled));
        }
        Some(Current::Fresh(self.fresh_policy(first, revision)))
    }

    /// Returns the policy that has been in force since there is an engine, or is the only one so
    /// far; `None` once there has been another one.
    fn settled<'a>(&'a self, first: &'a Policy) -> Option<&'a Policy> {
        if self.has_changed.load(Ordering::Relaxed) {
            return None;
        }
        match self.settled.get() {
            Some(settled) => Some(settled),
            None => (!self.has_other.load(Ordering::Relaxed)).then_some(first),
        }
    }

    /// Returns the last answer if it is current, or else asks the keeper.
    #[cold]
    fn fresh_policy(&self, first: &Policy, revision: Option<u64>) -> Arc<Policy> {
        let is_current = |known: &Fresh| match revision {
            // The engine has reported whether the network has changed.
            Some(revision) => known.policy.network().revision == revision,
            None => now_ns().saturating_sub(known.asked_ns) < AGE_MAX_NS,
        };
        let mut fresh = self.now.lock();
        let policy = match fresh.as_ref() {
            Some(known) if is_current(known) => Arc::clone(&known.policy),
            known => {
                let asked_ns = now_ns();
                let policy = match (self.engines.attach.policy_by_now(), known) {
                    (Ok(policy), _) => Arc::new(policy),
                    // The keeper does not answer now: the known policy stays in force.
                    (Err(_), Some(known)) => Arc::clone(&known.policy),
                    (Err(_), None) => Arc::new(first.clone()),
                };
                *fresh = Some(Fresh {
                    policy: Arc::clone(&policy),
                    asked_ns,
                });
                self.has_other.store(true, Ordering::Relaxed);
                policy
            }
        };
        // A program asks before it has an engine, too: calls are not to lock for ever after that.
        if revision == Some(policy.network().revision) {
            let settled = self.settled.get_or_init(|| Arc::clone(&policy));
            if settled.network().revision != policy.network().revision {
                self.has_changed.store(true, Ordering::Relaxed);
            }
        }
        policy
    }

    /// Returns the last policy, for calls that are too frequent to check for changes.
    fn last_policy(&self) -> Option<Current<'_>> {
        let first = self.first_policy()?;
        if let Some(settled) = self.settled(first) {
            return Some(Current::Fixed(settled));
        }
        match &*self.now.lock() {
            Some(fresh) => Some(Current::Fresh(Arc::clone(&fresh.policy))),
            None => Some(Current::Fixed(first)),
        }
    }

    /// Largest packet to `ip`, as far as is known here.
    pub(crate) fn mtu_to(&self, ip: IpAddr) -> u16 {
        let Some(policy) = self.last_policy() else {
            return u16::MAX;
        };
        match self.mtu.load(Ordering::Relaxed) {
            0 => policy.mtu_to(ip),
            mtu => policy.mtu_by(mtu, ip),
        }
    }

    /// Reads the network again before a datagram is refused as too large. Returns `true` if the
    /// link's MTU has changed.
    #[cold]
    pub(crate) fn has_other_mtu(&self) -> bool {
        let now = now_ns();
        let asked = self.mtu_asked_ns.load(Ordering::Relaxed);
        if now.saturating_sub(asked) < AGE_MAX_NS {
            return false;
        }
        self.mtu_asked_ns.store(now, Ordering::Relaxed);
        let Ok(policy) = self.engines.attach.policy_by_now() else {
            return false;
        };
        let mtu = policy.network().own().mtu;
        self.mtu.swap(mtu, Ordering::Relaxed) != mtu
    }

    /// The stack's interface by its number in the kernel, 0 = it has none there.
    pub(crate) fn stack_interface(&self) -> u32 {
        self.first_policy().map_or(0, |policy| policy.interface())
    }

    /// The number in the kernel of the interface that a link of the stack is, that of the first for
    /// none.
    pub(crate) fn interface_of(&self, link: Option<u16>) -> u32 {
        let Some(link) = link.filter(|link| *link != 0) else {
            return self.stack_interface();
        };
        let policy = self.policy();
        let found = policy.as_ref().and_then(|it| it.network().find_link(link));
        found.map_or_else(|| self.stack_interface(), |it| it.index)
    }

    /// The stack's link that an interface is; `None`: it is none of the stack's.
    pub(crate) fn link_of_interface(&self, index: u32) -> Option<u16> {
        let policy = self.policy().filter(|_| index != 0)?;
        // With one interface there is nothing to choose.
        let interfaces = &policy.network().interfaces;
        let mut several = interfaces.iter().filter(|_| interfaces.len() > 1);
        several.find(|it| it.index == index).map(|it| it.link)
    }

    /// Whether an interface is one of the stack's.
    pub(crate) fn is_interface_of_stack(&self, index: u32) -> bool {
        index == self.stack_interface() || self.link_of_interface(index).is_some()
    }

    /// Adds an interface of the stack to a link-local address as its link: above the kernel's
    /// sockets this distinguishes it from the same address on another link.
    pub(crate) fn zoned(&self, mut addr: SocketAddr) -> SocketAddr {
        if is_link_local(addr.ip())
            && let Some(link) = self.link_of_interface(scope_of(addr))
        {
            addr.set_ip(zone::zoned_ip(addr.ip(), LinkId(link)));
        }
        addr
    }

    /// As [`Network::zoned`], for an address that a program passes to a socket: without an
    /// interface, the socket's binding counts.
    #[inline]
    pub(crate) fn zoned_to(&self, socket: &Description, addr: SocketAddr) -> SocketAddr {
        match is_link_local(addr.ip()) {
            true => self.zoned_by(socket, addr),
            false => addr,
        }
    }

    #[cold]
    fn zoned_by(&self, socket: &Description, addr: SocketAddr) -> SocketAddr {
        if scope_of(addr) != 0 {
            return self.zoned(addr);
        }
        let bound = socket.cold.lock().bound;
        let link = bound.map_or(LinkId(0), |bound| zone::zone_of_ip(bound.addr.ip()));
        SocketAddr::new(zone::zoned_ip(addr.ip(), link), addr.port())
    }

    pub(crate) fn zoned_for(&self, socket: &Description, given: Given) -> Given {
        match given {
            Given::Addr(addr) => Given::Addr(self.zoned_to(socket, addr)),
            other => other,
        }
    }

    /// The source that a message of control data names, with the interface that it names.
    pub(crate) fn zoned_source(&self, src: IpAddr, interface: u32) -> IpAddr {
        match self.link_of_interface(interface) {
            Some(link) => zone::zoned_ip(src, LinkId(link)),
            None => src,
        }
    }

    /// An address of the stack's as a socket of `family` shows it.
    pub(crate) fn shown(&self, addr: SocketAddr, family: Family) -> AddrBytes {
        let interface = match is_link_local(addr.ip()) {
            true => self.interface_of(Some(zone::zone_of_ip(addr.ip()).0)),
            false => 0,
        };
        AddrBytes::on_stack(addr, family, interface)
    }

    fn first_policy(&self) -> Option<&Policy> {
        let first = &self.first;
        if let Some(policy) = first.get() {
            return policy.as_ref();
        }
        // A fork waits for the answer: a child forked before it would wait for ever.
        let _asking = self.asking.lock();
        let policy = first.get_or_init(|| match self.engines.attach.policy() {
            Ok(policy) => Some(policy),
            Err(error) => {
                self.engines.on_trouble(&error, self.engines.now_ns());
                None
            }
        });
        policy.as_ref()
    }

    pub(crate) fn is_own(&self, addr: SocketAddr) -> bool {
        self.policy().is_some_and(|policy| policy.is_own(addr.ip()))
    }

    /// Returns whether the stack has a route there for a socket with these options.
    pub(crate) fn is_reachable(
        &self,
        addr: SocketAddr,
        options: &Options,
        bound: Option<SocketAddr>,
    ) -> bool {
        self.policy().is_some_and(|policy| {
            let own = bound.map(|bound| bound.ip().to_canonical());
            let (mark, table) = options.mark_and_table();
            let own = own.filter(|own| policy.is_own(*own));
            policy.is_reachable(addr.ip(), Asker { own, mark, table })
        })
    }
}

/// A policy at hand.
pub(crate) enum Current<'a> {
    Fixed(&'a Policy),
    Fresh(Arc<Policy>),
}

impl Deref for Current<'_> {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        match self {
            Current::Fixed(policy) => policy,
            Current::Fresh(policy) => policy,
        }
    }
}
