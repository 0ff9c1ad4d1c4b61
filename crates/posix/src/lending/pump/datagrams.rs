//! Notifies a child that a datagram socket has something to receive: the pair carries numbered
//! notifications, and the steward makes the child's calls. The reply to a call that leaves nothing
//! names the last notification that was given before it: all up to that one are answered, whenever
//! the child reads them.

use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;
use slipstack_mem::Descriptor;

use crate::lending::pump::{Pump, Way};
use crate::ready::bits;
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::Kind;
use crate::socket::kernel_socket::is_readable;

impl Pump {
    /// Whether datagrams come by the kernel too.
    pub(in crate::lending) fn has_kernel_part(&self) -> bool {
        self.socket.kind == Kind::Dgram && self.socket.kernel_speaks()
    }

    /// Gives a sign after each arrival, as far as the child has room for them.
    pub(crate) fn give_signs(&mut self) {
        if self.is_ending {
            self.to_peer = Way::over();
            self.to_child = Way::over();
            return;
        }
        if self.request != ReadRequest::All
            || !std::mem::take(&mut self.peers.gives)
            || !self.has_news()
        {
            return;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sign = (self.signs + 1).to_le_bytes();
        match retry_on_intr(|| rustix::net::send(&self.child, &sign, flags)) {
            Ok(_) => self.signs += 1,
            Err(Errno::AGAIN) => {}
            Err(_) => {
                self.to_child = Way::over();
                self.to_peer = Way::over();
            }
        }
    }

    /// Number of the last notification that is of nothing any more; 0 = something is left.
    pub(in crate::lending) fn answered_signs(&self) -> u64 {
        match self.has_news() {
            true => 0,
            false => self.signs,
        }
    }

    fn has_news(&self) -> bool {
        let kernel = || Descriptor::new(self.number).filter(|_| self.has_kernel_part());
        self.socket.readiness() & (bits::IN | bits::ERR | bits::HUP) != 0 || is_readable(kernel())
    }
}
