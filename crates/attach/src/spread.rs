//! Assignment of a program's processes to several instances.
//!
//! The rule: when a process first needs an engine it takes the instance that the fewest living
//! processes of its program use, the first in the list if several are equal, and stays with it. So
//! nginx's first worker takes one of two instances and the second worker the other; the workers of
//! a reload do the same, and a worker that replaces a dead one takes its instance. Threads that get
//! an engine of their own take the other instances in turn from there on. A page shared by forked
//! processes records the assignment; `exec` begins a new one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use slipstack_mem::Region;

const PAGE: usize = 4096;
const PLACES_FROM: usize = 8;
const PLACES_MAX: usize = (PAGE - PLACES_FROM) / 8;
/// Number of attempts, a millisecond apart, while another process chooses.
const PATIENCE: usize = 200;
const NUMBER_BITS: u32 = 16;

/// The processes of a program and their instances.
pub(crate) struct Spread {
    page: Option<Region>,
    count: usize,
}

impl Spread {
    /// Over `count` instances.
    pub(crate) fn new(count: usize) -> Spread {
        let page = (count > 1).then(|| Region::create("slipstack-spread", PAGE).ok());
        Spread {
            page: page.flatten(),
            count,
        }
    }

    /// The number of the instance that this process is to use.
    pub(crate) fn choose(&self) -> usize {
        let own = std::process::id();
        let Some(page) = &self.page else {
            return 0;
        };
        let places = (0..PLACES_MAX).filter_map(|index| page.u64(PLACES_FROM + index * 8));
        let places: Vec<&AtomicU64> = places.collect();
        match page.u32(0) {
            Some(turn) => in_turn(turn, own, || pick(&places, own, self.count)),
            None => 0,
        }
    }
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Runs `choose` while no other process does.
fn in_turn(turn: &AtomicU32, own: u32, choose: impl FnOnce() -> usize) -> usize {
    let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
    for _ in 0..PATIENCE {
        match turn.compare_exchange(0, own, set, fetch) {
            Ok(_) => break,
            Err(holder) if holder != own && is_alive(holder) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The holder has died meanwhile.
            Err(holder) => _ = turn.compare_exchange(holder, 0, set, fetch),
        }
    }
    let chosen = choose();
    let _ = turn.compare_exchange(own, 0, set, fetch);
    chosen
}

fn pick(places: &[&AtomicU64], own: u32, count: usize) -> usize {
    let mut users = vec![0_usize; count];
    let mut free = None;
    for place in places {
        let value = place.load(Ordering::Acquire);
        let (pid, number) = ((value >> NUMBER_BITS) as u32, value as u16 as usize);
        match value {
            0 => free = free.or(Some(place)),
            _ if pid == own => return number.min(count - 1),
            _ if is_alive(pid) => {
                if let Some(users) = users.get_mut(number) {
                    *users += 1;
                }
            }
            _ => {
                place.store(0, Ordering::Release);
                free = free.or(Some(place));
            }
        }
    }
    let fewest = users.iter().enumerate().min_by_key(|(_, users)| **users);
    let number = fewest.map_or(0, |(number, _)| number);
    if let Some(free) = free {
        let value = u64::from(own) << NUMBER_BITS | number as u64;
        free.store(value, Ordering::Release);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above every process number of Linux.
    const NOBODY: u32 = 1 << 30;

    fn choose(table: &[AtomicU64], own: u32, count: usize) -> usize {
        pick(&table.iter().collect::<Vec<_>>(), own, count)
    }

    #[test]
    fn a_process_keeps_its_instance_and_takes_the_one_with_the_fewest_users() {
        let table: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        // Processes that are surely there: this one, its parent, the first.
        let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
        let (own, parent) = (std::process::id(), parent.cast_unsigned());
        assert_eq!(choose(&table, 1, 3), 0);
        assert_eq!(choose(&table, parent, 3), u32::from(parent != 1) as usize);
        assert_eq!(choose(&table, 1, 3), 0);
        assert_ne!(choose(&table, own, 3), 0);
    }

    #[test]
    fn the_instance_of_a_dead_process_is_free_again() {
        let table: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(choose(&table, NOBODY, 2), 0);
        assert_eq!(choose(&table, NOBODY + 1, 2), 0, "the first is not alive");
        assert_eq!(choose(&table, 1, 2), 0);
        assert_eq!(choose(&table, std::process::id(), 2), 1);
    }

    #[test]
    fn a_lock_held_by_a_dead_process_is_taken_over() {
        let turn = AtomicU32::new(NOBODY);
        assert_eq!(in_turn(&turn, 7, || 3), 3);
        assert_eq!(turn.load(Ordering::Relaxed), 0);
    }
}
