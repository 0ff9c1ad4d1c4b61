//! The smallest web server: one page for every request, for measurements of connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slipstack_service::{ConnectionId, Context, Service, Via};

use crate::http::request::{self, HEAD_MAX, Method, Parsed};
use crate::proxy::Figures;

const KEEP_ALIVE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 22\r\n\
    Connection: keep-alive\r\n\r\n<p>hello from here</p>";
const CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 22\r\n\
    Connection: close\r\n\r\n<p>hello from here</p>";

/// Options of the demo server.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    pub listen: Vec<SocketAddr>,
    pub backlog: u32,
    pub idle: Duration,
    /// Answer several requests on a connection.
    pub keeps_alive: bool,
    pub figures: Arc<Figures>,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Demo {
    options: DemoOptions,
}

impl Demo {
    pub fn new(options: DemoOptions) -> Demo {
        Demo { options }
    }
}

impl Service for Demo {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        for addr in &self.options.listen {
            if cx.listen(*addr, self.options.backlog).is_err() {
                cx.end();
            }
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<()> {
        cx.set_timer(id, self.options.idle);
        Some(())
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        loop {
            let bytes = cx.received(id).contiguous(HEAD_MAX + 1);
            if bytes.is_empty() {
                return cx.set_timer(id, self.options.idle);
            }
            let (request, len) = match request::parse(&bytes) {
                Ok(Parsed::Request(request, _)) if matches!(request.method, Method::Other(_)) => {
                    return cx.reset(id);
                }
                Ok(Parsed::Request(request, len)) => (request, len),
                Ok(Parsed::Partial) => return,
                Err(_) => return cx.reset(id),
            };
            let keeps_alive = self.options.keeps_alive && request.keeps_alive;
            let answer = if keeps_alive { KEEP_ALIVE } else { CLOSE };
            if cx.write_all(id, &[std::io::IoSlice::new(answer)]).is_err() {
                return;
            }
            Figures::add(&self.options.figures.requests);
            if !keeps_alive {
                let all = cx.received(id).len();
                cx.consume(id, all);
                return cx.close(id);
            }
            cx.consume(id, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_as_long_as_its_head_says() {
        for answer in [KEEP_ALIVE, CLOSE] {
            let text = String::from_utf8_lossy(answer);
            let (head, page) = text.split_once("\r\n\r\n").unwrap();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            assert_eq!(length.unwrap().parse(), Ok(page.len()));
        }
    }
}
