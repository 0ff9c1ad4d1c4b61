//! Checks of a host's segments on the wire, each against earlier ones of both sides.
//!
//! The stacks are not asked, so that a stack whose own numbers are wrong is seen as well (RFC 9293
//! 3.4, 3.6, 3.8.6).

use std::collections::HashMap;
use std::net::SocketAddr;

use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::protocol;
use slipstack_wire::tcp::{TcpFlags, TcpSegment};
use slipstack_wire::tcp_options::TcpOptions;

type Flow = (SocketAddr, SocketAddr);

/// One side of a connection. Positions count from its SYN, which has 0.
#[derive(Clone, Copy, Debug)]
struct Side {
    isn: u32,
    /// After the last that was sent.
    end: u64,
    /// After the FIN.
    fin: Option<u64>,
    /// Window scale of its SYN.
    scale: Option<u8>,
    /// Limit of the other side's data: the furthest that this side has ever allowed.
    edge: u64,
    /// The program has aborted: only resets may follow.
    is_aborted: bool,
    /// The connection is gone with its numbers: only resets and probes may follow.
    is_dead: bool,
    /// The connection ended in TIME-WAIT, which others go on with: no reset may follow.
    is_former: bool,
    /// The other side has acknowledged its SYN.
    is_settled: bool,
}

impl Side {
    /// The position next to `near` that this number on the wire means.
    fn position(&self, near: u64, wire: u32) -> u64 {
        let ahead = wire.wrapping_sub(self.isn.wrapping_add(near as u32)) as i32;
        near.saturating_add_signed(ahead.into())
    }
}

/// All flows that began while it watched.
#[derive(Debug, Default)]
pub struct Watch {
    sides: HashMap<Flow, Side>,
    /// Other SYN-ACKs to the same SYN: while ports change hands, two engines may answer it.
    rivals: HashMap<Flow, Vec<Side>>,
    /// Something between the hosts has changed the ports: each side counts alone.
    pub is_blind_to_peers: bool,
}

impl Watch {
    /// A frame leaves a host.
    pub fn on_frame(&mut self, frame: &[u8]) -> Result<(), String> {
        let Some((flow, segment)) = parse(frame) else {
            return Ok(());
        };
        self.on_segment(flow, &segment)
            .map_err(|why| format!("{} to {}: {why}", flow.0, flow.1))
    }

    /// Records that the program of this side drops everything.
    pub fn on_abort(&mut self, local: SocketAddr, remote: SocketAddr) {
        if let Some(side) = self.sides.get_mut(&(local, remote)) {
            side.is_aborted = true;
        }
    }

    /// The program of this side has died, and its engine with it.
    pub fn on_death(&mut self, local: SocketAddr, remote: SocketAddr) {
        if let Some(side) = self.sides.get_mut(&(local, remote)) {
            side.is_dead = true;
        }
    }

    /// Notes that a side is in TIME-WAIT, and that its engine ends in order.
    pub fn on_time_wait(&mut self, local: SocketAddr, remote: SocketAddr) {
        if let Some(side) = self.sides.get_mut(&(local, remote)) {
            side.is_former = true;
        }
    }

    fn on_segment(&mut self, flow: Flow, segment: &TcpSegment<'_>) -> Result<(), String> {
        let header = &segment.header;
        if header.flags.is_rst() {
            return match self.sides.get(&flow) {
                Some(side) if side.is_former => Err("a reset to the peer of a TIME-WAIT".into()),
                _ => Ok(()),
            };
        }
        if header.flags.is_syn() {
            self.on_syn(flow, segment);
            if self.is_rival(flow, header.seq) {
                return Ok(());
            }
        }
        let back = (flow.1, flow.0);
        if !header.flags.is_syn() && header.flags.is_ack() {
            self.settle(back, header.ack);
        }
        let peer = self.sides.get(&back).copied();
        let peer = peer.filter(|_| !self.is_blind_to_peers);
        // A flow that began unseen.
        let Some(side) = self.sides.get_mut(&flow) else {
            return Ok(());
        };
        if side.is_aborted {
            return Err("a segment after the program has aborted".into());
        }
        if side.is_dead {
            return match is_probe(segment) {
                true => Ok(()),
                false => Err("a segment after the program has died".into()),
            };
        }
        let start = side.position(side.end, header.seq);
        let text = start + u64::from(header.flags.is_syn()) + segment.payload.len() as u64;
        let end = text + u64::from(header.flags.is_fin());
        if side.fin.is_some_and(|fin| end > fin) {
            return Err(format!("{end} is beyond the FIN at {:?}", side.fin));
        }
        if header.flags.is_fin() && end < side.end {
            return Err(format!("a FIN at {end}, after {} was sent", side.end));
        }
        if header.flags.is_fin() {
            side.fin = Some(end);
        }
        side.end = side.end.max(end);
        let Some(peer) = peer else {
            return Ok(());
        };
        if !segment.payload.is_empty() && !header.flags.is_syn() && text > peer.edge {
            return Err(format!("{text} is outside of the window, {}", peer.edge));
        }
        if !header.flags.is_ack() {
            return Ok(());
        }
        let acked = peer.position(peer.end, header.ack);
        if acked > peer.end {
            return Err(format!("acknowledges {acked} of {}", peer.end));
        }
        let scale = match (header.flags.is_syn(), side.scale, peer.scale) {
            (false, Some(scale), Some(_)) => scale.min(14),
            _ => 0,
        };
        side.edge = side.edge.max(acked + (u64::from(header.window) << scale));
        Ok(())
    }

    /// Returns whether this SYN-ACK differs from the one of the flow.
    fn is_rival(&self, flow: Flow, isn: u32) -> bool {
        self.sides.get(&flow).is_some_and(|side| side.isn != isn)
    }

    /// A handshake is done: of the SYN-ACKs of several engines it is this one that counts.
    fn settle(&mut self, flow: Flow, ack: u32) {
        let Some(side) = self.sides.get_mut(&flow) else {
            return;
        };
        let rivals = self.rivals.remove(&flow).unwrap_or_default();
        let isn = ack.wrapping_sub(1);
        if !side.is_settled
            && let Some(chosen) = rivals.into_iter().find(|rival| rival.isn == isn)
        {
            *side = chosen;
        }
        side.is_settled = true;
    }

    /// Another connection, unless it is the same SYN again.
    fn on_syn(&mut self, flow: Flow, segment: &TcpSegment<'_>) {
        let isn = segment.header.seq;
        let before = self.sides.get(&flow);
        if before.is_some_and(|side| side.isn == isn) {
            return;
        }
        let is_rival = before.is_some_and(|side| !side.is_dead) && segment.header.flags.is_ack();
        if before.is_some() && !segment.header.flags.is_ack() {
            self.sides.remove(&(flow.1, flow.0));
        }
        let side = Side {
            isn,
            end: 0,
            fin: None,
            scale: TcpOptions::parse(segment.options).window_scale,
            edge: 0,
            is_aborted: false,
            is_dead: false,
            is_former: false,
            is_settled: false,
        };
        if is_rival {
            let edge = 1 + u64::from(segment.header.window);
            let rival = Side {
                end: 1,
                edge,
                ..side
            };
            self.rivals.entry(flow).or_default().push(rival);
            return;
        }
        self.rivals.remove(&flow);
        self.sides.insert(flow, side);
    }
}

/// Returns whether a segment is a keeper's probe of a flow of which only the ends are known: any
/// numbers, and one byte.
fn is_probe(segment: &TcpSegment<'_>) -> bool {
    segment.header.flags == TcpFlags::ACK && segment.payload == [0]
}

fn parse(frame: &[u8]) -> Option<(Flow, TcpSegment<'_>)> {
    let (link, packet) = EthernetHeader::parse(frame)?;
    let (src, dst, bytes) = match link.ethertype {
        EtherType::IPV4 => {
            let packet = Ipv4Packet::parse(packet).ok()?;
            let header = packet.header;
            (header.protocol == protocol::TCP).then_some(())?;
            (header.src.into(), header.dst.into(), packet.payload)
        }
        EtherType::IPV6 => {
            let packet = Ipv6Packet::parse(packet)?;
            let header = packet.header;
            (header.next_header == protocol::TCP).then_some(())?;
            (header.src.into(), header.dst.into(), packet.payload)
        }
        _ => return None,
    };
    let segment = TcpSegment::parse(bytes)?;
    let from = SocketAddr::new(src, segment.header.src_port);
    let to = SocketAddr::new(dst, segment.header.dst_port);
    Some(((from, to), segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_wire::tcp::TcpHeader;

    const CLIENT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
    const SERVER: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2);
    const UP: Flow = (CLIENT, SERVER);
    const DOWN: Flow = (SERVER, CLIENT);
    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;
    const FIN: TcpFlags = TcpFlags::FIN;
    /// Near the end of the numbers, so that they wrap.
    const ISN_UP: u32 = u32::MAX - 3;
    const ISN_DOWN: u32 = 7_000;

    fn say(
        watch: &mut Watch,
        flow: Flow,
        flags: TcpFlags,
        (seq, ack): (u32, u32),
        len: usize,
    ) -> Result<(), String> {
        let (own, other) = match flow == UP {
            true => (ISN_UP, ISN_DOWN),
            false => (ISN_DOWN, ISN_UP),
        };
        let payload = vec![0; len];
        let segment = TcpSegment {
            header: TcpHeader {
                src_port: flow.0.port(),
                dst_port: flow.1.port(),
                seq: own.wrapping_add(seq),
                ack: other.wrapping_add(ack),
                flags,
                window: 1_000,
                urgent: 0,
            },
            options: &[],
            payload: &payload,
        };
        watch.on_segment(flow, &segment)
    }

    type Said = (Flow, TcpFlags, (u32, u32), usize);

    /// Open, with 500 bytes from the client.
    fn open() -> Watch {
        let mut watch = Watch::default();
        for (flow, flags, numbers, len) in [
            (UP, SYN, (0, 0), 0),
            (DOWN, SYN | ACK, (0, 1), 0),
            (UP, ACK, (1, 1), 500),
            (DOWN, ACK, (1, 501), 0),
        ] {
            assert_eq!(say(&mut watch, flow, flags, numbers, len), Ok(()));
        }
        watch
    }

    #[test]
    fn segments_of_a_correct_connection_are_accepted() {
        let mut watch = open();
        for (flow, flags, numbers, len) in [
            (UP, ACK, (501, 1), 1_000),
            (UP, ACK, (1, 1), 500),
            (DOWN, ACK, (1, 1501), 1_000),
            (UP, FIN | ACK, (1501, 1001), 0),
            (UP, FIN | ACK, (1001, 1001), 500),
            (DOWN, FIN | ACK, (1001, 1502), 0),
            (UP, ACK, (1502, 1002), 0),
            (UP, SYN, (99, 0), 0),
            (DOWN, ACK, (1002, 1502), 0),
        ] {
            assert_eq!(say(&mut watch, flow, flags, numbers, len), Ok(()));
        }
    }

    #[test]
    fn forbidden_segments_are_reported() {
        let rows: [(&str, &[Said]); 6] = [
            ("outside of the window", &[(UP, ACK, (501, 1), 1_001)]),
            ("acknowledges 502 of 501", &[(DOWN, ACK, (1, 502), 0)]),
            (
                "beyond the FIN",
                &[(UP, FIN | ACK, (501, 1), 0), (UP, ACK, (501, 1), 2)],
            ),
            (
                "beyond the FIN",
                &[(UP, FIN | ACK, (501, 1), 0), (UP, FIN | ACK, (502, 1), 0)],
            ),
            ("a FIN at 500", &[(UP, FIN | ACK, (499, 1), 0)]),
            (
                "a FIN at 401",
                &[(UP, ACK, (501, 1), 0), (UP, FIN | ACK, (1, 1), 399)],
            ),
        ];
        for (why, segments) in rows {
            let mut watch = open();
            let said: Vec<_> = segments
                .iter()
                .map(|&(flow, flags, numbers, len)| say(&mut watch, flow, flags, numbers, len))
                .collect();
            let (last, before) = said.split_last().unwrap();
            assert!(before.iter().all(Result::is_ok), "{why}: {said:?}");
            assert!(
                last.as_ref().is_err_and(|is| is.contains(why)),
                "{why}: {said:?}"
            );
        }
    }

    #[test]
    fn after_an_abort_only_resets_may_follow() {
        let mut watch = open();
        watch.on_abort(CLIENT, SERVER);
        assert_eq!(say(&mut watch, UP, TcpFlags::RST, (501, 0), 0), Ok(()));
        assert_eq!(say(&mut watch, DOWN, ACK, (1, 501), 0), Ok(()));
        assert!(say(&mut watch, UP, ACK, (501, 1), 0).is_err());
        assert_eq!(say(&mut watch, UP, SYN, (9, 0), 0), Ok(()), "a new one");
    }

    #[test]
    fn after_time_wait_no_reset_may_follow_until_the_ends_are_used_again() {
        let mut watch = open();
        let reset = |watch: &mut Watch, flow| say(watch, flow, TcpFlags::RST, (501, 0), 0);
        watch.on_time_wait(CLIENT, SERVER);
        assert!(reset(&mut watch, UP).is_err_and(|why| why.contains("TIME-WAIT")));
        assert_eq!(reset(&mut watch, DOWN), Ok(()));
        assert_eq!(say(&mut watch, UP, ACK, (501, 1), 0), Ok(()));
        assert_eq!(say(&mut watch, DOWN, SYN, (9, 0), 0), Ok(()), "a new one");
        assert_eq!(reset(&mut watch, UP), Ok(()));
    }

    #[test]
    fn the_acknowledged_one_of_two_syn_acks_opens_the_connection() {
        let mut watch = Watch::default();
        let said = [
            (UP, SYN, (0, 0), 0),
            (DOWN, SYN | ACK, (90_000, 1), 0),
            (DOWN, SYN | ACK, (0, 1), 0),
            (UP, ACK, (1, 1), 500),
            (DOWN, SYN | ACK, (90_000, 1), 0),
            (DOWN, ACK, (1, 501), 500),
        ];
        for (flow, flags, numbers, len) in said {
            assert_eq!(say(&mut watch, flow, flags, numbers, len), Ok(()));
        }
        assert!(say(&mut watch, UP, ACK, (501, 502), 0).is_err());
    }

    #[test]
    fn a_dead_connection_sends_only_resets_and_probes() {
        let mut watch = open();
        watch.on_death(CLIENT, SERVER);
        assert_eq!(say(&mut watch, UP, TcpFlags::RST, (501, 0), 0), Ok(()));
        assert_eq!(say(&mut watch, UP, ACK, (1 << 30, 1 << 29), 1), Ok(()));
        assert!(say(&mut watch, UP, ACK, (501, 1), 0).is_err());
        assert!(say(&mut watch, UP, ACK | FIN, (501, 1), 1).is_err());
        assert_eq!(say(&mut watch, DOWN, ACK, (1, 501), 0), Ok(()));
        assert_eq!(say(&mut watch, UP, SYN, (9, 0), 0), Ok(()), "a new one");
    }
}
