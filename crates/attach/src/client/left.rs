//! Connections whose process was killed while this one might use them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use slipstack_channel::control::{
    LeftFile, Refusal, Reply, Request, WantedLeft, read_bytes, text_file,
};
use slipstack_channel::{LeftBehind, PassedOn};

use super::{Client, FirstPeer, State};
use crate::door::ANSWER_MS;
use crate::error::Error;

impl Client {
    pub(super) fn ask_for_left(
        &self,
        ((local, remote), heirs): ((SocketAddr, SocketAddr), u64),
        has: PassedOn,
        unread: Option<&[u8]>,
    ) -> LeftBehind {
        let request = Request::TakeLeft(WantedLeft {
            local,
            remote,
            has,
            is_question: unread.is_none(),
            heirs,
        });
        // The answer comes with a file. If there were no room for it, the connection would be lost.
        if text_file(b"").is_err() {
            return LeftBehind::Unasked;
        }
        let state = &mut self.state().lock();
        let answer = match (self.has_instances(), unread.map(text_file)) {
            (false, _) => self.ask_keeper(state, &request),
            (true, None) => self.ask_instance(state, &request, None),
            (true, Some(Ok(file))) => self.ask_instance(state, &request, Some(file)),
            (true, Some(Err(_))) => return LeftBehind::Unasked,
        };
        match answer {
            Ok((Reply::Done, files)) => left_of(files),
            Err(Error::Refused {
                refusal: Refusal::Busy,
                ..
            }) => LeftBehind::NotYet,
            Ok(_) | Err(Error::Refused { .. }) => LeftBehind::Nothing,
            Err(_) => LeftBehind::Unasked,
        }
    }

    /// Asks the instance that this process uses first, which made the connection, as a rule.
    fn ask_instance(
        &self,
        state: &mut State,
        request: &Request,
        file: Option<OwnedFd>,
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        if state.instance.is_none() && !matches!(state.first_peer, Some(FirstPeer::Instance(_))) {
            state.welcome = None;
            self.welcome(state)?;
        }
        let socket = match (&state.first_peer, &state.instance) {
            (Some(FirstPeer::Instance(socket)), _) | (_, Some(socket)) => socket,
            _ => return Err(Error::Confused),
        };
        let fds: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        socket.send(request, &fds)?;
        drop(file);
        let (reply, files) = socket.receive::<Reply>(ANSWER_MS)?;
        match reply {
            Reply::Refused { refusal, message } => Err(Error::Refused { refusal, message }),
            reply => Ok((reply, files)),
        }
    }

    fn ask_keeper(
        &self,
        state: &mut State,
        request: &Request,
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        if let Some(link) = &state.link {
            return link.ask(request, &[]);
        }
        let link = match state.first_peer.take() {
            Some(FirstPeer::Keeper(link)) => link,
            _ => Box::new(self.open_link(state, &self.identity())?),
        };
        let answer = link.ask(request, &[]);
        state.first_peer = Some(FirstPeer::Keeper(link));
        answer
    }
}

/// The connection in the file beside an answer.
fn left_of(files: Vec<OwnedFd>) -> LeftBehind {
    let bytes = files
        .into_iter()
        .next()
        .and_then(|file| read_bytes(file).ok());
    match bytes.and_then(|bytes| LeftFile::from_bytes(&bytes)) {
        Some(left) => LeftBehind::Here(Box::new(left)),
        None => LeftBehind::Unasked,
    }
}
