//! Datagrams that a service answers in the turn in which they arrive.

use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use slipstack_channel::{Envelope, Transport};
use slipstack_engine::Instant;
use slipstack_service::{
    ConnectionId, Context, Datagram, DatagramSocketId, Host, Hosting, Service, Via,
};

use crate::{CLIENT, PATIENCE, PORT, REQUEST, SERVER, Side, TURN_NS, server_turn, wire};

/// Datagrams that come in one turn.
const AT_ONCE: usize = 16;

/// Echoes datagrams.
struct Echo;

impl Service for Echo {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        // A refusal leaves the questions without answers, which is reported.
        let _ = cx.bind(SocketAddr::from((SERVER, PORT)));
    }

    fn on_open(&mut self, _: &Context<'_>, _: ConnectionId, _: Via) -> Option<()> {
        None
    }

    fn on_data(&mut self, _: &Context<'_>, _: ConnectionId, (): &mut ()) {}

    fn on_datagram(&mut self, cx: &Context<'_>, socket: DatagramSocketId, datagram: &Datagram<'_>) {
        let bytes = datagram.payload.contiguous(usize::MAX);
        let _ = cx.send_to(socket, datagram.from, Some(datagram.to), &bytes);
    }
}

/// `count` datagrams, [`AT_ONCE`] in a turn.
pub fn run(count: usize) -> Result<(), Box<dyn Error>> {
    let (a, b) = wire::pair();
    let mut server = Side::engine(a, (SERVER, [2, 0, 0, 0, 0, 1]), None, None);
    let (inside, _control) = Host::inside(Echo, Hosting::default())?;
    server.attach_owner(inside);
    let mut client = Side::new(b, CLIENT, [2, 0, 0, 0, 0, 2], None)?;
    let sock = client
        .program
        .open_socket(Transport::Udp)
        .map_err(|_| "no socket")?;
    let envelope = Envelope {
        peer: Some(SocketAddr::from((SERVER, PORT))),
        ..Envelope::default()
    };
    let mut now = Instant(1_000_000);
    for _ in 0..PATIENCE {
        now.0 += TURN_NS;
        server_turn(&mut server, now);
    }
    let mut turn = |client: &mut Side| {
        now.0 += TURN_NS;
        client.engine.turn(now);
        server_turn(&mut server, now);
        client.engine.turn(now);
        client.drain_events();
    };
    for _ in 0..count / AT_ONCE {
        for _ in 0..AT_ONCE {
            let piece = [IoSlice::new(&REQUEST)];
            let sent = client.program.udp_send(sock, &envelope, &piece);
            sent.map_err(|_| "no room")?;
        }
        let mut answers = 0;
        for _ in 0..PATIENCE {
            turn(&mut client);
            let mut buf = [0; 256];
            let piece = &mut [IoSliceMut::new(&mut buf)];
            while client.program.udp_recv(sock, piece, false).is_some() {
                answers += 1;
            }
            if answers == AT_ONCE {
                break;
            }
        }
        if answers < AT_ONCE {
            return Err(format!("{answers} answers to {AT_ONCE} datagrams").into());
        }
    }
    Ok(())
}
