//! One client's requests, each forwarded over a backend's connection.

use std::net::IpAddr;
use std::time::Duration;

use slipstack_service::ConnectionId;

use super::backends::Tried;
use super::body::{End, Moved, move_body, move_run};
use super::framing::{self, Ending, Parsed, Request, Response, Sender};
use super::server::{Cx, Figures, Proxy, Side};
use super::stream::Stream;
use crate::http::request::{HEAD_MAX, Skip};
use crate::http::status::Status;
use crate::tls::Transport;

/// Time for which a client may go on sending after its last answer.
const DRAIN: Duration = Duration::from_secs(2);
/// Time for which a backend's connection waits for another request.
const IDLE: Duration = Duration::from_secs(30);
const BAD_GATEWAY: &str = "502 Bad Gateway";
const LATE: &str = "504 Gateway Timeout";

/// State of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// A request is to come.
    #[default]
    Head,
    /// A backend is being reached.
    Reaching,
    /// A backend works.
    Asking,
    /// The last answer is sent, and FIN; further data is dropped.
    Draining,
}

/// State of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Head,
    Body(Skip),
    /// Body that ends with the backend's connection.
    UntilEnd,
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) transport: Transport,
    sender: Sender,
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
    pub(super) fn new(peer: Option<IpAddr>, transport: Transport) -> Client {
        Client {
            sender: Sender {
                ip: peer,
                is_secure: !matches!(transport, Transport::Plain),
            },
            transport,
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
                    client.transport.discard(cx, id);
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
        let bytes = client.transport.lend(cx, id, HEAD_MAX + 1);
        let parsed = match bytes.is_empty() {
            true => Ok(Parsed::Partial),
            false => framing::request(&bytes, client.sender),
        };
        if let Ok(Parsed::Head(_, len)) = &parsed {
            client.transport.consume(cx, id, *len);
        }
        client.transport.take_back(bytes);
        let request = match parsed {
            Ok(Parsed::Head(request, _)) => request,
            Ok(Parsed::Partial) => {
                if client.transport.has_ended(cx, id) {
                    client.transport.discard(cx, id);
                    client.transport.close(cx, id);
                }
                return false;
            }
            Err(status) => {
                self.end_with(cx, id, client, status.line());
                return true;
            }
        };
        Figures::add(&self.options.figures.requests);
        client.body = Skip::new(request.body);
        client.keeps_alive = request.keeps_alive;
        client.request = Some(request);
        cx.set_timer(id, self.options.answer);
        self.find_backend(cx, id, client);
        true
    }

    /// Gives the request to a backend that is next: over a kept connection, or a new one.
    fn find_backend(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
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
        }
        self.reach_by_new(cx, id, client, chosen);
    }

    /// Opens a connection to the chosen backend for the request; none gives 502.
    fn reach_by_new(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        client: &mut Client,
        chosen: Option<usize>,
    ) {
        client.step = Step::Reaching;
        if !chosen.is_some_and(|backend| self.reach_backend(cx, id, backend)) {
            Figures::add(&self.options.figures.failures);
            self.give_up(cx, id, client);
        }
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
        let moved = {
            let transport = &mut client.transport;
            let (mut from, mut plain) = (End { id, transport }, Transport::Plain);
            let mut to = End {
                id: backend,
                transport: &mut plain,
            };
            move_body(cx, &mut from, &mut to, &mut client.body)
        };
        match moved {
            // The backend's time runs from the last byte of the request on.
            Moved::All if !was_asked => cx.set_timer(id, self.options.answer),
            Moved::All => {}
            Moved::Starved if client.transport.has_ended(cx, id) => {
                // Half a request, and no more to come.
                self.drop_backend(cx, client);
                client.transport.discard(cx, id);
                client.transport.close(cx, id);
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

    /// Forwards received bytes of the answer.
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
            let (transport, mut plain) = (&mut client.transport, Transport::Plain);
            let mut to = End { id, transport };
            let mut from = End {
                id: backend,
                transport: &mut plain,
            };
            match &mut client.answer {
                Answer::Head => {
                    if !self.answer_head(cx, id, client, backend) {
                        return;
                    }
                }
                Answer::Body(rest) => match move_body(cx, &mut from, &mut to, rest) {
                    Moved::All => return self.end_exchange(cx, id, client),
                    Moved::Starved if cx.has_ended(backend) => return cx.reset(id),
                    Moved::Part | Moved::Starved => return cx.set_timer(id, self.options.idle),
                    Moved::Broken => return cx.reset(id),
                },
                Answer::UntilEnd => {
                    move_run(cx, &mut from, &mut to, u64::MAX);
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
        if !client.transport.write_whole(cx, id, &[head]) {
            cx.await_room(id);
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
        let transport = std::mem::take(&mut client.transport);
        self.put_side(id, Side::Stream(Stream::with(backend, transport)));
        self.put_side(backend, Side::Stream(Stream::with(id, Transport::Plain)));
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
            // The connection ended while the request was under way (RFC 9112 9.3.1). Other kept
            // connections may be about to end too, and the request is sent once more at most: over
            // a new one.
            let chosen = self.backends.pick(Tried::default(), cx.now_ns());
            return self.reach_by_new(cx, id, client, chosen);
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
            Step::Head => client.transport.close(cx, id),
            Step::Draining => cx.close(id),
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
        let has_ended = client.transport.has_ended(cx, id);
        if client.body != Skip::Nothing || !client.keeps_alive || has_ended {
            return self.end_with(cx, id, client, line);
        }
        let is_head_method = client.request.as_ref().is_some_and(|it| it.is_head_method);
        let page = page(line, "keep-alive", is_head_method);
        client
            .transport
            .write(cx, id, &[std::io::IoSlice::new(&page)]);
        client.request = None;
        client.step = Step::Head;
        cx.set_timer(id, self.options.idle);
        self.advance(cx, id, client);
    }

    /// Answers with a status of our own and ends the connection.
    pub(super) fn end_with(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        client: &mut Client,
        line: &str,
    ) {
        let page = page(line, "close", false);
        client
            .transport
            .write(cx, id, &[std::io::IoSlice::new(&page)]);
        self.drain(cx, id, client);
    }

    fn drain(&mut self, cx: &Cx<'_>, id: ConnectionId, client: &mut Client) {
        client.step = Step::Draining;
        client.request = None;
        client.transport.shutdown(cx, id);
        cx.set_timer(id, DRAIN);
        client.transport.discard(cx, id);
        if cx.has_ended(id) {
            cx.close(id);
        }
    }
}

fn page(line: &str, connection: &str, is_to_head: bool) -> Vec<u8> {
    let body = format!("{line}\n");
    let page = format!(
        "HTTP/1.1 {line}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: {connection}\r\n\r\n{}",
        body.len(),
        if is_to_head { "" } else { &body }
    );
    page.into_bytes()
}

/// Ends a response's head with the fields of the client's connection.
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
