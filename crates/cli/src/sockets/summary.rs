//! `ss -s`: the number of sockets of each kind.

use serde::Serialize;
use slipstack_channel::{SocketState, Transport};

use super::Socket;

/// The sockets of one protocol by family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Families {
    total: usize,
    ip: usize,
    ipv6: usize,
}

impl Families {
    fn add(&mut self, is_v4: bool) {
        self.total += 1;
        *(if is_v4 { &mut self.ip } else { &mut self.ipv6 }) += 1;
    }
}

/// The counts that `ss -s` shows. A closed connection is one in TIME-WAIT, an orphan one that no
/// program holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    established: usize,
    orphaned: usize,
    timewait: usize,
    tcp: Families,
    udp: Families,
}

impl Summary {
    pub fn of(sockets: &[Socket]) -> Summary {
        let mut summary = Summary::default();
        for row in sockets.iter().map(|it| &it.row) {
            let is_v4 = row.local.is_ipv4();
            if row.protocol == Transport::Udp {
                summary.udp.add(is_v4);
                continue;
            }
            summary.tcp.add(is_v4);
            match row.state {
                SocketState::Established => summary.established += 1,
                SocketState::TimeWait => summary.timewait += 1,
                _ => {}
            }
            let is_open = ![SocketState::TimeWait, SocketState::SynReceived].contains(&row.state);
            summary.orphaned += usize::from(is_open && !row.is_held);
        }
        summary
    }

    pub fn text(&self) -> String {
        let Summary { tcp, udp, .. } = self;
        let both = Families {
            total: tcp.total + udp.total,
            ip: tcp.ip + udp.ip,
            ipv6: tcp.ipv6 + udp.ipv6,
        };
        let row = |name: &str, it: &Families| {
            format!("{name:<9} {:<9} {:<9} {}\n", it.total, it.ip, it.ipv6)
        };
        format!(
            "Total: {}\nTCP:   {} (estab {}, closed {}, orphaned {}, timewait {})\n\n\
             Transport Total     IP        IPv6\n{}{}{}",
            both.total,
            tcp.total,
            self.established,
            self.timewait,
            self.orphaned,
            self.timewait,
            row("UDP", udp),
            row("TCP", tcp),
            row("INET", &both),
        )
    }
}

#[cfg(test)]
mod tests {
    use slipstack_channel::control::net::SocketRow;

    use super::*;

    fn socket(protocol: Transport, state: SocketState, local: &str, is_held: bool) -> Socket {
        Socket {
            row: SocketRow {
                protocol,
                is_held,
                ..SocketRow::between(state, local.parse().unwrap(), None)
            },
            interface: String::new(),
            engine: 0,
            users: Vec::new(),
        }
    }

    #[test]
    fn sockets_are_counted_by_state_and_family() {
        let (tcp, udp) = (Transport::Tcp, Transport::Udp);
        let sockets = [
            socket(tcp, SocketState::Listen, "0.0.0.0:80", true),
            socket(tcp, SocketState::Established, "10.0.0.5:80", true),
            socket(tcp, SocketState::FinWait1, "10.0.0.5:80", false),
            socket(tcp, SocketState::TimeWait, "[fd00::5]:80", false),
            socket(udp, SocketState::Closed, "[::]:53", true),
        ];
        let text = Summary::of(&sockets).text();
        let expected = "Total: 5\n\
            TCP:   4 (estab 1, closed 1, orphaned 1, timewait 1)\n\n\
            Transport Total     IP        IPv6\n\
            UDP       1         0         1\n\
            TCP       4         3         1\n\
            INET      5         3         2\n";
        assert_eq!(text, expected);
    }
}
