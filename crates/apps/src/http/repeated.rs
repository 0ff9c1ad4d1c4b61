//! Requests that a connection repeats byte for byte, answered without parsing them again.

use std::io::IoSlice;
use std::sync::Arc;

use slipstack_service::ConnectionId;

use super::exchange::{Exchange, KEEP_ALIVE};
use super::files::Found;
use super::request::{Body, Method, Request};
use super::server::{Cx, Http, OK};

impl Http {
    /// Answers a head that the connection has sent before as it was answered then. Returns its
    /// length; `None` if it is another one, or there is no room.
    #[inline]
    pub(super) fn repeat(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        bytes: &[u8],
    ) -> Option<usize> {
        let now_ns = cx.now_ns();
        self.date(now_ns);
        let memo = self.memos.find(state.seen, bytes, now_ns)?;
        let len = memo.request_len();
        let date = self.date.1.as_bytes();
        let (head, body) = (&memo.head[..], &memo.content.bytes[..]);
        let pieces = [OK.as_bytes(), date, head, KEEP_ALIVE.as_bytes(), body].map(IoSlice::new);
        if !state.transport.write_whole(cx, id, &pieces) {
            return None;
        }
        state.transport.consume(cx, id, len);
        state.is_timed = false;
        state.keeps_alive = true;
        self.finish(cx, id, state);
        Some(len)
    }

    /// Remembers the answer to a request that may come again.
    pub(super) fn note_repeated(
        &mut self,
        state: &mut Exchange,
        request: &[u8],
        (found, head): (&Found, &Arc<[u8]>),
        until_ns: u64,
    ) {
        if let Found::Whole(content) = found {
            let answer = (content, head);
            self.memos.note(&mut state.seen, request, answer, until_ns);
        }
    }

    /// Returns whether a request's answer depends only on its head and the file, and is not logged.
    pub(super) fn is_repeatable(&self, request: &Request<'_>) -> bool {
        self.options.log.is_none()
            && request.method == Method::Get
            && request.keeps_alive
            && request.body == Body::None
            && request.fields.are_unconditional()
    }
}
