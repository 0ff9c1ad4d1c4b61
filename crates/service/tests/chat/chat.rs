//! A chat: every line that a client sends goes to all others.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

use slipstack_service::{Closed, ConnectionId, Context, Service, Via};

/// Longest line; a client that sends a longer one is disconnected.
const LINE_MAX: usize = 1024;
/// A client that is silent for this time is disconnected.
const IDLE: Duration = Duration::from_secs(600);

/// One engine's room: the clients connected to the same engine.
pub struct Chat {
    pub listen: SocketAddr,
    names: HashMap<ConnectionId, String>,
}

impl Chat {
    pub fn new(listen: SocketAddr) -> Chat {
        Chat {
            listen,
            names: HashMap::new(),
        }
    }

    /// Sends a line to everybody but the speaker. A client that does not read misses the line,
    /// because nothing is queued beyond a connection's send ring.
    fn tell(&self, cx: &Context<'_>, speaker: ConnectionId, pieces: &[&[u8]]) {
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        for other in self.names.keys().filter(|other| **other != speaker) {
            let _ = cx.write_all(*other, &slices);
        }
    }
}

impl Service for Chat {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        if cx.listen(self.listen, 128).is_err() {
            eprintln!("no socket is left");
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<()> {
        let name = cx.remote(id)?.to_string();
        self.tell(cx, id, &[name.as_bytes(), b" has come\n"]);
        self.names.insert(id, name);
        cx.set_timer(id, IDLE);
        Some(())
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        cx.set_timer(id, IDLE);
        // As many lines as have come; half a line stays in the ring until the rest is there.
        while let Some(end) = cx.received(id).find(b'\n') {
            let line = cx.received(id).contiguous(end + 1);
            let name = self.names.get(&id).map_or("", String::as_str);
            self.tell(cx, id, &[name.as_bytes(), b": ", &line]);
            cx.consume(id, end + 1);
        }
        if cx.received(id).len() > LINE_MAX {
            cx.reset(id);
        }
    }

    fn on_timer(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        cx.close(id);
    }

    fn on_closed(&mut self, cx: &Context<'_>, id: ConnectionId, (): (), _: Closed) {
        if let Some(name) = self.names.remove(&id) {
            self.tell(cx, id, &[name.as_bytes(), b" has gone\n"]);
        }
    }
}
