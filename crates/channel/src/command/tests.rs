use slipstack_terms::{GroupChange, KeepAlive, MulticastOption};

use super::*;

fn options() -> [SocketOption; 3] {
    let group = MulticastOption::Group {
        group: "ff0e::7".parse().unwrap(),
        link: 0x7001,
        change: GroupChange::Include("fd00::9".parse().unwrap()),
    };
    [
        SocketOption::NoDelay(true),
        SocketOption::KeepAlive(KeepAlive::default()),
        SocketOption::Multicast(group),
    ]
}

fn commands() -> Vec<Command> {
    let sock = SockId {
        index: 31_000,
        generation: 0x0fff_1234,
    };
    let addr: SocketAddr = "10.1.2.3:8080".parse().unwrap();
    let mut all = vec![
        Command::Open {
            sock,
            kind: Transport::Udp,
        },
        Command::Bind {
            sock,
            addr,
            reuse_addr: true,
            reuse_port: false,
            v6_only: true,
        },
        Command::Listen { sock, backlog: 511 },
        Command::Unlisten { sock },
        Command::Resume { sock },
        Command::Connect {
            sock,
            remote: "[2001:db8::1]:443".parse().unwrap(),
        },
        Command::Shutdown {
            sock,
            is_full: true,
        },
        Command::Close {
            sock,
            mode: CloseMode::Abort,
            unread: true,
        },
        Command::Close {
            sock,
            mode: CloseMode::Pass,
            unread: false,
        },
        Command::UdpConnect { sock, remote: None },
        Command::UdpConnect {
            sock,
            remote: Some(addr),
        },
        Command::EndSession,
        Command::Claim {
            sock,
            key: 1 << 100,
        },
    ];
    all.extend([
        Command::Send { sock },
        Command::Consumed { sock },
        Command::Info { sock },
        Command::TellSent { sock },
        Command::FindPort {
            local: addr,
            v6_only: true,
        },
    ]);
    let upto = 1 << 40;
    all.push(Command::Urgent { sock, upto });
    let key = u128::MAX - 1;
    all.extend([None, Some(upto)].map(|upto| Command::Offer { sock, key, upto }));
    all.extend(options().map(|option| Command::SetOption { sock, option }));
    all
}

fn extent() -> Command {
    Command::Extent {
        sock: SockId {
            index: 1,
            generation: 2,
        },
        at: 1 << 40,
        place: 1 << 30,
        len: 1 << 23,
    }
}

#[test]
fn every_command_round_trips() {
    let ticket = Ticket {
        slot: 77,
        sequence: 12,
    };
    for command in commands().into_iter().chain([extent()]) {
        let decoded = Command::decode(&command.encode(ticket));
        assert_eq!(decoded, Some((command, ticket)));
    }
}

#[test]
fn a_command_with_an_unknown_option_does_not_decode() {
    let sock = SockId {
        index: 1,
        generation: 1,
    };
    let option = SocketOption::NoDelay(true);
    let mut payload = Command::SetOption { sock, option }.encode(Ticket::NONE);
    payload[2] = 2;
    assert_eq!(Command::decode(&payload), None, "no value of the option");
    payload[0] |= 0xff00;
    assert_eq!(Command::decode(&payload), None, "no option");
}

#[test]
fn random_words_are_refused_or_decoded_but_never_panic() {
    let mut seed = 5u64;
    for _ in 0..100_000 {
        let payload = core::array::from_fn(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99);
            seed >> 3
        });
        let _ = Command::decode(&payload);
    }
}
