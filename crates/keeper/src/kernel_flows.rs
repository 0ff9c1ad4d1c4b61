//! The kernel's TCP connections with addresses of this network namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use slipstack_device::{Flow, Transport};

/// `st` of a listener in /proc/net/tcp (`enum` in net/tcp_states.h, proc(5)).
const LISTEN: &str = "0A";

/// The ends of a TCP connection of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelFlow {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

impl From<KernelFlow> for Flow {
    fn from(ends: KernelFlow) -> Flow {
        Flow {
            proto: Transport::Tcp,
            local: ends.local,
            remote: ends.remote,
        }
    }
}

/// Each connection, TIME-WAIT included.
pub fn read() -> Vec<KernelFlow> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .flat_map(|text| text.lines().filter_map(connection).collect::<Vec<_>>())
        .collect()
}

/// A line: number, local end, remote end, state, and more.
fn connection(line: &str) -> Option<KernelFlow> {
    let mut words = line.split_whitespace().skip(1);
    let local = end(words.next()?)?;
    let remote = end(words.next()?)?;
    (words.next()? != LISTEN).then_some(KernelFlow { local, remote })
}

/// An address as 32-bit words of this machine's byte order, and a port: `0100007F:1F90`.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = [0; 16];
    let words = address.as_bytes().chunks(8);
    for (word, place) in words.zip(bytes.chunks_mut(4)) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        32 => Ipv6Addr::from(bytes).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn connections_are_read_and_listeners_are_not() {
        let established = "   1: 0500000A:0016 0100000A:B2C4 01 00000000:00000000 02:000A 0 0 1";
        let expected = KernelFlow {
            local: "10.0.0.5:22".parse().unwrap(),
            remote: "10.0.0.1:45764".parse().unwrap(),
        };
        assert_eq!(connection(established), Some(expected));
        let mapped =
            "0: 0000000000000000FFFF00000500000A:0016 0000000000000000FFFF00000100000A:B2C4 06";
        assert_eq!(connection(mapped), Some(expected));
        let listener = "   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00 0 0 1";
        assert_eq!(connection(listener), None);
        assert_eq!(
            connection("  sl  local_address rem_address   st tx_queue"),
            None
        );
    }

    #[test]
    fn a_connection_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = KernelFlow {
            local: stream.local_addr().unwrap(),
            remote: stream.peer_addr().unwrap(),
        };
        assert!(read().contains(&ends));
    }
}
