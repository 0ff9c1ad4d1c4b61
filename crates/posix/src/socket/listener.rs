//! A listening TCP socket: the kernel's under the number and, from the first wait on, the stack's
//! beside it.
//!
//! Listening on the stack is an intent until the process first waits on the socket or accepts: in a
//! server that forks workers each worker listens, on its own engine, and the master needs no
//! engine. The kernel's listener settles conflicts with other programs at once; one for an address
//! of the stack is bound with IP_FREEBIND and receives nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use slipstack_channel::SockId;
use slipstack_mem::Lock;

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::ready::{Look, bits};

/// Interval of checks of the kernel's queue without a hint from its readiness.
const KERNEL_LOOK_NS: u64 = 50_000;
/// While the stack's queue never empties, one accept in this many asks the kernel first.
const KERNEL_TURN: u32 = 16;

#[derive(Debug)]
pub(crate) struct Listener {
    /// The address that the stack listens on; the port is known.
    pub(crate) addr: SocketAddr,
    pub(crate) backlog: AtomicI32,
    /// Accepted by the stack and not yet by the program.
    pending: AtomicUsize,
    is_shut: AtomicBool,
    /// The stack does not want it (no attachment, port taken): only the kernel's remains.
    is_refused: AtomicBool,
    /// The pending error of its refusal (`--strict`); 0 = none.
    refusal: AtomicI32,
    is_realized: AtomicBool,
    /// Set once this process has waited on the listener or accepted: it is no mere parent of
    /// workers.
    is_waited: AtomicBool,
    /// The stack leaves its connections to other listeners of the address.
    is_yielding: AtomicBool,
    stack: Lock<Option<(Arc<Attachment>, SockId)>>,
    turn: AtomicU32,
    is_kernel_ready: AtomicBool,
    kernel_looked_ns: AtomicU64,
}

impl Listener {
    pub(crate) fn new(addr: SocketAddr, backlog: i32) -> Self {
        Listener {
            addr,
            backlog: AtomicI32::new(backlog),
            pending: AtomicUsize::new(0),
            is_shut: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            refusal: AtomicI32::new(0),
            is_realized: AtomicBool::new(false),
            is_waited: AtomicBool::new(false),
            is_yielding: AtomicBool::new(false),
            stack: Lock::new(None),
            turn: AtomicU32::new(0),
            is_kernel_ready: AtomicBool::new(true),
            kernel_looked_ns: AtomicU64::new(0),
        }
    }

    /// Returns whether the listener is still an intent.
    pub(crate) fn is_intent(&self) -> bool {
        !self.is_realized.load(Ordering::Acquire) && !self.is_refused.load(Ordering::Relaxed)
    }

    /// The program waits on it.
    pub(crate) fn on_wait(&self) {
        self.is_waited.store(true, Ordering::Relaxed);
    }

    /// Makes the listener an intent again after a fork, unless the process has waited on it itself:
    /// its workers will. Returns the stack's part, to be released.
    pub(crate) fn demote(&self) -> Option<(Arc<Attachment>, SockId)> {
        if self.is_waited.load(Ordering::Relaxed) || self.pending.load(Ordering::Acquire) > 0 {
            return None;
        }
        let part = self.stack.try_lock()?.take()?;
        self.is_yielding.store(false, Ordering::Release);
        self.is_realized.store(false, Ordering::Release);
        Some(part)
    }

    /// Handles an unaccepted connection that has gone to another listener, as later ones do.
    pub(crate) fn on_withdrawal(&self) {
        let _ = self
            .pending
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        // The check for waiting threads comes after this.
        self.is_yielding.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn is_yielding(&self) -> bool {
        self.is_yielding.load(Ordering::SeqCst)
    }

    /// Takes connections again, because a thread waits on it.
    pub(crate) fn come_back(&self) {
        fence(Ordering::SeqCst);
        if !self.is_yielding() {
            return;
        }
        if let Some((attachment, sock)) = &*self.stack.lock()
            && self.is_yielding.swap(false, Ordering::AcqRel)
        {
            attachment.resume(*sock);
        }
    }

    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Makes the next accept return the refusal, and the listener ready for it.
    pub(crate) fn tell_refusal(&self, error: Errno) {
        self.refusal.store(error.0, Ordering::Relaxed);
        self.pending.store(1, Ordering::Release);
    }

    pub(crate) fn take_refusal(&self) -> Option<Errno> {
        match self.refusal.swap(0, Ordering::Relaxed) {
            0 => None,
            error => {
                self.pending.store(0, Ordering::Release);
                Some(Errno(error))
            }
        }
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// The program tries once more.
    pub(crate) fn forget_refusal(&self) {
        self.is_refused.store(false, Ordering::Relaxed);
    }

    /// The right to make the intent real; only one thread does.
    pub(crate) fn stack(&self) -> slipstack_mem::Guard<'_, Option<(Arc<Attachment>, SockId)>> {
        self.stack.lock()
    }

    pub(crate) fn set_realized(&self) {
        self.is_realized.store(true, Ordering::Release);
    }

    /// Forgets the engine it listened on, which is gone; a wait in progress, or the next one, finds
    /// another. A listener that has found it already keeps it.
    pub(crate) fn forget_stack(&self, dead: &Arc<Attachment>) {
        let mut stack = self.stack.lock();
        if stack
            .as_ref()
            .is_none_or(|(attachment, _)| !Arc::ptr_eq(attachment, dead))
        {
            return;
        }
        *stack = None;
        self.pending.store(0, Ordering::Release);
        self.is_yielding.store(false, Ordering::Release);
        self.is_realized.store(false, Ordering::Release);
    }

    /// Handles a move to another engine: connections that waited at the old one arrive as new ones.
    pub(crate) fn on_move(&self) {
        self.is_yielding.store(false, Ordering::Release);
    }

    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// Connections of the stack's that the program has not accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Handles the channel's event of a waiting connection.
    pub(crate) fn on_arrival(&self) {
        self.pending.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn readiness(&self) -> u32 {
        // tcp_poll(), TCP_CLOSE.
        if self.is_shut() {
            return bits::OUT | bits::HUP;
        }
        if self.pending.load(Ordering::Acquire) > 0 {
            bits::IN
        } else {
            0
        }
    }

    /// The next connection of the stack's.
    pub(crate) fn accept(&self) -> Result<Option<(Arc<Attachment>, SockId)>, Errno> {
        let pending = self.pending.load(Ordering::Acquire);
        if pending == 0 {
            return Ok(None);
        }
        let stack = self.stack.lock();
        let Some((attachment, listener)) = stack.as_ref() else {
            return self.take_refusal().map_or(Ok(None), Err);
        };
        let Some(sock) = attachment.program.accept(*listener) else {
            // Connections announced since then are in the queue.
            let _ = self
                .pending
                .compare_exchange(pending, 0, Ordering::AcqRel, Ordering::Relaxed);
            return Ok(None);
        };
        let _ = self
            .pending
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        Ok(Some((Arc::clone(attachment), sock)))
    }

    /// Whether the kernel goes first this time. `look`: what a wait knows of the kernel's queue;
    /// `None`: the call has not waited.
    pub(crate) fn is_kernels_turn(&self, look: Option<Look>) -> bool {
        look.is_none_or(Look::is_due)
            && self.turn.fetch_add(1, Ordering::Relaxed) % KERNEL_TURN == KERNEL_TURN - 1
    }

    /// Readiness of the kernel's part was reported to the program.
    pub(crate) fn on_kernel_ready(&self) {
        self.is_kernel_ready.store(true, Ordering::Relaxed);
    }

    /// Returns whether asking the kernel for a connection is worth a system call now. `look`: as in
    /// [`Listener::is_kernels_turn`]; the sleeps of a wait ask the kernel too.
    pub(crate) fn may_kernel_have(&self, look: Option<Look>, now_ns: impl FnOnce() -> u64) -> bool {
        if let Some(look) = look {
            return look.is_due();
        }
        let now_ns = now_ns();
        let looked = self.kernel_looked_ns.load(Ordering::Relaxed);
        if self.is_kernel_ready.load(Ordering::Relaxed)
            || now_ns.wrapping_sub(looked) >= KERNEL_LOOK_NS
        {
            self.kernel_looked_ns.store(now_ns, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// The kernel's queue was found empty.
    pub(crate) fn on_kernel_empty(&self) {
        self.is_kernel_ready.store(false, Ordering::Relaxed);
    }

    /// Changes how many connections may wait (`listen` again).
    pub(crate) fn set_backlog(&self, backlog: i32) -> Result<(), Errno> {
        self.backlog.store(backlog, Ordering::Relaxed);
        if let Some((attachment, sock)) = &*self.stack() {
            attachment.listen(*sock, u32::try_from(backlog).unwrap_or(0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::Ask;

    #[test]
    fn a_wait_asks_the_kernel_only_where_its_sleep_has_not() {
        let listener = Listener::new(SocketAddr::from(([10, 0, 0, 1], 80)), 1);
        let mut now_ns = 0;
        for (kernel, asks) in [
            (Ask::Nothing, false),
            (Ask::Later, false),
            (Ask::Due, true),
            (Ask::Nothing, false),
        ] {
            now_ns += 10 * KERNEL_LOOK_NS;
            let look = Some(Look { kernel, now_ns });
            assert_eq!(listener.may_kernel_have(look, || now_ns), asks);
            assert!((0..KERNEL_TURN).any(|_| listener.is_kernels_turn(look)) == asks);
        }
    }

    #[test]
    fn a_call_that_does_not_wait_asks_the_kernel_now_and_then() {
        let listener = Listener::new(SocketAddr::from(([10, 0, 0, 1], 80)), 1);
        let asks = |now_ns| listener.may_kernel_have(None, || now_ns);
        assert!(asks(1), "nobody has looked");
        listener.on_kernel_empty();
        assert!(!asks(2));
        assert!(asks(1 + KERNEL_LOOK_NS));
        listener.on_kernel_ready();
        assert!(asks(2 + KERNEL_LOOK_NS));
    }
}
