//! The service: from a request in the ring to its response.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use slipstack_service::{Busy, Closed, ConnectionId, Context, Service, Via};

use super::cache::{Cache, Lookup};
use super::exchange::{CLOSE, Done, Exchange, Out, Progress, Source, Step};
use super::files::{self, Found, Root};
use super::listing;
use super::log::{self, Log};
use super::memo::Memos;
use super::request::{self, Body, HEAD_MAX, Method, Parsed, Request, Skip};
use super::response::{self, SERVER, select};
use super::status::Status;
use crate::tls::{Keys, Transport};

/// Longest body of a request, which is thrown away.
const BODY_MAX: u64 = 1 << 20;
/// Time for which a peer may go on sending after the last response.
const DRAIN: Duration = Duration::from_secs(2);
/// Bytes processed at once when a body is skipped.
const SKIP_AT_ONCE: usize = 64 * 1024;
pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nServer: slipstack\r\nDate: ";

/// Options of the web server.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    pub listen: Vec<SocketAddr>,
    pub backlog: u32,
    pub root: Arc<Root>,
    /// Bytes that each engine's cache may hold.
    pub cache: usize,
    /// Longest idle time of a connection between requests, or without taking sent data.
    pub idle: Duration,
    /// Time that a head may take from its first byte to its last.
    pub head: Duration,
    /// Connections of one address on each engine.
    pub per_address: Option<usize>,
    pub log: Option<Log>,
    /// For TLS.
    pub keys: Option<Arc<Keys>>,
}

/// See the [module documentation](self).
pub struct Http {
    pub(super) options: HttpOptions,
    cache: Cache,
    pub(super) memos: Memos,
    by_address: HashMap<IpAddr, usize>,
    /// The date as it is sent, and the second of the monotonic clock that it was made in.
    pub(super) date: (u64, String),
}

pub(super) type Cx<'a> = Context<'a, Done>;

impl Http {
    pub fn new(options: HttpOptions) -> Http {
        debug_assert!(OK.contains(SERVER));
        Http {
            cache: Cache::new(options.cache),
            options,
            memos: Memos::new(),
            by_address: HashMap::new(),
            date: (u64::MAX, String::new()),
        }
    }

    pub(super) fn date(&mut self, now_ns: u64) -> &str {
        let second = now_ns / 250_000_000;
        if self.date.0 != second {
            self.date = (second, httpdate::fmt_http_date(SystemTime::now()));
            debug_assert_eq!(self.date.1.len(), response::DATE_LEN);
        }
        &self.date.1
    }

    /// Answers as many requests as have come.
    pub(super) fn advance(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        while state.step == Step::Head && cx.is_open(id) {
            if state.skip != Skip::Nothing && !self.pass_over_body(cx, id, state) {
                return;
            }
            let bytes = state.transport.lend(cx, id, HEAD_MAX + 1);
            if bytes.is_empty() {
                state.transport.take_back(bytes);
                return self.close_ended(cx, id, state);
            }
            if let Some(len) = self.repeat(cx, id, state, &bytes) {
                let is_last = len == bytes.len() && matches!(state.transport, Transport::Plain);
                state.transport.take_back(bytes);
                if is_last {
                    return;
                }
                continue;
            }
            let parsed = request::parse(&bytes);
            let stays = match &parsed {
                Ok(Parsed::Request(request, len)) => {
                    state.is_timed = false;
                    self.answer(cx, id, state, request, &bytes[..*len]);
                    Some(())
                }
                Ok(Parsed::Partial) => {
                    self.await_head(cx, id, state, bytes.len());
                    None
                }
                Err(status) => {
                    self.refuse(cx, id, state, *status);
                    None
                }
            };
            state.transport.take_back(bytes);
            if stays.is_none() {
                return self.close_ended(cx, id, state);
            }
        }
    }

    fn await_head(&self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange, len: usize) {
        if state.transport.has_ended(cx, id) {
            // Half a request, and no more to come.
            state.transport.consume(cx, id, len);
            return state.transport.close(cx, id);
        }
        if !state.is_timed {
            state.is_timed = true;
            cx.set_timer(id, self.options.head);
        }
    }

    /// Returns whether the body has ended.
    fn pass_over_body(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) -> bool {
        while state.skip != Skip::Nothing {
            let bytes = state.transport.lend(cx, id, SKIP_AT_ONCE);
            let passed = state.skip.pass(&bytes);
            if let Ok(len) = passed {
                state.transport.consume(cx, id, len);
                state.skipped += len as u64;
            }
            state.transport.take_back(bytes);
            match passed {
                Ok(0) if state.skip != Skip::Nothing => return false,
                Ok(_) => {}
                Err(status) => {
                    self.refuse(cx, id, state, status);
                    return false;
                }
            }
            if state.skipped > BODY_MAX {
                self.refuse(cx, id, state, Status::ContentTooLarge);
                return false;
            }
        }
        state.skipped = 0;
        true
    }

    /// Answers a request, or has a worker look first.
    fn answer(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        request: &Request<'_>,
        bytes: &[u8],
    ) {
        let len = bytes.len();
        if matches!(request.body, Body::Length(length) if length > BODY_MAX) {
            return self.refuse(cx, id, state, Status::ContentTooLarge);
        }
        if let Method::Other(status) = request.method {
            self.begin_response(cx, id, state, request, len);
            return self.send_page_with(cx, id, state, request, (status, allow(status)));
        }
        let decoded = request::path_of(request.target).and_then(files::decode);
        let path = match decoded {
            Ok(path) => path,
            Err(status) => {
                self.begin_response(cx, id, state, request, len);
                return self.send_page(cx, id, state, request, status);
            }
        };
        if let Some(found) = state.found.take_if(|it| it.0 == *path) {
            let (_, found) = *found;
            let head = head_of(&found);
            return self.respond(cx, id, state, (request, len), (found, head));
        }
        state.found = None;
        match self.cache.find(&path, cx.now_ns()) {
            Lookup::Fresh(found, head, until) => {
                if self.is_repeatable(request) {
                    self.note_repeated(state, bytes, (&found, &head), until);
                }
                self.respond(cx, id, state, (request, len), (found, head));
            }
            Lookup::Stale(about) => {
                let (root, path) = (Arc::clone(&self.options.root), path.into_owned());
                let job = move || match root.is_current(&path, &about) {
                    true => Done::Same(path),
                    false => {
                        let found = root.find(&path);
                        Done::Found(path, found)
                    }
                };
                submit(cx, id, state, job);
            }
            Lookup::Absent => {
                let (root, path) = (Arc::clone(&self.options.root), path.into_owned());
                let job = move || {
                    let found = root.find(&path);
                    Done::Found(path, found)
                };
                submit(cx, id, state, job);
            }
        }
    }

    /// Begins the response after the head: its body follows, then the next head.
    fn begin_response(
        &self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        request: &Request<'_>,
        len: usize,
    ) {
        state.transport.consume(cx, id, len);
        state.skip = Skip::new(request.body);
        // A client that sent `Expect` may or may not send its body without the interim response.
        state.keeps_alive = request.keeps_alive && !(request.expects && request.body != Body::None);
    }

    fn respond(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        (request, len): (&Request<'_>, usize),
        (found, head): (Found, Arc<[u8]>),
    ) {
        self.begin_response(cx, id, state, request, len);
        let source = match found {
            Found::Whole(content) => Source::Content(content),
            Found::Long(file) => Source::File(file),
            Found::Redirect => return self.redirect(cx, id, state, request),
            Found::Refused(status) => return self.send_page(cx, id, state, request, status),
        };
        let Some(about) = source.about() else { return };
        let selected = select(&request.fields, about);
        let connection = state.connection();
        let is_get = request.method == Method::Get;
        let sent = if is_get { selected.range.clone() } else { 0..0 };
        self.log(
            state,
            request.target,
            Some(request),
            (selected.status, sent.end - sent.start),
        );
        if selected.status == Status::Ok {
            let date = self.date(cx.now_ns()).as_bytes();
            let body = match &source {
                Source::Content(content) if is_get => &content.bytes[..],
                _ => &[],
            };
            let pieces = [OK.as_bytes(), date, &head[..], connection.as_bytes(), body];
            let is_whole = !matches!(source, Source::File(_)) || !is_get;
            let io = pieces.map(IoSlice::new);
            if is_whole && state.transport.write_whole(cx, id, &io) {
                return self.finish(cx, id, state);
            }
            let head = pieces[..4].concat();
            return self.send(cx, id, state, Out::new(head, source, sent));
        }
        let mut head = response::partial_head(&selected, about, self.date(cx.now_ns()));
        head.push_str(connection);
        let source = match is_get {
            true => source,
            false => Source::None,
        };
        self.send(cx, id, state, Out::new(head.into_bytes(), source, sent));
    }

    fn send(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange, mut out: Out) {
        match out.write(cx, id, &mut state.transport) {
            Progress::Done => self.finish(cx, id, state),
            _ => {
                state.step = Step::Sending;
                state.out = Some(Box::new(out));
                cx.set_timer(id, self.options.idle);
            }
        }
    }

    /// Goes on with a response that did not fit.
    fn send_on(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        let Some(out) = &mut state.out else { return };
        cx.set_timer(id, self.options.idle);
        if out.write(cx, id, &mut state.transport) == Progress::Done {
            state.out = None;
            state.step = Step::Head;
            self.finish(cx, id, state);
            self.advance(cx, id, state);
        }
    }

    /// The response is in the send ring.
    pub(super) fn finish(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        if state.keeps_alive && !(state.has_ended && state.transport.is_drained()) {
            return cx.set_timer(id, self.options.idle);
        }
        self.end(cx, id, state);
    }

    /// Ends the connection such that the last response arrives: unread bytes would reset it.
    fn end(&self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        let is_empty = cx.received(id).is_empty();
        let has_ended = state.has_ended || cx.has_ended(id);
        if is_empty && (has_ended || state.skip == Skip::Nothing) {
            return state.transport.close(cx, id);
        }
        state.step = Step::Draining;
        state.transport.discard(cx, id);
        state.transport.shutdown(cx, id);
        cx.set_timer(id, DRAIN);
    }

    /// Answers an invalid request, and ends the connection.
    pub(super) fn refuse(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        status: Status,
    ) {
        state.keeps_alive = false;
        let head = self.page_head(cx, status, CLOSE, allow(status));
        let page = status.page();
        self.log(state, "", None, (status, page.len() as u64));
        // A response that does not fit a ring that was just empty is not worth waiting for.
        let pieces = [head.as_bytes(), page.as_bytes()].map(IoSlice::new);
        let _ = state.transport.write_whole(cx, id, &pieces);
        self.end(cx, id, state);
    }

    fn page_head(&mut self, cx: &Cx<'_>, status: Status, connection: &str, more: &str) -> String {
        let mut head = response::begin(status, self.date(cx.now_ns()));
        head.push_str(&format!(
            "Content-Type: text/html\r\nContent-Length: {}\r\n{more}{connection}",
            status.page().len()
        ));
        head
    }

    /// Answers a request with a page that shows the status.
    fn send_page(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        request: &Request<'_>,
        status: Status,
    ) {
        self.send_page_with(cx, id, state, request, (status, ""));
    }

    fn send_page_with(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        request: &Request<'_>,
        (status, more): (Status, &str),
    ) {
        let mut head = self.page_head(cx, status, state.connection(), more);
        let len = match request.method {
            Method::Get | Method::Other(_) => {
                head.push_str(&status.page());
                status.page().len() as u64
            }
            Method::Head => 0,
        };
        self.log(state, request.target, Some(request), (status, len));
        self.send(
            cx,
            id,
            state,
            Out::new(head.into_bytes(), Source::None, 0..0),
        );
    }

    /// Redirects a request for a directory without the slash that its links need.
    fn redirect(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        request: &Request<'_>,
    ) {
        let path = request::path_of(request.target).and_then(files::decode);
        let parts = path.unwrap_or_default();
        let parts: Vec<String> = parts.split('/').map(listing::link).collect();
        let location = format!("Location: /{}/\r\n", parts.join("/"));
        let page = (Status::MovedPermanently, location.as_str());
        self.send_page_with(cx, id, state, request, page);
    }

    fn log(
        &self,
        state: &Exchange,
        target: &str,
        request: Option<&Request<'_>>,
        (status, len): (Status, u64),
    ) {
        let Some(log) = &self.options.log else { return };
        let peer = state.peer.map_or("-".to_owned(), |ip| ip.to_string());
        let time = log::time(SystemTime::now());
        let line = request.map_or(String::new(), |request| {
            let method = request.method_name;
            let version = u8::from(request.is_v11);
            let target = log::quoted(Some(target.as_bytes()));
            format!("{method} {target} HTTP/1.{version}")
        });
        let field = |value: Option<&[u8]>| log::quoted(value);
        let referer = field(request.and_then(|request| request.fields.referer));
        let agent = field(request.and_then(|request| request.fields.user_agent));
        let code = status.code();
        log.put(format!(
            "{peer} - - [{time}] \"{line}\" {code} {len} \"{referer}\" \"{agent}\"\n"
        ));
    }
}

/// The field that belongs to 405 (RFC 9110 15.5.6).
fn allow(status: Status) -> &'static str {
    match status {
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        _ => "",
    }
}

fn head_of(found: &Found) -> Arc<[u8]> {
    match found {
        Found::Whole(content) => response::content_head(&content.about).into(),
        Found::Long(file) => response::content_head(&file.about).into(),
        Found::Redirect | Found::Refused(_) => Arc::new([]),
    }
}

/// Hands the lookup to a worker. If none is free the request is processed again in a moment.
fn submit(
    cx: &Cx<'_>,
    id: ConnectionId,
    state: &mut Exchange,
    job: impl FnOnce() -> Done + Send + 'static,
) {
    state.step = Step::Waiting;
    if let Err(Busy) = cx.submit(id, job) {
        cx.retry(id);
    }
}

impl Service for Http {
    type Connection = Exchange;
    type Result = Done;

    fn on_start(&mut self, cx: &Cx<'_>) {
        for addr in &self.options.listen {
            if cx.listen(*addr, self.options.backlog).is_err() {
                cx.end();
            }
        }
    }

    fn on_open(&mut self, cx: &Cx<'_>, id: ConnectionId, _: Via) -> Option<Exchange> {
        let mut peer = None;
        if self.options.per_address.is_some() || self.options.log.is_some() {
            peer = cx.remote(id).map(|remote| remote.ip());
        }
        if let (Some(max), Some(ip)) = (self.options.per_address, peer) {
            let count = self.by_address.entry(ip).or_default();
            if *count >= max {
                return None;
            }
            *count += 1;
        }
        let transport = Transport::new(self.options.keys.as_deref())?;
        let mut state = Exchange::new(peer, transport);
        state.is_timed = !state.transport.is_ready();
        cx.set_timer(
            id,
            match state.is_timed {
                true => self.options.head,
                false => self.options.idle,
            },
        );
        Some(state)
    }

    fn on_data(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        if !state.transport.is_ready() {
            return self.advance_handshake(cx, id, state);
        }
        match state.step {
            Step::Head => self.advance(cx, id, state),
            // No worker is processing it, because none was free.
            Step::Waiting if !cx.is_at_work(id) => {
                state.step = Step::Head;
                self.advance(cx, id, state);
            }
            Step::Waiting => {}
            Step::Sending => self.send_on(cx, id, state),
            Step::Draining => state.transport.discard(cx, id),
        }
    }

    fn on_room(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        match state.step {
            Step::Sending => self.send_on(cx, id, state),
            _ => self.on_data(cx, id, state),
        }
    }

    fn on_result(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange, result: Done) {
        match result {
            Done::HandshakeResult(result) => {
                return match result {
                    Some(result) => self.on_handshake_result(cx, id, state, result),
                    None => cx.reset(id),
                };
            }
            Done::Piece(read) => {
                let out = state.out.as_mut();
                if out.and_then(|out| out.on_piece(read)).is_some() {
                    return cx.reset(id);
                }
                return self.send_on(cx, id, state);
            }
            Done::Same(path) => {
                self.cache.refresh(&path, cx.now_ns());
            }
            Done::Found(path, found) => {
                let head = head_of(&found);
                self.cache.put(&path, found.clone(), head, cx.now_ns());
                state.found = Some(Box::new((path, found)));
            }
        }
        if state.step == Step::Waiting {
            state.step = Step::Head;
            self.advance(cx, id, state);
        }
    }

    fn on_end(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        state.has_ended = true;
        let is_at_work = matches!(state.step, Step::Sending | Step::Waiting);
        if !is_at_work && !matches!(state.transport, Transport::Away) {
            state.transport.close(cx, id);
        }
    }

    fn on_timer(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        match state.step {
            _ if !state.transport.is_ready() => cx.close(id),
            Step::Head if state.is_timed => self.refuse(cx, id, state, Status::RequestTimeout),
            Step::Head => state.transport.close(cx, id),
            Step::Waiting => cx.set_timer(id, self.options.idle),
            Step::Sending | Step::Draining => cx.reset(id),
        }
    }

    fn on_stop(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        state.transport.close(cx, id);
    }

    fn on_closed(&mut self, _: &Cx<'_>, _: ConnectionId, state: Exchange, _: Closed) {
        if let (Some(_), Some(ip)) = (self.options.per_address, state.peer)
            && let Some(count) = self.by_address.get_mut(&ip)
        {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&ip);
            }
        }
    }
}
