//! A segment that belongs to no connection of ours and makes the peer show its numbers.

use core::net::SocketAddr;

use slipstack_wire::protocol;
use slipstack_wire::tcp::{self, TcpFlags, TcpHeader};

use crate::counters::Counter;
use crate::effects::{Effects, Payload};
use crate::link::{OutPacket, OutSegment};
use crate::options::DEFAULT_TTL;
use crate::stack::{Stack, cx};
use crate::time::Instant;

impl Stack {
    /// Asks a peer for the state of a flow whose own state is lost: one segment with random
    /// numbers and a byte of data. RFC 9293 3.10.7.4: being unacceptable it is answered with an
    /// ACK, and the reset of that ACK, which meets a closed port here, carries exact numbers.
    pub fn tcp_probe(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        fx: &mut impl Effects,
    ) {
        let header = TcpHeader {
            src_port: local.port(),
            dst_port: remote.port(),
            seq: self.rng.next_u32(),
            ack: self.rng.next_u32(),
            flags: TcpFlags::ACK,
            window: 0,
            urgent: 0,
        };
        let mut bytes = [0; tcp::HEADER_LEN];
        header.emit(0, &mut bytes);
        let packet = OutPacket {
            src: local.ip(),
            dst: remote.ip(),
            protocol: protocol::TCP,
            tos: 0,
            ttl: DEFAULT_TTL,
            dont_fragment: true,
        };
        let segment = OutSegment {
            header: &bytes,
            payload: Payload::Inline(&[0]),
            checksum_at: Some(tcp::CHECKSUM_AT),
            gso_mss: None,
        };
        cx!(self).output(now, &packet, &mut None, segment, fx);
        self.counters.bump(Counter::TxTcp);
    }
}
