//! One run of packetdrill: a world and its settings.
//!
//! packetdrill waits for the time of an event by sleeping until shortly before it and then polling
//! the clock. In virtual time that would take for ever, so the clock advances with each poll that
//! follows another one.
//!
//! Blocking calls are made on a second thread, which reads the clock when they return. The first
//! thread's next wait lets no time pass before that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use slipstack_drill::run::RunSettings;
use slipstack_drill::world::{KernelOptions, World};

/// Time that a reading of the clock takes.
const LOOK_NS: u64 = 1_000;
/// Time to wait for a thread whose call has returned: it may not read the clock.
const LOOK_DUE: Duration = Duration::from_millis(100);

pub struct Session {
    world: World,
    flags: String,
    /// The last call read the clock.
    has_looked: AtomicBool,
    /// The stack has the system's sysctls.
    is_set: AtomicBool,
    /// The thread that began the session, and makes the time pass.
    first: ThreadId,
    /// A call of another thread has returned, and that thread has not read the clock yet.
    owes_look: Mutex<bool>,
    has_paid: Condvar,
}

impl Session {
    /// # Errors
    /// A flag that is not known.
    pub fn new(flags: &str, options: KernelOptions) -> Result<Session, String> {
        let mut settings = RunSettings::default();
        take_flags(&mut settings, flags)?;
        Ok(Session {
            world: World::with_options(settings.world, options),
            flags: flags.to_owned(),
            has_looked: AtomicBool::new(false),
            is_set: AtomicBool::new(false),
            first: std::thread::current().id(),
            owes_look: Mutex::new(false),
            has_paid: Condvar::new(),
        })
    }

    /// Returns the world for a call that does not read the clock.
    pub fn world(&self) -> &World {
        self.has_looked.store(false, Ordering::Relaxed);
        &self.world
    }

    /// Returns the world for a call that lets time pass.
    pub fn world_to_wait_in(&self) -> &World {
        let owes = self.owes_look();
        let paid = self
            .has_paid
            .wait_timeout_while(owes, LOOK_DUE, |owes| *owes);
        *paid.unwrap_or_else(PoisonError::into_inner).0 = false;
        self.world()
    }

    fn owes_look(&self) -> MutexGuard<'_, bool> {
        let owes = self.owes_look.lock();
        owes.unwrap_or_else(PoisonError::into_inner)
    }

    fn is_second_thread(&self) -> bool {
        std::thread::current().id() != self.first
    }

    /// A call is about to return.
    pub fn note_return(&self) {
        if self.is_second_thread() {
            *self.owes_look() = true;
        }
    }

    /// Returns the time, for a reading of the clock.
    pub fn look_ns(&self) -> u64 {
        let now_ns = self.world.now_ns();
        if self.is_second_thread() {
            *self.owes_look() = false;
            self.has_paid.notify_all();
            return now_ns;
        }
        if self.has_looked.swap(true, Ordering::Relaxed) {
            self.world.advance(now_ns + LOOK_NS);
        }
        self.world.now_ns()
    }

    /// Applies sysctls at a script's first socket: its commands have configured the stack. Flags
    /// override them.
    pub fn take_sysctls(&self) {
        if self.is_set.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut settings = RunSettings::default();
        let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok();
        for sentence in settings.take_sysctls(read) {
            eprintln!("slipstack: net.ipv4: {sentence}");
        }
        // The session began with these flags, so that none is refused now.
        let _ = take_flags(&mut settings, &self.flags);
        self.world.set_stack(settings.world.stack);
    }
}

fn take_flags(settings: &mut RunSettings, flags: &str) -> Result<(), String> {
    let mut flags = flags.split(',').filter(|flag| !flag.is_empty());
    flags.try_for_each(|flag| settings.flag(flag))
}
