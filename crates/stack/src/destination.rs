//! Next hops of destinations that were used lately: for segments that have no connection to keep theirs.

use core::net::IpAddr;

use crate::link::NextHop;

const PLACES: usize = 64;

/// One place for each value of a few bits of the address; a later destination takes it over.
#[derive(Debug)]
pub(crate) struct Destinations {
    places: [Option<(IpAddr, NextHop)>; PLACES],
}

impl Destinations {
    pub fn new() -> Destinations {
        Destinations {
            places: [None; PLACES],
        }
    }

    /// May have ended: the caller looks.
    #[inline]
    pub fn find(&self, dst: IpAddr) -> Option<NextHop> {
        match self.places[place_of(dst)] {
            Some((of, hop)) if of == dst => Some(hop),
            _ => None,
        }
    }

    pub fn keep(&mut self, dst: IpAddr, hop: NextHop) {
        self.places[place_of(dst)] = Some((dst, hop));
    }
}

#[inline]
fn place_of(dst: IpAddr) -> usize {
    let word = match dst {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() as u32,
    };
    (word ^ word >> 8) as usize % PLACES
}
