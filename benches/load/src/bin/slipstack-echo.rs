//! Echo server for the benchmarks: one thread, epoll, every byte and every datagram goes back.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use clap::Parser;
use mio::net::{TcpListener, TcpStream, UdpSocket};
use mio::{Events, Interest, Poll, Token};

/// Echoes received bytes and datagrams.
#[derive(Parser)]
#[command(name = "slipstack-echo", version)]
struct Options {
    /// Address to listen on, for example 0.0.0.0:7007
    listen: SocketAddr,
}

const LISTENER: Token = Token(0);
const DATAGRAMS: Token = Token(1);

fn main() -> io::Result<()> {
    let options = Options::parse();
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(options.listen)?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut datagrams = UdpSocket::bind(options.listen)?;
    poll.registry()
        .register(&mut datagrams, DATAGRAMS, Interest::READABLE)?;
    let mut streams = HashMap::new();
    let mut next = DATAGRAMS.0 + 1;
    let mut events = Events::with_capacity(256);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept_all(&listener, &poll, &mut streams, &mut next)?;
            } else if event.token() == DATAGRAMS {
                return_all(&datagrams)?;
            } else if let Some(stream) = streams.get_mut(&event.token())
                && !echo(stream)
            {
                streams.remove(&event.token());
            }
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    poll: &Poll,
    streams: &mut HashMap<Token, TcpStream>,
    next: &mut usize,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                let token = Token(*next);
                *next += 1;
                let _ = stream.set_nodelay(true);
                poll.registry()
                    .register(&mut stream, token, Interest::READABLE)?;
                streams.insert(token, stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends back all datagrams. One that finds no room is lost, as on the way.
fn return_all(socket: &UdpSocket) -> io::Result<()> {
    let mut datagram = [0_u8; 2048];
    loop {
        match socket.recv_from(&mut datagram) {
            Ok((len, peer)) => {
                let _ = socket.send_to(&datagram[..len], peer);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// False when the connection is over. Messages are small: a short write ends it too.
fn echo(stream: &mut TcpStream) -> bool {
    let mut chunk = [0_u8; 16 * 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return false,
            Ok(n) => {
                if stream.write_all(&chunk[..n]).is_err() {
                    return false;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}
