//! Connections whose process was killed while this one might use them.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use slipstack_channel::LeftBehind;
use slipstack_channel::control::{LeftFile, Refusal, Reply, Request, read_bytes};

use super::{Client, FirstPeer, State};
use crate::error::Error;

impl Client {
    pub(super) fn ask_for_left(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        unread: u32,
        is_question: bool,
    ) -> LeftBehind {
        // An instance ends the connections of a program together with it.
        if self.has_instances() {
            return LeftBehind::Nothing;
        }
        let request = Request::TakeLeft {
            local,
            remote,
            unread,
            is_question,
        };
        match self.ask_keeper(&mut self.state().lock(), &request) {
            Ok((Reply::Done, files)) => left_of(files),
            Err(Error::Refused {
                refusal: Refusal::Busy,
                ..
            }) => LeftBehind::NotYet,
            Ok(_) | Err(_) => LeftBehind::Nothing,
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
        None => LeftBehind::Nothing,
    }
}
