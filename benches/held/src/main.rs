//! A server inside one engine on a real interface: it accepts every connection, echoes received
//! bytes and needs no descriptor for any of them. `scripts/held` fills it from the kernel's side
//! and reads its memory use.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use slipstack_channel::{Command, EngineEnd, EventKind, ProgramEnd, SockId, Transport};
use slipstack_device::{RingPosition, Slots};
use slipstack_engine::{Engine, Instant as EngineInstant, NetworkState, Role, Setup, StackConfig};

/// Pause between two polls of an idle device.
const NAP: Duration = Duration::from_micros(100);
const TOLD_EVERY: Duration = Duration::from_secs(1);
const BACKLOG: u32 = 4096;

#[derive(Parser)]
#[command(about = "Holds connections inside an engine and sends back what arrives")]
struct Options {
    /// An interface that is up.
    #[arg(long = "if")]
    interface: String,
    /// Address of the stack.
    #[arg(long)]
    ip: IpAddr,
    #[arg(long, default_value_t = 24)]
    prefix: u8,
    /// The first port that is listened on.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Number of ports, each with a channel of its own.
    #[arg(long, default_value_t = 13)]
    ports: u16,
    /// Ends after so many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

type Failure = Box<dyn std::error::Error>;

struct Server {
    engine: Engine,
    programs: Vec<ProgramEnd>,
    /// The slots that keep the device as it is.
    _slots: Slots,
    accepted: u64,
    answers: u64,
    released: u64,
}

impl Server {
    fn new(options: &Options) -> Result<Server, Failure> {
        let mut slots = Slots::of_kind("packet", &options.interface, 1)?;
        slots.steering().set_own(&[(options.ip, options.prefix)])?;
        slots.install_ingress_drop()?;
        let mut server = Server {
            engine: engine(&slots, options)?,
            programs: Vec::new(),
            _slots: slots,
            accepted: 0,
            answers: 0,
            released: 0,
        };
        for port in (options.port..).take(options.ports.into()) {
            server.listen(SocketAddr::new(options.ip, port))?;
        }
        Ok(server)
    }

    fn listen(&mut self, addr: SocketAddr) -> Result<(), Failure> {
        let end = EngineEnd::create()?;
        let program = ProgramEnd::open(end.region().clone())?;
        self.engine.attach_client(end, None);
        let sock = program
            .open_socket(Transport::Tcp)
            .map_err(|_| "no socket")?;
        let bind = program.request(Command::Bind {
            sock,
            addr,
            reuse_addr: true,
            reuse_port: false,
            v6_only: false,
        });
        let listen = program.request(Command::Listen {
            sock,
            backlog: BACKLOG,
        });
        self.engine.turn(now());
        for ticket in [bind, listen] {
            let reply = program.reply(ticket).ok_or("no reply")?;
            reply.map_err(|refusal| format!("{addr} is refused: {refusal:?}"))?;
        }
        self.programs.push(program);
        Ok(())
    }

    fn turn(&mut self) -> bool {
        let progress = self.engine.turn(now()).progress;
        for program in &self.programs {
            while let Some(event) = program.poll_event() {
                let sock = match event.kind {
                    EventKind::Accepted { listener } => {
                        self.accepted += 1;
                        program.accept(listener)
                    }
                    EventKind::Changed => Some(event.sock),
                    EventKind::Released => {
                        self.released += 1;
                        None
                    }
                    // Each is accepted as it comes.
                    EventKind::Withdrawn { .. } => None,
                };
                if let Some(sock) = sock {
                    self.answers += u64::from(send_back(program, sock));
                }
            }
        }
        progress
    }
}

/// → whether anything arrived
fn send_back(program: &ProgramEnd, sock: SockId) -> bool {
    let mut buf = [0; 2048];
    let got = program.recv(sock, &mut [IoSliceMut::new(&mut buf)]);
    if got > 0 {
        program.send(sock, &[IoSlice::new(&buf[..got])], false);
    }
    got > 0
}

fn engine(slots: &Slots, options: &Options) -> Result<Engine, Failure> {
    let link = slots.link();
    let device = slots.adopt(0, RingPosition::private())?;
    let stack = StackConfig {
        network: NetworkState::of(link.mtu, vec![(options.ip, options.prefix)], &[]).into(),
        mac: link.mac,
        tso_max: link.tso_max,
        role: Role::Standalone,
        ..StackConfig::default()
    };
    let setup = Setup {
        stack,
        device,
        directory: None,
        interconnect: None,
        ports: None,
        neighbours: None,
    };
    Ok(Engine::new(setup, now()))
}

fn now() -> EngineInstant {
    EngineInstant(slipstack_mem::now_ns())
}

fn serve(options: &Options) -> Result<(), Failure> {
    let mut server = Server::new(options)?;
    println!("ready");
    let begin = Instant::now();
    let mut told = begin;
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        if !server.turn() {
            std::thread::sleep(NAP);
        }
        if told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            println!(
                "accepted {} answers {} released {}",
                server.accepted, server.answers, server.released
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("slipstack-held: {failure}");
            ExitCode::FAILURE
        }
    }
}
