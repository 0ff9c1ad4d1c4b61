//! A program that writes anything anywhere into its shared memory while its engine works: the
//! engine does not panic, only this program is detached, and the honest program beside it goes on.
#![no_main]

#[path = "../../crates/engine/tests/pair/mod.rs"]
mod pair;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::atomic::Ordering;

use libfuzzer_sys::fuzz_target;
use pair::World;
use slipstack_channel::{
    CELLS_AT, COMMANDS_AT, CloseMode, Command, EngineEnd, Envelope, IMAGES_AT, MtuDiscovery,
    ProgramEnd, REGION_BYTES, SOCKETS, SockId, SocketOption, State, Transport,
};
use slipstack_engine::{ClientId, Instant};
use slipstack_fuzz::number;
use slipstack_mem::Region;

const HONEST: ClientId = ClientId(0);
const CELL: usize = 256;
const COMMAND: usize = 64;
const COMMANDS: usize = 4096;
/// Sockets per half that the hostile program uses.
const TOYS: usize = 6;
const PORT: u16 = 80;
const LIARS_PORT: u16 = 90;
const TURNS_MAX: usize = 20_000;

struct Liar {
    end: ProgramEnd,
    region: Region,
    id: ClientId,
    pushed: usize,
    socks: Vec<SockId>,
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    let listener = world.listen(1, PORT);
    let (client, server) = world.connect(listener, PORT);
    let mut liar = attach(&mut world, listener);
    let mut rest = data;
    while !rest.is_empty() {
        let kind = number(&mut rest, 1) as u8;
        match kind & 7 {
            0 | 1 => drop(world.step()),
            2 => push(&mut liar, kind >> 3, &mut rest),
            3 => forge(&liar, &mut rest),
            4 => feed(&mut world, listener, kind),
            _ => scribble(&liar.region, kind >> 3, &mut rest),
        }
    }
    for _ in 0..8 {
        world.step();
    }
    exchange(&mut world, client, server);
    let engine = &mut world.hosts[0].engine;
    let lied = engine.counters().clients_lied;
    assert!(lied <= 1 && engine.has_client(HONEST));
    assert_eq!(world.hosts[1].engine.counters().clients_lied, 0);
    end(&mut world, &liar, data.len());
    exchange(&mut world, client, server);
});

/// A second program of host 0 that has begun honestly: a connection with data both ways, a
/// listener, a UDP socket.
fn attach(world: &mut World, listener: SockId) -> Liar {
    let end = EngineEnd::create().expect("a channel");
    let region = end.region().clone();
    let program = ProgramEnd::open(region.clone()).expect("its other end");
    let id = world.hosts[0].engine.attach_client(end, None);
    let [stream, passive] =
        [(); 2].map(|()| program.open_socket(Transport::Tcp).expect("a socket"));
    let datagrams = program.open_socket(Transport::Udp).expect("a socket");
    let remote = SocketAddr::new(world.hosts[1].addr.into(), PORT);
    let bind = |sock, port| Command::Bind {
        sock,
        addr: SocketAddr::new([10, 9, 0, 1].into(), port),
        reuse_addr: true,
        reuse_port: true,
        v6_only: false,
    };
    program.push(Command::Connect {
        sock: stream,
        remote,
    });
    program.push(bind(passive, LIARS_PORT));
    program.push(Command::Listen {
        sock: passive,
        backlog: 8,
    });
    program.push(bind(datagrams, LIARS_PORT));
    for _ in 0..20 {
        world.step();
    }
    let peer = world.hosts[1].program.clone();
    let accepted = peer.accept(listener).expect("the liar's connection");
    program.send(stream, &[IoSlice::new(&[1; 3000])], false);
    peer.send(accepted, &[IoSlice::new(&[2; 3000])], false);
    send_datagrams(&program, datagrams, remote);
    let socks = vec![stream, passive, datagrams];
    Liar {
        end: program,
        region,
        id,
        pushed: 7,
        socks,
    }
}

/// Sends some datagrams together, with possible control data; they come back, because the port is
/// closed.
fn send_datagrams(program: &ProgramEnd, sock: SockId, remote: SocketAddr) {
    for option in [
        SocketOption::ReturnsV4(true),
        SocketOption::TakesJoined(true),
    ] {
        program.push(Command::SetOption { sock, option });
    }
    let envelope = Envelope {
        peer: Some(remote),
        tos: Some(0x20),
        ttl: Some(9),
        segment: NonZeroU16::new(3),
        ..Envelope::default()
    };
    let _ = program.udp_send(sock, &envelope, &[IoSlice::new(b"datagram")]);
}

/// An option of a datagram socket, on any kind of socket.
fn datagram_option(argument: u32) -> SocketOption {
    let (is_on, code) = (argument & 8 != 0, (argument >> 4) as u8);
    match argument % 8 {
        0 => SocketOption::TakesJoined(is_on),
        1 => SocketOption::ReturnsV4(is_on),
        2 => SocketOption::ReturnsV6(is_on),
        3 => SocketOption::MtuDiscovery(MtuDiscovery::from_code(code % 6).unwrap_or_default()),
        4 => SocketOption::MtuDiscoveryV6(MtuDiscovery::from_code(code % 6).unwrap_or_default()),
        5 => SocketOption::Tos(code),
        6 => SocketOption::Ttl(code),
        _ => SocketOption::QuickAck(is_on),
    }
}

/// A well-formed command about sockets that may not exist.
fn push(liar: &mut Liar, kind: u8, rest: &mut &[u8]) {
    let which = number(rest, 1) as usize;
    let argument = number(rest, 2) as u32;
    let sock = match liar.socks.get(which & 3) {
        Some(sock) => *sock,
        None => SockId {
            index: (which as u32 >> 2) % 8
                + if which & 64 == 0 {
                    0
                } else {
                    SOCKETS as u32 / 2
                },
            generation: 1 + (which as u32 >> 7),
        },
    };
    let host = (argument & 3) as u8;
    let port = [PORT, LIARS_PORT, 0, argument as u16][(argument >> 2 & 3) as usize];
    let addr = SocketAddr::new([10, 9, 0, host].into(), port);
    let is = |bit: u32| argument >> bit & 1 == 1;
    let mode = [CloseMode::Orderly, CloseMode::Abort, CloseMode::Pass][argument as usize % 3];
    let command = match kind % 16 {
        0 => Command::Open {
            sock,
            kind: [Transport::Udp, Transport::Tcp][usize::from(is(0))],
        },
        1 => Command::Bind {
            sock,
            addr,
            reuse_addr: is(4),
            reuse_port: is(5),
            v6_only: is(6),
        },
        2 => Command::Listen {
            sock,
            backlog: argument,
        },
        3 | 4 => Command::Connect { sock, remote: addr },
        5..=7 => Command::Send { sock },
        8 => Command::Consumed { sock },
        9 => Command::Shutdown {
            sock,
            is_full: is(0),
        },
        10 => Command::Close {
            sock,
            mode,
            unread: is(3),
        },
        11 => Command::SetOption {
            sock,
            option: SocketOption::RcvBuf(argument << 8),
        },
        12 => Command::SetOption {
            sock,
            option: SocketOption::SndBuf(argument << 8),
        },
        13 => Command::Urgent {
            sock,
            upto: u64::from(argument),
        },
        14 => Command::SetOption {
            sock,
            option: datagram_option(argument),
        },
        _ => Command::Info { sock },
    };
    liar.end.push(command);
    liar.pushed += 1;
}

/// Damages a command that is on its way.
fn forge(liar: &Liar, rest: &mut &[u8]) {
    let place = number(rest, 1) as usize;
    let last = liar.pushed.wrapping_sub(1 + (place & 3)) % COMMANDS;
    let at = COMMANDS_AT + last * COMMAND + (place >> 2 & 7) * 8;
    let len = 1 + (place >> 5);
    alter(&liar.region, at, number(rest, len), place & 0x80 != 0);
}

/// Changes a word of a cell, or any word at all.
fn scribble(region: &Region, kind: u8, rest: &mut &[u8]) {
    let place = number(rest, 1) as usize;
    let cell =
        |first: usize| CELLS_AT + (first + place % TOYS) * CELL + 128 + (place / TOYS % 12) * 8;
    let at = match kind & 7 {
        0..=3 => cell(0),
        4 | 5 => cell(SOCKETS / 2),
        6 => place % 512 * 8,
        _ => match place & 3 {
            0 => number(rest, 2) as usize * 8,
            1 => CELLS_AT + number(rest, 1) as usize * 8,
            2 => IMAGES_AT - 4096 + number(rest, 2) as usize * 8,
            _ => number(rest, 4) as usize % (REGION_BYTES / 8) * 8,
        },
    };
    let len = [1, 2, 4, 8][usize::from(kind >> 3 & 3)];
    alter(region, at, number(rest, len), len < 4);
}

/// Adds to a word or replaces it.
fn alter(region: &Region, at: usize, value: u64, is_relative: bool) {
    let Some(word) = region.u64(at & !7) else {
        return;
    };
    if is_relative {
        word.fetch_add((value as i16) as i64 as u64, Ordering::Relaxed);
    } else {
        word.store(value, Ordering::Relaxed);
    }
}

/// The honest peer answers on its connections, or connects to the hostile program's listener.
fn feed(world: &mut World, listener: SockId, kind: u8) {
    let peer = world.hosts[1].program.clone();
    if kind & 8 == 0 {
        if let Some(accepted) = peer.accept(listener) {
            peer.send(accepted, &[IoSlice::new(&[3; 5000])], false);
        }
        return;
    }
    if let Ok(sock) = peer.open_socket(Transport::Tcp) {
        let remote = SocketAddr::new(world.hosts[0].addr.into(), LIARS_PORT);
        peer.push(Command::Connect { sock, remote });
        if kind & 16 == 0 {
            world.step();
            peer.push(Command::Close {
                sock,
                mode: CloseMode::Abort,
                unread: false,
            });
        }
    }
}

/// The honest program's connection still carries bytes.
fn exchange(world: &mut World, client: SockId, server: SockId) {
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    assert!(
        left.state(client).contains(State::CONNECTED),
        "the honest connection is gone"
    );
    assert_eq!(left.send(client, &[IoSlice::new(b"still here")], false), 10);
    let mut out = [0; 16];
    for _ in 0..TURNS_MAX {
        world.step();
        let len = right.recv(server, &mut [IoSliceMut::new(&mut out)]);
        if len > 0 {
            assert_eq!(&out[..len], b"still here");
            return;
        }
    }
    panic!("the honest program is starved");
}

/// The hostile program says goodbye or dies; the engine attaches no other under its name.
fn end(world: &mut World, liar: &Liar, choice: usize) {
    if choice & 1 == 0 {
        liar.end.push(Command::Goodbye);
        world.step();
    }
    let now = Instant(world.now);
    let engine = &mut world.hosts[0].engine;
    if engine.is_staying(liar.id, &liar.region) {
        engine.detach_client(now, liar.id);
    }
    world.step();
    assert!(!world.hosts[0].engine.is_staying(liar.id, &liar.region));
}
