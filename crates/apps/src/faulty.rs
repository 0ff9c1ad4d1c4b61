//! An echo server whose handlers and jobs panic on request, for tests of how an engine survives a
//! panic.

use std::net::SocketAddr;
use std::time::Duration;

use slipstack_service::{Closed, ConnectionId, Context, Service, Via};

/// Time for which a connection may be silent.
const IDLE: Duration = Duration::from_secs(300);

/// See the [module documentation](self). A message that begins with `data`, `job`, `end` or
/// `closed` has the handler of that name panic.
#[derive(Debug)]
pub struct Faulty {
    pub listen: Vec<SocketAddr>,
}

/// The fault requested of later handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    End,
    Closed,
}

impl Service for Faulty {
    type Connection = Fault;
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        for addr in &self.listen {
            if cx.listen(*addr, 64).is_err() {
                cx.end();
            }
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<Fault> {
        cx.set_timer(id, IDLE);
        Some(Fault::None)
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, fault: &mut Fault) {
        let bytes = cx.received(id).contiguous(usize::MAX).into_owned();
        assert!(!bytes.starts_with(b"data"), "asked to by the peer");
        if bytes.starts_with(b"job") && cx.submit(id, || panic!("asked to by the peer")).is_err() {
            cx.reset(id);
        }
        if bytes.starts_with(b"end") {
            *fault = Fault::End;
        } else if bytes.starts_with(b"closed") {
            *fault = Fault::Closed;
        }
        let written = cx.write(id, &bytes);
        cx.consume(id, written);
    }

    fn on_end(&mut self, cx: &Context<'_>, id: ConnectionId, fault: &mut Fault) {
        assert!(*fault != Fault::End, "asked to by the peer");
        cx.close(id);
    }

    fn on_closed(&mut self, _: &Context<'_>, _: ConnectionId, fault: Fault, _: Closed) {
        assert!(fault != Fault::Closed, "asked to by the peer");
    }
}
