//! Names of class CHAOS, by which a server identifies itself (RFC 4892).

use super::builder::{Builder, Section};
use super::message::{Query, rcode};
use super::name;
use super::types::{ANY, TXT};

/// Answers of the server about itself; an empty one is not given.
#[derive(Clone, Debug, Default)]
pub struct Chaos {
    pub version: String,
    pub identity: String,
}

/// Longest character string.
const STRING_MAX: usize = 255;

impl Chaos {
    pub fn answer(&self, query: &Query<'_>, max: usize) -> Vec<u8> {
        let mut out = Builder::new(query, max);
        let qname = name::lower(query.qname);
        let text = match qname.as_slice() {
            b"\x07version\x04bind\0" | b"\x07version\x06server\0" => self.version.as_str(),
            b"\x08hostname\x04bind\0" | b"\x02id\x06server\0" => self.identity.as_str(),
            _ => "",
        };
        if text.is_empty() || !matches!(query.qtype, TXT | ANY) {
            out.rcode = rcode::REFUSED;
            return out.finish();
        }
        let text = &text.as_bytes()[..text.len().min(STRING_MAX)];
        let data = [&[text.len() as u8], text].concat();
        out.put_chaos(query.qname, &data);
        out.count(Section::Answer);
        out.is_authoritative = true;
        out.finish()
    }
}
