//! The lower bound for a server on a packet socket: answers nginx's clients with a canned reply,
//! without TCP. It keeps no state of a connection and computes every answer from the segment that
//! asks for it, so the cost is that of the client, the kernel's side of the device, wake-ups, and
//! three small frames. `scripts/bench --placement floor` runs it in the place of a server.
//!
//! The server only works on a link that loses nothing.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use slipstack_device::{Device, DeviceError, RingPosition, RxMeta, Slots};
use slipstack_mem::{Descriptor, RawSlice};
use slipstack_wire::arp::{self, ArpOperation, ArpPacket};
use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv4::{self, Ipv4Header, Ipv4Packet};
use slipstack_wire::tcp::{self, TcpFlags, TcpHeader, TcpSegment};
use slipstack_wire::{PartialChecksum, TxOffload, checksum, protocol};

const BUDGET: usize = 256;
const WINDOW: u16 = 65_000;
const INITIAL_SEQ: u32 = 1_000_000;
/// Maximum segment size 1460, the only option of the SYN-ACK.
const SYN_OPTIONS: [u8; 4] = [2, 4, 0x05, 0xb4];
/// As long as nginx's answer in the benchmark.
const KEPT: &[u8] = b"\
    HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 22 Nov 2026 00:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 32\r\n\
    Connection: keep-alive\r\n\r\n0123456789abcdef0123456789abcde\n";
const CLOSED: &[u8] = b"\
    HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 22 Nov 2026 00:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 32\r\n\
    Connection: close\r\n\r\n0123456789abcdef0123456789abcde\n";
const CLOSE: &[u8] = b"Connection: close";

#[derive(Parser)]
#[command(about = "Answers HTTP from a canned reply, without a TCP behind it")]
struct Options {
    /// An interface that is up.
    #[arg(long = "if")]
    interface: String,
    #[arg(long)]
    ip: Ipv4Addr,
    /// Time for which frames gather after a wake-up.
    #[arg(long, default_value_t = 25)]
    gather_us: u64,
    /// Spin instead of sleeping.
    #[arg(long)]
    spin: bool,
    /// Ends after so many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

type Failure = Box<dyn std::error::Error>;

/// A frame to send: the headers, and the canned bytes that follow.
struct Answer {
    header: Vec<u8>,
    payload: &'static [u8],
    offload: TxOffload,
}

struct Responder {
    mac: [u8; 6],
    ip: Ipv4Addr,
}

impl Responder {
    fn answer(&self, frame: &[u8]) -> Option<Answer> {
        let (link, payload) = EthernetHeader::parse(frame)?;
        match link.ethertype {
            EtherType::ARP => self.arp(payload),
            EtherType::IPV4 => self.tcp(link.src, payload),
            _ => None,
        }
    }

    fn arp(&self, bytes: &[u8]) -> Option<Answer> {
        let asked = ArpPacket::parse(bytes)?;
        if asked.operation != ArpOperation::Request || asked.target_ip != self.ip {
            return None;
        }
        let mut header = vec![0; ethernet::HEADER_LEN + arp::PACKET_LEN];
        self.link(asked.sender_mac, EtherType::ARP, &mut header);
        let reply = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: self.mac,
            sender_ip: self.ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
        };
        reply.emit(&mut header[ethernet::HEADER_LEN..]);
        Some(Answer {
            header,
            payload: &[],
            offload: TxOffload::default(),
        })
    }

    fn link(&self, dst: [u8; 6], ethertype: EtherType, out: &mut [u8]) {
        let header = EthernetHeader {
            dst,
            src: self.mac,
            ethertype,
        };
        header.emit(out);
    }

    fn tcp(&self, from: [u8; 6], bytes: &[u8]) -> Option<Answer> {
        let packet = Ipv4Packet::parse(bytes).ok()?;
        if packet.header.protocol != protocol::TCP || packet.header.dst != self.ip {
            return None;
        }
        let segment = TcpSegment::parse(packet.payload)?;
        let asked = &segment.header;
        let end = asked.seq.wrapping_add(segment.payload.len() as u32);
        let (seq, ack, flags, options, payload): (_, _, _, &[u8], &'static [u8]) =
            if asked.flags.contains(TcpFlags::RST) {
                return None;
            } else if asked.flags.contains(TcpFlags::SYN) {
                let flags = TcpFlags::SYN | TcpFlags::ACK;
                (INITIAL_SEQ, end.wrapping_add(1), flags, &SYN_OPTIONS, &[])
            } else if asked.flags.contains(TcpFlags::FIN) {
                (asked.ack, end.wrapping_add(1), TcpFlags::ACK, &[], &[])
            } else if segment.payload.windows(CLOSE.len()).any(|it| it == CLOSE) {
                let flags = TcpFlags::ACK | TcpFlags::PSH | TcpFlags::FIN;
                (asked.ack, end, flags, &[], CLOSED)
            } else if !segment.payload.is_empty() {
                let flags = TcpFlags::ACK | TcpFlags::PSH;
                (asked.ack, end, flags, &[], KEPT)
            } else {
                return None;
            };
        let header = TcpHeader {
            src_port: asked.dst_port,
            dst_port: asked.src_port,
            seq,
            ack,
            flags,
            window: WINDOW,
            urgent: 0,
        };
        Some(self.segment(from, packet.header.src, &header, options, payload))
    }

    fn segment(
        &self,
        to_mac: [u8; 6],
        to: Ipv4Addr,
        tcp: &TcpHeader,
        options: &[u8],
        payload: &'static [u8],
    ) -> Answer {
        const TCP_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
        let tcp_len = tcp::HEADER_LEN + options.len() + payload.len();
        let mut header = vec![0; TCP_AT + tcp::HEADER_LEN + options.len()];
        self.link(to_mac, EtherType::IPV4, &mut header);
        let ip = Ipv4Header {
            tos: 0,
            total_len: (ipv4::HEADER_LEN + tcp_len) as u16,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            protocol: protocol::TCP,
            src: self.ip,
            dst: to,
        };
        ip.emit(&mut header[ethernet::HEADER_LEN..]);
        tcp.emit(options.len(), &mut header[TCP_AT..]);
        header[TCP_AT + tcp::HEADER_LEN..].copy_from_slice(options);
        let sum = checksum::pseudo_v4(self.ip, to, protocol::TCP, tcp_len as u32).fold();
        let field = TCP_AT + usize::from(tcp::CHECKSUM_AT);
        header[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        Answer {
            header,
            payload,
            offload: TxOffload {
                checksum: Some(PartialChecksum {
                    start: TCP_AT as u16,
                    offset: tcp::CHECKSUM_AT,
                }),
                ..TxOffload::default()
            },
        }
    }
}

fn serve(options: &Options) -> Result<(), Failure> {
    let mut slots = Slots::of_kind("packet", &options.interface, 1)?;
    slots.steering().set_own(&[(options.ip.into(), 24)])?;
    slots.install_ingress_drop()?;
    let mut device = slots.adopt(0, RingPosition::private())?;
    let responder = Responder {
        mac: slots.link().mac,
        ip: options.ip,
    };
    let mut answers = Vec::with_capacity(BUDGET);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        let count = device.rx(BUDGET, &mut |frame: &[u8], _: RxMeta| {
            answers.extend(responder.answer(frame))
        });
        for answer in answers.drain(..) {
            let payload = [RawSlice::of(answer.payload), RawSlice::EMPTY];
            let _ = device.tx(&answer.header, payload, answer.offload);
        }
        device.flush();
        if count == 0 && !options.spin {
            sleep(device.poll_fd(), options.gather_us)?;
        }
    }
    Ok(())
}

/// Until a frame comes, and then a little.
fn sleep(fd: i32, gather_us: u64) -> Result<(), Failure> {
    let fd = Descriptor::new(fd).ok_or(DeviceError::ReadOnly)?;
    let fd: BorrowedFd<'_> = fd.as_fd();
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&second),
    )?;
    if gather_us > 0 {
        std::thread::sleep(Duration::from_micros(gather_us));
    }
    Ok(())
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("slipstack-floor: {failure}");
            ExitCode::FAILURE
        }
    }
}
