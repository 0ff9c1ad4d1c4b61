//! One client's requests, each at a backend's connection.

use std::net::IpAddr;
use std::time::Duration;

use slipstack_service::ConnectionId;

use super::backends::Tried;
use super::framing::{self, Ending, Parsed, Request, Response};
use super::server::{Cx, Figures, Proxy, Side};
use super::stream::Stream;
use crate::http::request::{HEAD_MAX, Skip};
use crate::http::status::Status;

/// Bytes of a chunked body in which a line is looked for.
const LINES: usize = 1024;
/// How long a client may go on sending after its last answer.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a backend's connection waits for another request.
const IDLE: Duration = Duration::from_secs(30);
const BAD_GATEWAY: &str = "502 Bad Gateway";
const LATE: &str = "504 Gateway Timeout";

/// Where a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// A request is to come.
    #[default]
    Head,
    /// A backend is being reached.
    Reaching,
    /// A backend works.
    Asking,
    /// The last answer is sent, and FIN; what still comes is thrown away.
    Draining,
}

/// Where the answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Head,
    Body(Skip),
    /// It ends with the backend's connection.
    UntilEnd,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    peer: Option<IpAddr>,
    step: Step,
    backend: Option<ConnectionId>,
    /// The backend has answered another request before.
    is_reused: bool,
    request: Option<Request>,
    is_head_sent: bool,
    /// The rest of the request's body.
    body: Skip,
    answer: Answer,
    keeps_alive: bool,
    backend_keeps_alive: bool,
}

impl Client {
    pub(super) fn new(peer: Option<IpAddr>) -> Client {
        Client {
            peer,
            step: Step::Head,
            backend: None,
            is_reused: false,
            request: None,
            is_head_sent: false,
            body: Skip::Nothing,
            answer: Answer::Head,
            keeps_alive: true,
            backend_keeps_alive: false,
        }
    }

    pub(super) fn backend(&self) -> Option<ConnectionId> {
        self.backend
    }

    pub(super) fn use_backend(&mut self, id: ConnectionId, is_reused: bool) {
        (self.backend, self.is_reused) = (Some(id), is_reused);
        (self.step, self.is_head_sent, self.answer) = (Step::Asking, false, Answer::Head);
    }

    fn may_repeat(&self) -> bool {
        let is_repeatable = self.request.as_ref().is_some_and(|it| it.is_repeatable);
        self.is_reused && self.answer == Answer::Head && is_repeatable
    }
}

/// How far a body has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    All,
    /// More room is to come.
    Part,
    /// More bytes are to come.
    Starved,
    Broken,
}

/// Moves what there is of a body: bytes from ring to ring, copied once, and the lines of chunks.
fn move_body(cx: &Cx<'_>, from: ConnectionId, to: ConnectionId, rest: &mut Skip) -> Moved {
    while *rest != Skip::Nothing {
        if let Some(left) = rest.run() {
            let moved = move_run(cx, from, to, left);
            rest.take(moved);
            if moved < left {
                return match cx.received(from).is_empty() {
                    true => Moved::Starved,
                    false => Moved::Part,
                };
            }
            continue;
        }
        let bytes = cx.received(from).contiguous(LINES);
        if bytes.is_empty() {
            return Moved::Starved;
        }
        let part = &bytes[..bytes.len().min(cx.room(to))];
        let mut after = *rest;
        let Ok(len) = after.pass(part) else {
            return Moved::Broken;
        };
        if len == 0 && part.len() < bytes.len() {
            cx.await_room(to);
            return Moved::Part;
        }
        if len == 0 {
            return Moved::Starved;
        }
        if cx.write(to, &part[..len]) < len {
            return Moved::Broken;
        }
        cx.consume(from, len);
        *rest = after;
    }
    Moved::All
}

/// Moves up to `left` bytes from where they lie; returns how many there were, and room for.
fn move_run(cx: &Cx<'_>, from: ConnectionId, to: ConnectionId, left: u64) -> u64 {
    let most = usize::try_from(left).unwrap_or(usize::MAX);
    let [first, second] = cx.received(from).pieces();
    let first = &first[..first.len().min(most)];
    let second = &second[..second.len().min(most - first.len())];
    if first.is_empty() {
        return 0;
    }
    let written = cx.write_vectored(to, &[first, second].map(std::io::IoSlice::new));
    cx.consume(from, written);
    written as u64
}

impl Proxy {
    /// Goes on with a client's request as far as there are bytes and room.
    pub(super) fn advance(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        while cx.is_open(id) {
            match client.step {
                Step::Head => {
                    if !self.take_request(cx, id, client) {
                        return;
                    }
                }
                Step::Reaching => return,
                Step::Asking => return self.ask(cx, id, client),
                Step::Draining => {
                    let len = cx.received(id).len();
                    cx.consume(id, len);
                    if cx.has_ended(id) {
                        cx.close(id);
                    }
                    return;
                }
            }
        }
    }

    /// Takes the next request; `false`: it has not come.
    fn take_request(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) -> bool {
        let bytes = cx.received(id).contiguous(HEAD_MAX + 1);
        if bytes.is_empty() {
            if cx.has_ended(id) {
                cx.close(id);
            }
            return false;
        }
        let (request, len) = match framing::request(&bytes, client.peer) {
            Ok(Parsed::Head(request, len)) => (request, len),
            Ok(Parsed::Partial) => {
                if cx.has_ended(id) {
                    cx.consume(id, bytes.len());
                    cx.close(id);
                }
                return false;
            }
            Err(status) => {
                self.end_with(cx, id, client, status.line());
                return true;
            }
        };
        cx.consume(id, len);
        Figures::add(&self.options.figures.requests);
        client.body = Skip::new(request.body);
        client.keeps_alive = request.keeps_alive;
        client.request = Some(request);
        cx.set_timer(id, self.options.answer);
        self.find_backend(cx, id, client);
        true
    }

    fn find_backend(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        client.step = Step::Reaching;
        let chosen = self.backends.pick(Tried::default(), cx.now_ns());
        if let Some(backend) = chosen {
            while let Some(idle) = self.backends.take_idle(backend) {
                self.put_side(idle, Side::None);
                if !cx.is_open(idle) || cx.has_ended(idle) {
                    cx.close(idle);
                    continue;
                }
                cx.clear_timer(idle);
                self.backends.begin(backend);
                self.put_side(idle, Side::Server(id));
                return client.use_backend(idle, true);
            }
            if self.reach_backend(cx, id, backend) {
                return;
            }
        }
        Figures::add(&self.options.figures.failures);
        self.give_up(cx, id, client);
    }

    /// Sends the request's head and body.
    fn ask(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        let (Some(backend), Some(request)) = (client.backend, &client.request) else {
            return;
        };
        if !client.is_head_sent {
            let head = std::io::IoSlice::new(&request.head);
            if cx.write_all(backend, &[head]).is_err() {
                return;
            }
            client.is_head_sent = true;
        }
        let was_asked = client.body == Skip::Nothing;
        match move_body(cx, id, backend, &mut client.body) {
            // The backend's time runs from the last byte of the request on.
            Moved::All if !was_asked => cx.set_timer(id, self.options.answer),
            Moved::All => {}
            Moved::Starved if cx.has_ended(id) => {
                // Half a request, and no more to come.
                self.drop_backend(cx, client);
                let len = cx.received(id).len();
                cx.consume(id, len);
                cx.close(id);
            }
            Moved::Part | Moved::Starved => cx.set_timer(id, self.options.idle),
            Moved::Broken => {
                self.drop_backend(cx, client);
                match client.answer {
                    Answer::Head => self.end_with(cx, id, client, Status::BadRequest.line()),
                    _ => cx.reset(id),
                }
            }
        }
    }

    /// Passes on what has come of the answer.
    pub(super) fn answer(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        client: &mut Client,
        backend: ConnectionId,
    ) {
        loop {
            if client.backend != Some(backend) || !cx.is_open(id) || !cx.is_open(backend) {
                return;
            }
            match &mut client.answer {
                Answer::Head => {
                    if !self.answer_head(cx, id, client, backend) {
                        return;
                    }
                }
                Answer::Body(rest) => match move_body(cx, backend, id, rest) {
                    Moved::All => return self.end_exchange(cx, id, client),
                    Moved::Starved if cx.has_ended(backend) => return cx.reset(id),
                    Moved::Part | Moved::Starved => return cx.set_timer(id, self.options.idle),
                    Moved::Broken => return cx.reset(id),
                },
                Answer::UntilEnd => {
                    let pieces = cx.received(backend).pieces().map(std::io::IoSlice::new);
                    let written = cx.write_vectored(id, &pieces);
                    cx.consume(backend, written);
                    return cx.set_timer(id, self.options.idle);
                }
            }
        }
    }

    /// Passes on the answer's head; `false`: it has not come, or there is no room.
    fn answer_head(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        client: &mut Client,
        backend: ConnectionId,
    ) -> bool {
        let Some(request) = &client.request else {
            return false;
        };
        let bytes = cx.received(backend).contiguous(HEAD_MAX + 1);
        if bytes.is_empty() {
            return false;
        }
        let (mut response, len) = match framing::response(&bytes, request.is_head_method) {
            Ok(Parsed::Head(response, len)) => (response, len),
            Ok(Parsed::Partial) if !cx.has_ended(backend) => return false,
            Ok(Parsed::Partial) | Err(_) => {
                Figures::add(&self.options.figures.failures);
                self.drop_backend(cx, client);
                self.fail_with(cx, id, client, BAD_GATEWAY);
                return false;
            }
        };
        let is_interim = (100..200).contains(&response.code) && response.code != 101;
        if is_interim && !request.is_v11 {
            // RFC 9110 15.2: HTTP/1.0 knows no interim responses.
            cx.consume(backend, len);
            return true;
        }
        if !is_interim {
            client.keeps_alive &= response.ending != Ending::Close;
        }
        end_head(&mut response, client.keeps_alive, is_interim);
        let head = std::io::IoSlice::new(&response.head);
        if cx.write_all(id, &[head]).is_err() {
            return false;
        }
        cx.consume(backend, len);
        if is_interim {
            return true;
        }
        client.backend_keeps_alive = response.keeps_alive;
        match response.ending {
            Ending::Body(body) => client.answer = Answer::Body(Skip::new(body)),
            Ending::Close => client.answer = Answer::UntilEnd,
            Ending::Tunnel => {
                self.become_stream(cx, id, client, backend);
                return false;
            }
        }
        true
    }

    fn become_stream(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        client: &mut Client,
        backend: ConnectionId,
    ) {
        client.backend = None;
        self.put_side(id, Side::Stream(Stream::with(backend)));
        self.put_side(backend, Side::Stream(Stream::with(id)));
        self.pass_on(cx, id, backend);
        self.pass_on(cx, backend, id);
    }

    /// The answer is sent.
    fn end_exchange(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        let is_asked = client.body == Skip::Nothing;
        if let Some(backend) = client.backend.take() {
            let is_clean = cx.received(backend).is_empty() && !cx.has_ended(backend);
            let may_stay = is_asked && is_clean && client.backend_keeps_alive;
            self.let_go(cx, backend, may_stay);
        }
        client.request = None;
        if is_asked && client.keeps_alive {
            client.step = Step::Head;
            cx.set_timer(id, self.options.idle);
            return self.advance(cx, id, client);
        }
        self.drain(cx, id, client);
    }

    /// A backend's connection is done with: it is kept for another request, or closed.
    fn let_go(&mut self, cx: &Cx<'_>, id: ConnectionId, may_stay: bool) {
        let Some(backend) = self.place(id).backend else {
            return cx.reset(id);
        };
        self.backends.end(backend);
        let max = self.options.idle_backends;
        if may_stay && self.backends.keep_idle(backend, id, max) {
            self.put_side(id, Side::Idle);
            return cx.set_timer(id, IDLE);
        }
        self.put_side(id, Side::None);
        match may_stay {
            true => cx.close(id),
            false => cx.reset(id),
        }
    }

    /// Lets go of the backend in the middle of a request.
    pub(super) fn drop_backend(&mut self, cx: &Cx<'_>, client: &mut Client) {
        if let Some(backend) = client.backend.take() {
            self.let_go(cx, backend, false);
        }
    }

    /// The backend has closed its connection, or it has failed.
    pub(super) fn on_server_gone(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        client: &mut Client,
        has_failed: bool,
    ) {
        client.backend = None;
        if client.answer == Answer::UntilEnd && !has_failed {
            client.request = None;
            return self.drain(cx, id, client);
        }
        if client.answer != Answer::Head {
            Figures::add(&self.options.figures.failures);
            return cx.reset(id);
        }
        if client.may_repeat() {
            // It ended while the request was under way (RFC 9112 9.3.1).
            client.is_reused = false;
            return self.find_backend(cx, id, client);
        }
        Figures::add(&self.options.figures.failures);
        self.give_up(cx, id, client);
    }

    pub(super) fn give_up(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        self.fail_with(cx, id, client, BAD_GATEWAY);
    }

    /// A client's time is over.
    pub(super) fn on_late(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        match client.step {
            Step::Head | Step::Draining => cx.close(id),
            Step::Reaching | Step::Asking => {
                self.drop_backend(cx, client);
                match client.answer {
                    Answer::Head => self.fail_with(cx, id, client, LATE),
                    _ => cx.reset(id),
                }
            }
        }
    }

    /// Answers a request that no backend has answered. The connection stays if the request has
    /// come to its end.
    fn fail_with(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client, line: &str) {
        if client.body != Skip::Nothing || !client.keeps_alive || cx.has_ended(id) {
            return self.end_with(cx, id, client, line);
        }
        let is_head_method = client.request.as_ref().is_some_and(|it| it.is_head_method);
        write_page(cx, id, line, "keep-alive", is_head_method);
        client.request = None;
        client.step = Step::Head;
        cx.set_timer(id, self.options.idle);
        self.advance(cx, id, client);
    }

    /// Answers with a status of our own and ends the connection.
    fn end_with(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client, line: &str) {
        write_page(cx, id, line, "close", false);
        self.drain(cx, id, client);
    }

    fn drain(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        client.step = Step::Draining;
        client.request = None;
        cx.shutdown(id);
        cx.set_timer(id, DRAIN);
        let len = cx.received(id).len();
        cx.consume(id, len);
        if cx.has_ended(id) {
            cx.close(id);
        }
    }
}

fn write_page(cx: &Cx<'_>, id: ConnectionId, line: &str, connection: &str, is_to_head: bool) {
    let body = format!("{line}\n");
    let page = format!(
        "HTTP/1.1 {line}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: {connection}\r\n\r\n{}",
        body.len(),
        if is_to_head { "" } else { &body }
    );
    cx.write(id, page.as_bytes());
}

/// Ends a response's head with what holds for the client's connection.
fn end_head(response: &mut Response, keeps_alive: bool, is_interim: bool) {
    let connection: &[u8] = match (response.ending, keeps_alive) {
        _ if is_interim => b"",
        (Ending::Tunnel, _) => b"Connection: upgrade\r\n",
        (_, true) => b"Connection: keep-alive\r\n",
        (_, false) => b"Connection: close\r\n",
    };
    response.head.extend_from_slice(connection);
    response.head.extend_from_slice(b"\r\n");
}
