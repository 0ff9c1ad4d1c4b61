//! The server's side (RFC 7413 4.2.2, 5.1).

use crate::counters::Counter;
use crate::effects::Effects;
use crate::ids::ConnId;
use crate::network_layer::Cx;
use crate::tcp::Tcp;
use crate::tcp::arrival::{Arrival, HalfOpen, Handshake};
use crate::tcp::flow::{FlowKey, FlowState};
use crate::tcp::input::text;
use crate::tcp::listen::Listener;
use crate::tcp::output::control;
use crate::tcp::phase::Phase;
use crate::tcp::rtt::Rtt;
use crate::tcp::syn::SynEntry;
use crate::tcp::verdict::Verdict;
use crate::tcp::{resend_timer, seq};
use crate::time::Instant;

impl Tcp {
    /// Makes a block in SYN-RECEIVED whose data the program has; the SYN-ACK acknowledges it.
    /// Returns `false` if too many are pending: then the ordinary handshake is used.
    pub(in crate::tcp) fn open_fast(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        entry: &SynEntry,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        let &Arrival { hash, segment, .. } = arrival;
        let Some(listener) = self.listeners.find_mut(entry.listener) else {
            return false;
        };
        let limit = listener.options.socket.fast_open_queue as usize;
        let has_room = listener.fast_open.has_room(now, limit, &self.conns);
        if self.conns.is_full() || !has_room {
            cx.counters.bump(Counter::RxTcpFastOpenFull);
            return false;
        }
        let handshake = Handshake {
            half: HalfOpen::Carried(entry),
            listener: entry.listener,
        };
        let Ok(index) = self.make_passive(now, arrival, handshake, cx) else {
            return false;
        };
        self.demux.insert(hash, FlowState::Connection(index));
        self.announce(now, index, entry.listener, cx, fx);
        let Some(conn) = self.conns.at_mut(index) else {
            return false;
        };
        conn.phase = Phase::SynReceived;
        // RFC 6298 2.1: nothing has been measured before the handshake's last ACK.
        conn.rtt = Rtt::default();
        conn.snd.una = seq::SYN;
        // RFC 7323 2.2: the window of a SYN is not scaled.
        conn.snd.wnd = u32::from(segment.window);
        conn.snd.wnd_max = conn.snd.wnd;
        conn.snd.edge = seq::FIRST + u64::from(conn.snd.wnd);
        cx.counters.bump(Counter::TcpFastOpenAccepted);
        text::on_text(conn, now, segment, seq::FIRST, cx, fx).count(cx.counters);
        control::send_syn(conn, now, cx, fx);
        resend_timer::arm_timeout(conn, now, cx);
        let id = conn.id;
        if let Some(listener) = self.listeners.find_mut(entry.listener) {
            let number = listener.offered;
            listener.fast_open.push(id, number);
        }
        self.settle(now, index, Verdict::Alive, cx, fx);
        true
    }

    /// A connection that was opened with the data of its SYN is reset before the handshake is done.
    #[cold]
    pub(in crate::tcp) fn on_fast_open_reset(&mut self, now: Instant, key: &FlowKey, id: ConnId) {
        for listener in self.listeners.ids_of(key) {
            let listener = self.listeners.find_mut(listener);
            let on_reset = |it: &mut Listener| it.fast_open.on_reset(now, id, it.taken);
            if listener.is_some_and(on_reset) {
                return;
            }
        }
    }
}
