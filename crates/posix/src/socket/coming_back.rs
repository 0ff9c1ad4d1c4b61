//! Sockets whose connections or datagrams have gone to other processes, and come here again when a
//! thread waits for them.

use super::description::{Decided, Description};

impl Description {
    /// Lets a socket whose connections or datagrams went to others take them again, if a thread
    /// waits for it now; otherwise the next wait does.
    pub(crate) fn come_back_if_attended(&self) {
        let is_yielding = match self.decided() {
            Some(Decided::Listener(listener)) => listener.is_yielding(),
            Some(Decided::Dgram(dgram)) => dgram.is_yielding(),
            _ => false,
        };
        if is_yielding {
            self.note_intents();
            if self.is_attended() {
                self.come_back();
            }
        }
    }

    /// Takes what goes to others again, because a thread waits on the socket.
    pub(crate) fn come_back(&self) {
        match self.decided() {
            Some(Decided::Listener(listener)) => listener.come_back(),
            Some(Decided::Dgram(dgram)) => dgram.come_back(),
            _ => {}
        }
    }
}
