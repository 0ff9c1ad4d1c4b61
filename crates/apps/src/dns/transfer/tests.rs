//! A primary and a secondary that talk through messages.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::{Incoming, Progress};
use crate::dns::{
    Algorithm, Arrival, Book, Chaos, Common, Identity, Keys, Mailbox, Policy, Rate, Responder,
    Rule, Store, TsigKey, Zone, load_text,
};

const APEX: &[u8] = b"\x01a\x04test\0";

fn zone(serial: u32, more: &str) -> Zone {
    let text = format!("@ 60 SOA ns host {serial} 2 3 4 5\n@ 60 NS ns\nns 60 A 10.0.0.1\n{more}");
    load_text("a.test", text.as_bytes()).unwrap()
}

fn key() -> Arc<TsigKey> {
    Arc::new(TsigKey {
        name: b"\x01k\0".to_vec(),
        algorithm: Algorithm::Sha512,
        secret: b"secret".to_vec(),
    })
}

fn primary(zone: Zone) -> Responder {
    let store = Store::default();
    store.change(|zones| {
        zones.keys = Arc::new(Keys::from([(key().name.clone(), key())]));
        let rule = Rule {
            network: None,
            key: Some(key().name.clone()),
        };
        let policy = Policy {
            allow_transfer: vec![rule],
            ..Policy::default()
        };
        zones.set(APEX, Some(Arc::new(zone)), Arc::new(policy));
    });
    Responder::new(Common {
        store: Arc::new(store),
        mailbox: Arc::new(Mailbox::default()),
        identity: Arc::new(Identity::default()),
        chaos: Arc::new(Chaos::default()),
        rate: Rate::default(),
        book: Arc::new(Book::default()),
        seed: 1,
    })
}

/// Sends queries and processes the responses until the transfer is over; returns its result, and
/// the type of the last query.
fn run(primary: &mut Responder, incoming: &mut Incoming) -> (Result<Progress, String>, u8) {
    let now = crate::dns::responder::unix_now();
    let mut query = incoming.probe(now);
    loop {
        let qtype = query[12 + APEX.len() + 1];
        let arrival = Arrival {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_tcp: true,
            now_ns: 1,
        };
        let answer = primary.respond(&query, arrival).map(<[u8]>::to_vec);
        let mut transfer = primary.take_transfer();
        let mut rest = || transfer.as_mut().and_then(|it| it.next_message(now));
        let mut next = answer.or_else(&mut rest);
        let mut asked = None;
        while let Some(message) = next {
            match incoming.take(&message, now) {
                Ok(Progress::More) => {}
                Ok(Progress::Ask(query)) => asked = Some(query),
                other => return (other.map_err(|error| error.to_string()), qtype),
            }
            next = rest();
        }
        match asked {
            Some(next) => query = next,
            None => return (Err("nothing more comes".into()), qtype),
        }
    }
}

fn sorted(zone: &Zone) -> Vec<String> {
    let mut all: Vec<String> = zone.records().map(|record| format!("{record:?}")).collect();
    all.sort();
    all
}

#[test]
fn a_zone_transfer_may_span_several_messages() {
    let many: String = (0..5000)
        .map(|n| format!("h{n} 60 A 10.1.{}.{}\n", n / 250, n % 250))
        .collect();
    let theirs = zone(7, &many);
    let expected = sorted(&theirs);
    let mut incoming = Incoming::new(APEX.to_vec(), None, Some(key()), 5);
    let (outcome, qtype) = run(&mut primary(theirs), &mut incoming);
    assert!(matches!(outcome, Ok(Progress::Done)), "{outcome:?}");
    assert_eq!(qtype, 252);
    let ours = incoming.finish().unwrap();
    assert_eq!((ours.soa.serial, sorted(&ours)), (7, expected));
}

#[test]
fn incremental_transfers_send_differences_or_the_whole_zone() {
    let first = zone(1, "old 60 A 10.0.0.2\n");
    let mut second = zone(2, "new 60 A 10.0.0.3\n");
    second.follow(&first);
    let mut third = zone(3, "new 60 A 10.0.0.4\nmore 60 TXT x\n");
    third.follow(&second);
    let expected = sorted(&third);
    let mut primary = primary(third);
    for (base, qtype) in [(first, 251), (second, 251), (zone(0, ""), 251)] {
        let is_known = base.soa.serial > 0;
        let mut incoming = Incoming::new(APEX.to_vec(), Some(Arc::new(base)), Some(key()), 5);
        let (outcome, asked) = run(&mut primary, &mut incoming);
        assert!(matches!(outcome, Ok(Progress::Done)), "{outcome:?}");
        assert_eq!((asked, incoming.is_incremental()), (qtype, is_known));
        let ours = incoming.finish().unwrap();
        assert_eq!((ours.soa.serial, sorted(&ours)), (3, expected.clone()));
    }
}

#[test]
fn a_zone_is_not_transferred_if_its_serial_is_not_newer() {
    for serial in [7, 8] {
        let base = Some(Arc::new(zone(serial, "")));
        let mut incoming = Incoming::new(APEX.to_vec(), base, Some(key()), 5);
        let (outcome, qtype) = run(&mut primary(zone(7, "")), &mut incoming);
        assert!(matches!(outcome, Ok(Progress::Current)), "{outcome:?}");
        assert_eq!(qtype, 6);
    }
}

#[test]
fn a_transfer_without_the_key_is_refused() {
    let mut incoming = Incoming::new(APEX.to_vec(), None, None, 5);
    let (outcome, _) = run(&mut primary(zone(7, "")), &mut incoming);
    assert_eq!(outcome.unwrap_err(), "the primary answers with code 5");
}
