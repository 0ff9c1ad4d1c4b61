//! Messages to a name server: queries, transfers, NOTIFY, and responses of a primary.
//!
//! Each message is processed as a datagram, as one over TCP, and as a primary's response.
#![no_main]

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use slipstack_apps::dns::{
    Arrival, Book, Chaos, Common, Identity, Incoming, Mailbox, Policy, Rate, Responder, Rule,
    Store, Zone, load_text,
};

const ZONE: &str = "$TTL 3600\n@ SOA ns host 1 7200 900 604800 300\n@ NS ns\nns A 10.0.0.1\n\
    www CNAME web\nweb A 10.0.0.3\n*.wild TXT x\nsub NS ns.sub\nns.sub A 10.0.0.4\nold DNAME new\n\
    x.new MX 5 web\nbig TXT \"0123456789012345678901234567890123456789012345678901234567890123\"\n";

thread_local! {
    static RESPONDER: RefCell<Responder> = RefCell::new(responder());
}

fn zone() -> Arc<Zone> {
    Arc::new(load_text("a.test", ZONE.as_bytes()).expect("a zone"))
}

fn responder() -> Responder {
    let store = Store::default();
    store.change(|zones| {
        let anybody = Rule {
            network: Some((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)),
            key: None,
        };
        let policy = Policy {
            allow_transfer: vec![anybody],
            ..Policy::default()
        };
        zones.set(b"\x01a\x04test\0", Some(zone()), Arc::new(policy));
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

fuzz_target!(|data: &[u8]| {
    RESPONDER.with_borrow_mut(|responder| {
        for is_tcp in [false, true] {
            let arrival = Arrival {
                ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
                is_tcp,
                now_ns: 1,
            };
            if let Some(answer) = responder.respond(data, arrival) {
                assert_eq!(answer[..2], data[..2], "its id");
                assert!(answer[2] & 0x80 != 0 && answer.len() <= 65_535);
                assert!(is_tcp || answer.len() <= 1232);
            }
            if let Some(mut transfer) = responder.take_transfer() {
                while let Some(message) = transfer.next_message(0) {
                    assert!(message.len() <= 65_535);
                }
            }
        }
    });
    let apex = b"\x01a\x04test\0".to_vec();
    let mut incoming = Incoming::new(apex, Some(zone()), None, 0);
    incoming.probe(0);
    for message in data.split(|byte| *byte == 0xfe) {
        if incoming.take(message, 0).is_err() {
            return;
        }
    }
});
