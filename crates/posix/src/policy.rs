//! What belongs on the stack, as this process knows it: asked for once, and again when the engine says that the network
//! has changed. Before there is an engine it is asked for again now and then.

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use slipstack_channel::Policy;
use slipstack_mem::{Lock, now_ns};

use crate::process::Process;

/// How old what may change may be.
const AGE_MAX_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub(crate) struct Known {
    /// What was answered first.
    first: OnceLock<Option<Policy>>,
    /// Taken while that is asked for.
    asking: Lock<()>,
    now: Lock<Option<Fresh>>,
    /// `now` has something.
    has_other: AtomicBool,
    /// The link's MTU, once that was asked for again; 0 = it was not.
    mtu: AtomicU16,
    mtu_asked_ns: AtomicU64,
}

struct Fresh {
    policy: Arc<Policy>,
    asked_ns: u64,
}

impl Known {
    /// Over a fork. After the sockets: who looks at one asks.
    pub(crate) fn hold(&self) {
        self.asking.hold();
        self.now.hold();
    }

    pub(crate) fn release(&self) {
        self.now.release();
        self.asking.release();
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

impl Process {
    /// `None`: nobody can be asked.
    pub(crate) fn policy(&self) -> Option<Current<'_>> {
        let first = self.first_policy()?;
        let link = self.link();
        let told = link.map(|link| link.program().network_revision());
        if told == Some(first.revision) && !self.policy.has_other.load(Ordering::Relaxed) {
            return Some(Current::Fixed(first));
        }
        let now = now_ns();
        let is_current = |known: &Fresh| match told {
            // The engine has said whether the network has changed.
            Some(revision) => known.policy.revision == revision,
            None => now.saturating_sub(known.asked_ns) < AGE_MAX_NS,
        };
        let mut fresh = self.policy.now.lock();
        if let Some(known) = fresh.as_ref().filter(|known| is_current(known)) {
            return Some(Current::Fresh(Arc::clone(&known.policy)));
        }
        let policy = match (self.attach.policy_by_now(), fresh.as_ref()) {
            (Ok(policy), _) => Arc::new(policy),
            // Nobody answers just now: what was known goes on to hold.
            (Err(_), Some(known)) => Arc::clone(&known.policy),
            (Err(_), None) => Arc::new(first.clone()),
        };
        *fresh = Some(Fresh {
            policy: Arc::clone(&policy),
            asked_ns: now,
        });
        self.policy.has_other.store(true, Ordering::Relaxed);
        Some(Current::Fresh(policy))
    }

    /// What was last asked for, for calls that are too frequent to look for changes.
    fn last_policy(&self) -> Option<Current<'_>> {
        let first = self.first_policy()?;
        if self.policy.has_other.load(Ordering::Relaxed)
            && let Some(fresh) = &*self.policy.now.lock()
        {
            return Some(Current::Fresh(Arc::clone(&fresh.policy)));
        }
        Some(Current::Fixed(first))
    }

    /// Largest packet to `ip`, as far as is known here.
    pub(crate) fn mtu_to(&self, ip: IpAddr) -> u16 {
        let Some(policy) = self.last_policy() else {
            return u16::MAX;
        };
        match self.policy.mtu.load(Ordering::Relaxed) {
            0 => policy.mtu_to(ip),
            mtu => match (ip.to_canonical(), policy.mtu_v6) {
                (IpAddr::V6(_), Some(told)) => told.min(mtu),
                _ => mtu,
            },
        }
    }

    /// Before something is called too large: the link may take more by now. `true`: it does, or takes less.
    #[cold]
    pub(crate) fn has_other_mtu(&self) -> bool {
        let (known, now) = (&self.policy, now_ns());
        let asked = known.mtu_asked_ns.load(Ordering::Relaxed);
        if now.saturating_sub(asked) < AGE_MAX_NS {
            return false;
        }
        known.mtu_asked_ns.store(now, Ordering::Relaxed);
        let Ok(policy) = self.attach.policy_by_now() else {
            return false;
        };
        known.mtu.swap(policy.mtu, Ordering::Relaxed) != policy.mtu
    }

    /// The stack's interface by its number in the kernel, 0 = it has none there.
    pub(crate) fn stack_interface(&self) -> u32 {
        self.first_policy().map_or(0, |policy| policy.interface)
    }

    fn first_policy(&self) -> Option<&Policy> {
        let first = &self.policy.first;
        if let Some(policy) = first.get() {
            return policy.as_ref();
        }
        // A fork waits until it is known: a child of one in between would wait for ever.
        let _asking = self.policy.asking.lock();
        let policy = first.get_or_init(|| match self.attach.policy() {
            Ok(policy) => Some(policy),
            Err(error) => {
                self.on_trouble(&error, self.now_ns());
                None
            }
        });
        policy.as_ref()
    }

    pub(crate) fn is_own(&self, addr: SocketAddr) -> bool {
        self.policy().is_some_and(|policy| policy.is_own(addr.ip()))
    }

    pub(crate) fn is_reachable(&self, addr: SocketAddr) -> bool {
        self.policy()
            .is_some_and(|policy| policy.is_reachable(addr.ip()))
    }
}
