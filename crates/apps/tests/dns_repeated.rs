//! A query that comes again and again gets the same response, until its zone changes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use slipstack_apps::dns::{
    Arrival, Book, Chaos, Common, Identity, Mailbox, Policy, Rate, Responder, Store, load_text,
};

const ARRIVAL: Arrival = Arrival {
    ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
    is_tcp: false,
    now_ns: 1,
};
const TIMES: u8 = 5;

/// `www.example.test` of a type, with these flags and records of the additional section.
fn query(id: u8, flags: u8, qtype: u8, additional: &[u8]) -> Vec<u8> {
    let count = u8::from(!additional.is_empty());
    let head = [0, id, flags, 0, 0, 1, 0, 0, 0, 0, 0, count];
    let question = [&b"\x03wWw\x07example\x04test\0\0"[..], &[qtype, 0, 1]].concat();
    [&head[..], &question, additional].concat()
}

fn set(store: &Store, address: &str) {
    let text =
        format!("$TTL 300\n@ IN SOA ns host 1 7200 900 604800 300\n@ NS ns\nwww A {address}\n");
    let zone = Arc::new(load_text("example.test", text.as_bytes()).unwrap());
    store.change(|zones| {
        zones.set(
            &zone.apex,
            Some(Arc::clone(&zone)),
            Arc::new(Policy::default()),
        );
    });
}

#[test]
fn repeated_queries_get_the_response_of_the_first_until_the_zone_changes() {
    let store = Arc::new(Store::default());
    set(&store, "10.0.0.1");
    let book = Arc::new(Book::default());
    let mut responder = Responder::new(Common {
        store: Arc::clone(&store),
        mailbox: Arc::new(Mailbox::default()),
        identity: Arc::new(Identity::default()),
        chaos: Arc::new(Chaos::default()),
        rate: Rate::default(),
        book: Arc::clone(&book),
        seed: 1,
    });
    let plain_opt = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
    let cookie = b"\0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08abcdefgh";
    let mut asked = 0;
    for last in [1, 2] {
        set(&store, &format!("10.0.0.{last}"));
        for (flags, qtype, additional) in [
            (0, 1, &b""[..]),
            (1, 1, b""),
            (1, 1, plain_opt),
            (0, 28, plain_opt),
            (0, 1, cookie),
        ] {
            let mut answer = |id| {
                asked += 1;
                let bytes = query(id, flags, qtype, additional);
                responder.respond(&bytes, ARRIVAL).unwrap().to_vec()
            };
            let first = answer(0);
            assert_eq!(first[2] & 1, flags, "RD is copied");
            assert_eq!(first[7], u8::from(qtype == 1), "answers");
            assert_eq!(&first[12..16], b"\x03wWw", "the question is as it was sent");
            if qtype == 1 {
                assert!(first.windows(4).any(|it| it == [10, 0, 0, last]));
            }
            for id in 1..TIMES {
                let next = answer(id);
                assert_eq!(next[..2], [0, id]);
                // A cookie has the time in it.
                if additional != cookie {
                    assert_eq!(next[2..], first[2..]);
                }
                assert_eq!(next.len(), first.len());
            }
        }
    }
    let told = book.json();
    assert!(told.contains(&format!("\"udp\":{asked}")), "{told}");
    let of_type_a = asked * 4 / 5;
    assert!(told.contains(&format!("\"A\":{of_type_a}")), "{told}");
}
