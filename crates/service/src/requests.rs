//! Requests to the engine, and its replies.

use slipstack_channel::{CloseMode, Command, SocketError, Ticket};

use crate::connections::{DatagramSocketId, ListenerId, Phase};
use crate::context::Asked;
use crate::host::Host;
use crate::outcome::Refused;
use crate::service::Service;

impl<S: Service> Host<S> {
    #[cold]
    pub(crate) fn take_replies(&mut self, now: u64) {
        let asked = std::mem::take(&mut *self.core.asked.borrow_mut());
        for (ticket, what) in asked {
            match self.core.program.reply(ticket) {
                None => self.core.asked.borrow_mut().push((ticket, what)),
                Some(Ok(_)) => self.on_granted(what),
                Some(Err(refusal)) => self.on_refused(now, what, refusal),
            }
        }
    }

    fn on_granted(&mut self, what: Asked) {
        if let Asked::BindListener { sock, backlog } = what {
            let ticket = self.core.program.request(Command::Listen { sock, backlog });
            let asked = (ticket, Asked::Listen { sock });
            self.core.asked.borrow_mut().push(asked);
        }
    }

    fn on_refused(&mut self, now: u64, what: Asked, refusal: SocketError) {
        let refused = match what {
            Asked::BindListener { sock, .. } | Asked::Listen { sock } => {
                self.core
                    .listeners
                    .borrow_mut()
                    .retain(|other| *other != sock);
                Refused::Listen(ListenerId(sock), refusal)
            }
            Asked::BindDatagrams { sock } => {
                self.core
                    .datagram_sockets
                    .borrow_mut()
                    .retain(|other| *other != sock);
                Refused::Bind(DatagramSocketId(sock), refusal)
            }
            Asked::Connect { sock } => {
                let phase = self.core.entries.borrow_mut().find(sock).map(|it| it.phase);
                let Some(Phase::Connecting { tag }) = phase else {
                    return;
                };
                self.core.entries.borrow_mut().end(sock);
                self.core.program.close(sock, CloseMode::Abort);
                Refused::Connect(tag, refusal)
            }
        };
        if let Refused::Listen(ListenerId(sock), _) | Refused::Bind(DatagramSocketId(sock), _) =
            refused
        {
            self.core.program.close(sock, CloseMode::Abort);
        }
        self.core.shared.note_refusal(refused);
        self.call(now, |service, cx| service.on_refused(cx, refused));
    }

    /// Sends the attempts for which there are tickets.
    #[cold]
    pub(crate) fn send_attempts(&mut self) {
        let mut attempts = self.core.attempts.borrow_mut();
        while let Some((sock, remote)) = attempts.front().copied() {
            let ticket = self.core.program.request(Command::Connect { sock, remote });
            if ticket == Ticket::NONE {
                return;
            }
            attempts.pop_front();
            let asked = (ticket, Asked::Connect { sock });
            self.core.asked.borrow_mut().push(asked);
        }
    }
}
