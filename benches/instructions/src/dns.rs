//! A query over UDP whose response is cached: everything that the name server's engine runs for it,
//! the service included.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slipstack_apps::dns::{
    Book, Chaos, Common, Dns, DnsOptions, Identity, Mailbox, Policy, Rate, Store, load,
};
use slipstack_channel::{Envelope, SockId, Transport};
use slipstack_engine::Instant;
use slipstack_service::{Host, Hosting};

use crate::{CLIENT, PATIENCE, SERVER, Side, TURN_NS, server_turn, wire};

const PORT: u16 = 53;
const ZONE: &str = "$TTL 3600\n@ IN SOA ns host 1 7200 900 604800 300\n@ NS ns\nns A 10.0.0.1\n\
                    www A 10.0.0.3\n";
/// `www.example.test A`, with an OPT record.
const QUERY: &[u8] = b"\0\x01\x01\0\0\x01\0\0\0\0\0\x01\x03www\x07example\x04test\0\0\x01\0\x01\
                       \0\0\x29\x04\xd0\0\0\0\0\0\0";

/// Queries that come in one turn.
const AT_ONCE: usize = 16;

/// `count` queries, [`AT_ONCE`] in a turn.
pub fn run(count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (a, b) = wire::pair();
    let mut server = Side::engine(a, (SERVER, [2, 0, 0, 0, 0, 1]), None, None);
    let (inside, _control) = Host::inside(service()?, Hosting::default())?;
    server.attach_owner(inside);
    let mut client = Side::new(b, CLIENT, [2, 0, 0, 0, 0, 2], None)?;
    let sock = client.program.open_socket(Transport::Udp);
    let sock = sock.map_err(|_| "no socket")?;
    let envelope = Envelope {
        peer: Some(SocketAddr::from((SERVER, PORT))),
        ..Envelope::default()
    };
    let mut now = Instant(1_000_000);
    for _ in 0..PATIENCE {
        now.0 += TURN_NS;
        server_turn(&mut server, now);
    }
    for _ in 0..count.div_ceil(AT_ONCE) {
        for _ in 0..AT_ONCE {
            let sent = client
                .program
                .udp_send(sock, &envelope, &[IoSlice::new(QUERY)]);
            sent.map_err(|why| format!("not sent: {why:?}"))?;
        }
        let mut answers = 0;
        for _ in 0..PATIENCE {
            now.0 += TURN_NS;
            client.engine.turn(now);
            server_turn(&mut server, now);
            client.engine.turn(now);
            client.drain_events();
            answers += take_answers(&client, sock)?;
            if answers == AT_ONCE {
                break;
            }
        }
        if answers != AT_ONCE {
            return Err(format!("{answers} answers of {AT_ONCE}").into());
        }
    }
    Ok(())
}

fn take_answers(client: &Side, sock: SockId) -> Result<usize, String> {
    let (mut answers, mut answer) = (0, [0; 512]);
    loop {
        let bufs = &mut [IoSliceMut::new(&mut answer)];
        let Some(got) = client.program.udp_recv(sock, bufs, false) else {
            return Ok(answers);
        };
        if got.len <= QUERY.len() || answer[7] != 1 {
            return Err("another answer".to_owned());
        }
        answers += 1;
    }
}

fn service() -> Result<Dns, Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("instructions-{}.zone", std::process::id()));
    std::fs::write(&file, ZONE)?;
    let zone = load("example.test", &file);
    std::fs::remove_file(&file)?;
    let zone = Arc::new(zone?);
    let store = Store::default();
    store.change(|zones| {
        zones.set(
            &zone.apex,
            Some(Arc::clone(&zone)),
            Arc::new(Policy::default()),
        );
    });
    let common = Common {
        store: Arc::new(store),
        mailbox: Arc::new(Mailbox::default()),
        identity: Arc::new(Identity::default()),
        chaos: Arc::new(Chaos::default()),
        rate: Rate::default(),
        book: Arc::new(Book::default()),
        seed: 1,
    };
    Ok(Dns::new(DnsOptions {
        listen: vec![SocketAddr::from((SERVER, PORT))],
        backlog: 16,
        common,
        idle: Duration::from_secs(10),
        is_manager: false,
        log: |_| {},
    }))
}
