//! Record types and classes that the server treats differently from others.

pub const A: u16 = 1;
pub const NS: u16 = 2;
pub const MD: u16 = 3;
pub const MF: u16 = 4;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const MB: u16 = 7;
pub const MR: u16 = 9;
pub const PTR: u16 = 12;
pub const MINFO: u16 = 14;
pub const MX: u16 = 15;
pub const TXT: u16 = 16;
pub const KEY: u16 = 25;
pub const AAAA: u16 = 28;
pub const SRV: u16 = 33;
pub const DNAME: u16 = 39;
pub const OPT: u16 = 41;
pub const DS: u16 = 43;
pub const RRSIG: u16 = 46;
pub const NSEC: u16 = 47;
pub const NSEC3: u16 = 50;
pub const NSEC3PARAM: u16 = 51;
pub const TSIG: u16 = 250;
pub const IXFR: u16 = 251;
pub const AXFR: u16 = 252;
pub const ANY: u16 = 255;

pub const CLASS_IN: u16 = 1;
pub const CLASS_CHAOS: u16 = 3;
pub const CLASS_ANY: u16 = 255;

/// Position of names that may be compressed in a type's data: the bytes before them and their
/// number. RFC 3597 4: the types of RFC 1035 alone.
pub fn compressible(rtype: u16) -> Option<(usize, usize)> {
    match rtype {
        NS | MD | MF | CNAME | MB..=MR | PTR => Some((0, 1)),
        SOA | MINFO => Some((0, 2)),
        MX => Some((2, 1)),
        _ => None,
    }
}
