//! A client of a control socket.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};

use crate::message::{Answer, Call, Envelope, Query, Returned};

/// Longest message.
const MESSAGE_MAX: usize = 256 * 1024;
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why a call has no answer.
#[derive(Debug)]
pub enum ClientError {
    Io(io::Error),
    /// Not an answer of this protocol.
    Malformed,
    /// The keeper says no, with a sentence.
    Denied(String),
    /// The keeper has gone.
    Closed,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Io(error) => write!(f, "the keeper cannot be asked: {error}"),
            ClientError::Malformed => f.write_str(
                "the keeper gave an answer that does not fit; use one version of slipstack",
            ),
            ClientError::Denied(why) => f.write_str(why),
            ClientError::Closed => f.write_str("the keeper has gone"),
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
    /// Nobody listens there, or lets nobody in.
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
        send(&self.socket, &message, SendFlags::NOSIGNAL)?;
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(ANSWER_MAX))?;
        self.receive()
    }

    /// Waits for the next change, after [`Query::Watch`].
    ///
    /// # Errors
    /// The keeper has gone.
    pub fn next(&self) -> Result<Answer, ClientError> {
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, None)?;
        self.receive()
    }

    fn receive(&self) -> Result<Answer, ClientError> {
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); MESSAGE_MAX];
        let ((bytes, _), _) = recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if bytes.is_empty() {
            return Err(ClientError::Closed);
        }
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
