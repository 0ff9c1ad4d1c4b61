//! Socket options, and sizes that a program can query.

use slipstack_channel::{Reply, SocketError, SocketOption, SocketState, TcpInfo};
use slipstack_stack::Instant;

use crate::client::{Role, step_for};
use crate::commands::Answer;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::owners::Owner;

/// Largest buffer a program may request: the size of the largest ring.
const BUFFER_MAX: u32 = 1 << slipstack_mem::RING_LOG2_MAX;

/// Returns the number of bytes that may wait if a program requests a send buffer of this size. The
/// kernel doubles that and subtracts the overhead of segments: 1.5 times as many fit at 16 KiB,
/// 1.33 at 64 KiB, 1.29 at 200,000, and always some segments.
fn send_room(bytes: u32) -> u32 {
    const SEGMENTS: u32 = 2 * 1448;
    bytes.saturating_add(bytes / 4).saturating_add(SEGMENTS)
}

impl Engine {
    pub(crate) fn on_set_option(
        &mut self,
        now: Instant,
        owner: Owner,
        option: SocketOption,
    ) -> Answer {
        let option = match option {
            SocketOption::Chooser(part) => return self.on_chooser_part(owner, part),
            // The requested size is doubled, as on the kernel.
            SocketOption::RcvBuf(bytes) => {
                SocketOption::RcvBuf(bytes.saturating_mul(2).min(BUFFER_MAX))
            }
            SocketOption::SndBuf(bytes) => SocketOption::SndBuf(send_room(bytes).min(BUFFER_MAX)),
            other => other,
        };
        let client = self.env.client(owner.client);
        let found = client.and_then(|client| client.find(owner.sock));
        let (socket, end) = found.ok_or(SocketError::UnknownId)?;
        if let SocketOption::RcvBuf(bytes) = option {
            socket.step = step_for(bytes);
            end.set_rcvbuf(owner.sock, bytes);
        }
        match socket.role {
            Role::Stream(conn) => {
                let mut fx = Fx::new(&mut self.env, &mut *self.device);
                self.stack.tcp_set_option(now, conn, option, &mut fx)?;
                if option.outlives_program() {
                    self.describe(conn);
                }
            }
            role @ (Role::None | Role::Listener(_) | Role::Datagram(_)) => {
                let options = socket.options_mut();
                options.set(option);
                if let Role::Listener(id) = role {
                    self.stack.tcp_set_preset(id, options.clone())?;
                }
                if let SocketOption::SndBuf(bytes) = option
                    && let Some(client) = self.env.client(owner.client)
                {
                    client.end.set_sndbuf(owner.sock, bytes);
                }
                if let Role::Datagram(id) = role {
                    self.stack.udp_set_option(id, option)?;
                }
                if let SocketOption::Cookie(_) = option {
                    self.env.note_sharer(owner);
                }
            }
        }
        Ok(Reply::Done)
    }

    pub(crate) fn on_take_syn(&mut self, owner: Owner) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        let taken = match socket.role {
            Role::Stream(conn) => self.stack.tcp_take_saved_syn(conn),
            Role::None | Role::Listener(_) | Role::Datagram(_) => None,
        };
        Ok(taken.map_or(Reply::Done, Reply::Syn))
    }

    pub(crate) fn on_info(&mut self, now: Instant, owner: Owner) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        match socket.role {
            Role::Stream(conn) => {
                let info = self
                    .stack
                    .tcp_info(now, conn)
                    .ok_or(SocketError::NotConnected)?;
                Ok(Reply::Info(info))
            }
            Role::Listener(_) => Ok(Reply::Info(TcpInfo {
                state: SocketState::Listen,
                ..TcpInfo::default()
            })),
            Role::None => Ok(Reply::Info(TcpInfo {
                ..TcpInfo::default()
            })),
            Role::Datagram(id) => {
                let pmtu = self.stack.udp_path_mtu(now, id);
                Ok(Reply::Info(TcpInfo {
                    pmtu: pmtu.ok_or(SocketError::NotConnected)?.into(),
                    ..TcpInfo::default()
                }))
            }
        }
    }
}
