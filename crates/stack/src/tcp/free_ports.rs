//! Local ports that no flow uses, in classes: one is found in constant time however few are left.
//!
//! A port leaves the list when a flow gets it, and returns when one of its flows has ended. So a
//! listed port may still have a flow to another remote end; whoever takes a port checks it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

const WORDS: usize = 65_536 / 64;
/// Unfit ports that one search passes over.
const UNFIT_MAX: usize = 16;

/// A set of ports.
#[derive(Clone, Debug)]
struct PortSet(Box<[u64; WORDS]>);

impl PortSet {
    fn new() -> PortSet {
        PortSet(Box::new([0; WORDS]))
    }

    fn has(&self, port: u16) -> bool {
        self.0[usize::from(port / 64)] >> (port % 64) & 1 != 0
    }

    /// Returns whether the port was not in the set.
    fn insert(&mut self, port: u16) -> bool {
        let is_new = !self.has(port);
        self.0[usize::from(port / 64)] |= 1 << (port % 64);
        is_new
    }

    fn remove(&mut self, port: u16) {
        self.0[usize::from(port / 64)] &= !(1 << (port % 64));
    }
}

/// The answer to the question whether a flow may have a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    Free,
    /// A flow has it: it returns when that ends.
    Taken,
    /// No use for this flow, or not now.
    Unfit,
}

/// Ports by class. See the module.
#[derive(Clone, Debug)]
pub struct FreePorts {
    /// Free ports of each class, the longest unused first.
    classes: Box<[VecDeque<u16>]>,
    /// All ports that are or may be listed.
    known: PortSet,
    listed: PortSet,
}

impl FreePorts {
    pub fn new(classes: usize) -> FreePorts {
        FreePorts {
            classes: alloc::vec![VecDeque::new(); classes].into(),
            known: PortSet::new(),
            listed: PortSet::new(),
        }
    }

    /// Adds ports with their classes, unless they are known.
    pub fn add(&mut self, ports: impl Iterator<Item = (u16, u16)>) {
        for (port, class) in ports {
            if self.known.insert(port) {
                self.list(port, class);
            }
        }
    }

    /// A flow of the port has ended. `class_of`: the class of the port.
    pub fn release(&mut self, port: u16, class_of: impl FnOnce() -> u16) {
        if self.known.has(port) && !self.listed.has(port) {
            self.list(port, class_of());
        }
    }

    fn list(&mut self, port: u16, class: u16) {
        if let Some(class) = self.classes.get_mut(usize::from(class)) {
            self.listed.insert(port);
            class.push_back(port);
        }
    }

    /// Takes a port of one of these classes out of the list: one of the longer unused half, at
    /// random, because ports are to be hard to guess (RFC 6056). Gives up after some unfit ones.
    pub fn take(
        &mut self,
        classes: impl Iterator<Item = u16>,
        random: u64,
        fitness: impl Fn(u16) -> Fitness,
    ) -> Option<u16> {
        let mut unfit = 0;
        for class in classes {
            let Some(ports) = self.classes.get_mut(usize::from(class)) else {
                continue;
            };
            let mut at = (random >> 32) as usize;
            while !ports.is_empty() && unfit < UNFIT_MAX {
                at = at.wrapping_add(1) % ports.len().div_ceil(2);
                let port = ports[at];
                let fit = fitness(port);
                if fit == Fitness::Unfit {
                    unfit += 1;
                    continue;
                }
                ports.swap_remove_front(at);
                self.listed.remove(port);
                if fit == Fitness::Free {
                    return Some(port);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Ports 1000 to 1999, those of a class with the same last digit.
    fn ports() -> FreePorts {
        let mut free = FreePorts::new(10);
        free.add((1000..2000).map(|port| (port, port % 10)));
        free
    }

    #[test]
    fn the_last_port_is_found_as_fast_as_the_first() {
        let mut free = ports();
        let asked = Cell::new(0);
        for round in 0..1000u64 {
            asked.set(0);
            let port = free.take(0..10, round << 40, |_| {
                asked.set(asked.get() + 1);
                Fitness::Free
            });
            assert!(port.is_some());
            assert_eq!(asked.get(), 1);
        }
        assert_eq!(free.take(0..10, 7, |_| Fitness::Free), None);
        free.release(1234, || 4);
        free.release(1234, || 4);
        free.release(80, || 0);
        assert_eq!(free.take(4..5, 9, |_| Fitness::Free), Some(1234));
        assert_eq!(free.take(0..10, 9, |_| Fitness::Free), None);
    }

    #[test]
    fn ports_are_taken_from_the_wanted_classes_and_used_ones_leave_the_list() {
        let mut free = ports();
        let is_taken = |port: u16| match port < 1900 {
            true => Fitness::Taken,
            false => Fitness::Free,
        };
        for _ in 0..10 {
            let port = free.take(3..4, 1 << 50, is_taken).expect("ten are free");
            assert!(port >= 1900 && port % 10 == 3, "{port}");
        }
        assert_eq!(free.take(3..4, 0, is_taken), None);
        assert_eq!(free.classes[3].len(), 0);
    }

    #[test]
    fn ports_unfit_for_the_flow_stay_in_the_list_and_end_the_search() {
        let mut free = ports();
        let asked = Cell::new(0);
        let unfit = |_| {
            asked.set(asked.get() + 1);
            Fitness::Unfit
        };
        assert_eq!(free.take(0..10, 3, unfit), None);
        assert_eq!(asked.get(), UNFIT_MAX);
        assert!((0..10).all(|class| free.classes[class].len() == 100));
    }
}
