//! The names of a zone with NSEC3 records, by their hashes (RFC 5155).

use sha1::{Digest, Sha1};

use super::RrSet;
use super::table::Table;
use crate::dns::message::u16_at;
use crate::dns::types::NSEC3;

const HASH_LEN: usize = 20;
/// More iterations make every denial a burden (RFC 9276 3.1): such a chain is not used.
const ITERATIONS_MAX: u16 = 500;
const SHA1: u8 = 1;

type Hash = [u8; HASH_LEN];

/// Algorithm, iterations and salt of a chain.
#[derive(Debug, PartialEq, Eq)]
struct Parameters {
    iterations: u16,
    salt: Box<[u8]>,
}

impl Parameters {
    /// From the data of an NSEC3PARAM or NSEC3 record, which begin alike.
    fn read(data: &[u8]) -> Option<Parameters> {
        let iterations = u16_at(data, 2)?;
        let salt_len = usize::from(*data.get(4)?);
        let salt = data.get(5..5 + salt_len)?.into();
        let is_usable = data[0] == SHA1 && iterations <= ITERATIONS_MAX;
        is_usable.then_some(Parameters { iterations, salt })
    }

    fn hash(&self, name: &[u8]) -> Hash {
        let once = |bytes: &[u8]| -> Hash {
            let mut sha = Sha1::new();
            sha.update(bytes);
            sha.update(&self.salt);
            sha.finalize().into()
        };
        (0..self.iterations).fold(once(name), |hash, _| once(&hash))
    }
}

/// One record of the chain.
#[derive(Debug)]
pub struct ChainRecord {
    hash: Hash,
    pub owner: Box<[u8]>,
    pub set: RrSet,
}

/// A chain of hashed names, in their order.
#[derive(Debug)]
pub struct Hashed {
    parameters: Parameters,
    links: Vec<ChainRecord>,
}

impl Hashed {
    /// Makes the chain of the first usable parameters.
    pub(super) fn new(params: &[Box<[u8]>], hashes: &Table) -> Option<Hashed> {
        let mut usable = params.iter().filter_map(|data| Parameters::read(data));
        let parameters = usable.next()?;
        let mut links: Vec<ChainRecord> = Vec::new();
        for (owner, node) in hashes.iter() {
            let (Some(hash), Some(set)) = (decode(owner), node.find(NSEC3)) else {
                continue;
            };
            let mut of_chain = set.rdata.iter();
            if of_chain.any(|data| Parameters::read(data).as_ref() == Some(&parameters)) {
                links.push(ChainRecord {
                    hash,
                    owner: owner.into(),
                    set: set.clone(),
                });
            }
        }
        links.sort_unstable_by_key(|link| link.hash);
        (!links.is_empty()).then_some(Hashed { parameters, links })
    }

    /// Returns where the record of `name` (lower case) is, if it has one.
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        let hash = self.parameters.hash(name);
        let found = self.links.binary_search_by_key(&hash, |link| link.hash);
        found.ok().map(|at| at as u32)
    }

    pub fn at(&self, at: u32) -> &ChainRecord {
        &self.links[at as usize]
    }

    /// Returns the record that covers the hash of `name`.
    pub fn covering(&self, name: &[u8]) -> &ChainRecord {
        let hash = self.parameters.hash(name);
        let after = self.links.partition_point(|link| link.hash <= hash);
        let at = after.checked_sub(1).unwrap_or(self.links.len() - 1);
        &self.links[at]
    }
}

/// Reads the hash in an owner's first label, in base 32 with extended hex digits (RFC 4648 7).
fn decode(owner: &[u8]) -> Option<Hash> {
    let label = owner.get(1..33).filter(|_| owner[0] == 32)?;
    let mut hash = [0; HASH_LEN];
    for (digits, bytes) in label.chunks(8).zip(hash.chunks_mut(5)) {
        let mut value = 0u64;
        for digit in digits {
            let five = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'v' => digit - b'a' + 10,
                _ => return None,
            };
            value = value << 5 | u64::from(five);
        }
        bytes.copy_from_slice(&value.to_be_bytes()[3..]);
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5155 appendix A.
    #[test]
    fn hashes_are_those_of_rfc_5155() {
        let parameters = Parameters::read(b"\x01\0\0\x0c\x04\xaa\xbb\xcc\xdd").unwrap();
        let owner = |label: &str| [b"\x20", label.as_bytes(), b"\x07example\0"].concat();
        for (name, label) in [
            (&b"\x07example\0"[..], "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"),
            (b"\x01a\x07example\0", "35mthgpgcu1qg68fab165klnsnk3dpvl"),
            (
                b"\x01*\x01w\x07example\0",
                "r53bq7cc2uvmubfu5ocmm6pers9tk9en",
            ),
        ] {
            assert_eq!(
                decode(&owner(label)),
                Some(parameters.hash(name)),
                "{label}"
            );
        }
    }
}
