//! Cache of next hops of recent destinations, for segments that have no connection to keep theirs.

use crate::network_layer::NextHop;

const PLACES: usize = 64;

/// One entry for each value of a few bits of the address; a later destination replaces it.
#[derive(Debug)]
pub(crate) struct Destinations {
    /// By [`crate::bound::bits`] of the address.
    places: [Option<(u128, NextHop)>; PLACES],
}

impl Destinations {
    pub fn new() -> Destinations {
        Destinations {
            places: [None; PLACES],
        }
    }

    /// May have ended: the caller looks.
    #[inline]
    pub fn find(&self, dst: u128) -> Option<NextHop> {
        match self.places[place_of(dst)] {
            Some((of, hop)) if of == dst => Some(hop),
            _ => None,
        }
    }

    pub fn keep(&mut self, dst: u128, hop: NextHop) {
        self.places[place_of(dst)] = Some((dst, hop));
    }

    /// Forgets an entry that is no longer right.
    pub fn forget(&mut self, dst: u128) {
        self.places[place_of(dst)] = None;
    }
}

#[inline]
fn place_of(dst: u128) -> usize {
    // The last bytes of an address differ most; they are on top.
    ((dst >> 120) ^ (dst >> 112)) as usize % PLACES
}
