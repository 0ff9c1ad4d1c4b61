//! Whether bytes of other processes are on their way to the send ring.

use super::Pump;

impl Pump {
    /// Notes, before bytes are taken from the pair and once they are in the ring, that they are in
    /// neither.
    pub(super) fn note_moving(&mut self, is_moving: bool) {
        if std::mem::replace(&mut self.is_moving, is_moving) == is_moving {
            return;
        }
        if is_moving {
            self.socket.lent.begin_move();
        } else if self.socket.lent.end_move() {
            self.socket.notify(self.socket.readiness());
        }
    }

    /// Notes whether writes to the pair succeed, for a process that shuts the direction down.
    pub(super) fn note_writer(&mut self, is_writer: bool) {
        if std::mem::replace(&mut self.is_writer, is_writer) != is_writer {
            self.socket.lent.note_writer(is_writer);
        }
    }

    /// Whether bytes that the pair still has are for nobody.
    pub(crate) fn reads_no_more(&self) -> bool {
        self.to_peer.is_ended
    }
}
