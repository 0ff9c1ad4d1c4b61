//! Outgoing transfers: a zone, or its changes, in messages over TCP (RFC 5936, RFC 1995).

use std::sync::Arc;

use crate::dns::builder::{Builder, Section};
use crate::dns::message::Query;
use crate::dns::tsig::Session;
use crate::dns::types::IXFR;
use crate::dns::zone::{Cursor, RecordRef, Zone};

/// Length of a message without its TSIG record; one record may go beyond it.
const MESSAGE_LEN: usize = 16_000;

/// Which records a transfer has between the zone's SOA record and its end.
#[derive(Debug)]
enum Content {
    /// All others, then the SOA record again.
    Whole(Cursor),
    /// Removals and additions of each difference from one on, each after its SOA record, then the
    /// newest SOA record: difference, and place in it.
    Changes(usize, usize),
    /// Nothing: the client has this version.
    Current,
}

/// A transfer on its way.
#[derive(Debug)]
pub struct Outgoing {
    zone: Arc<Zone>,
    /// The query, for the header and the question of each message.
    id: u16,
    flags: u16,
    question: Vec<u8>,
    content: Content,
    step: Step,
    session: Option<Session>,
    /// A message that found no room.
    pub waiting: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Records,
    Over,
}

impl Outgoing {
    pub fn new(zone: Arc<Zone>, query: &Query<'_>, session: Option<Session>) -> Outgoing {
        let content = match query.serial.filter(|_| query.qtype == IXFR) {
            Some(serial) if !is_newer(zone.soa.serial, serial) => Content::Current,
            Some(serial) => match zone.changes_since(serial) {
                Some(first) => Content::Changes(first, 0),
                None => Content::Whole(Cursor::default()),
            },
            None => Content::Whole(Cursor::default()),
        };
        Outgoing {
            zone,
            id: query.id,
            flags: query.flags,
            question: query.question.to_vec(),
            content,
            step: Step::Begin,
            session,
            waiting: None,
        }
    }

    /// Has the transfer consist of the SOA record alone.
    pub fn end_after_soa(&mut self) {
        self.content = Content::Current;
    }

    /// Returns the next message, or `None` if there is none.
    pub fn next_message(&mut self, unix_now: u64) -> Option<Vec<u8>> {
        if self.step == Step::Over {
            return None;
        }
        // RFC 5936 2.2.1: the question may be left out after the first message.
        let zone = Arc::clone(&self.zone);
        let question = std::mem::take(&mut self.question);
        let query = Query::of_question(self.id, self.flags, &question);
        let mut out = Builder::new(&query, usize::from(u16::MAX));
        out.is_authoritative = true;
        while out.len() < MESSAGE_LEN {
            let Some(record) = self.next_record(&zone) else {
                break;
            };
            out.put_record(record.owner, record.rtype, record.ttl, record.data);
            out.count(Section::Answer);
        }
        let mut message = out.finish();
        if let Some(session) = &mut self.session {
            session.sign(&mut message, unix_now);
        }
        Some(message)
    }

    fn next_record<'a>(&mut self, zone: &'a Zone) -> Option<RecordRef<'a>> {
        match self.step {
            Step::Over => return None,
            Step::Begin => {
                let is_all = matches!(self.content, Content::Current);
                self.step = if is_all { Step::Over } else { Step::Records };
                return zone.soa_record();
            }
            Step::Records => {}
        }
        let next = match &mut self.content {
            Content::Whole(cursor) => zone.record_at(cursor),
            Content::Changes(number, place) => zone.change_at(number, place),
            Content::Current => None,
        };
        next.or_else(|| {
            self.step = Step::Over;
            zone.soa_record()
        })
    }
}

/// Returns whether a serial number is newer than another (RFC 1982).
pub fn is_newer(serial: u32, than: u32) -> bool {
    serial != than && serial.wrapping_sub(than) < 1 << 31
}
