//! A client of a control socket.

use std::fmt;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    send, sendmsg, socket_with, sockopt,
};

use crate::large;
use crate::message::{Answer, Call, Envelope, Query, Returned};

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Reason why a call has no answer.
#[derive(Debug)]
pub enum ClientError {
    Io(io::Error),
    /// The bytes are no answer of this protocol.
    Malformed,
    /// The keeper refuses, with a sentence.
    Denied(String),
    /// The keeper has ended.
    Closed,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Io(error) => write!(f, "the keeper cannot be asked: {error}"),
            ClientError::Malformed => {
                f.write_str("the keeper's answer is not understood; use one version of slipstack")
            }
            ClientError::Denied(why) => f.write_str(why),
            ClientError::Closed => f.write_str("the keeper has ended"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<rustix::io::Errno> for ClientError {
    fn from(error: rustix::io::Errno) -> ClientError {
        ClientError::Io(error.into())
    }
}

/// A connection to a keeper.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
}

impl Client {
    /// # Errors
    /// No process listens there, or access is denied.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER_MAX))?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Client { socket })
    }

    /// Asks one question.
    ///
    /// # Errors
    /// A refusal, or no answer within ten seconds.
    pub fn ask(&self, query: Query) -> Result<Answer, ClientError> {
        let message = serde_json::to_vec(&Envelope::Net(Call::new(query)));
        let message = message.map_err(|_| ClientError::Malformed)?;
        self.send(&message)?;
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(ANSWER_MAX))?;
        self.receive()
    }

    /// Waits for the next change, after [`Query::Watch`].
    ///
    /// # Errors
    /// The keeper has ended.
    pub fn next(&self) -> Result<Answer, ClientError> {
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, None)?;
        self.receive()
    }

    fn send(&self, message: &[u8]) -> Result<(), ClientError> {
        if message.len() <= large::PACKET_MAX {
            send(&self.socket, message, SendFlags::NOSIGNAL)?;
            return Ok(());
        }
        let split = large::split(message).map_err(ClientError::Io)?;
        let file = [split.file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&file));
        let packet = [IoSlice::new(&split.packet)];
        sendmsg(&self.socket, &packet, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive(&self) -> Result<Answer, ClientError> {
        let mut buffer = vec![0; large::PACKET_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.socket, &mut parts, &mut ancillary, flags)?;
        if received.bytes == 0 {
            return Err(ClientError::Closed);
        }
        let mut files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let file = files.next().and_then(|mut rights| rights.next());
        let packet = &buffer[..received.bytes];
        let bytes = match (large::announced(packet), &file) {
            (Some(len), Some(file)) => &large::join(len, file.as_fd()).map_err(ClientError::Io)?,
            _ => packet,
        };
        match serde_json::from_slice(bytes) {
            Ok(Returned::Net(answer)) => match *answer {
                Answer::Denied(denied) => Err(ClientError::Denied(denied.why)),
                answer => Ok(answer),
            },
            Ok(Returned::Refused { message }) => Err(ClientError::Denied(message)),
            Err(_) => Err(ClientError::Malformed),
        }
    }
}
