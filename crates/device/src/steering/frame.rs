//! The slot that a whole frame is for, for devices whose frames no program in the kernel steers.

use slipstack_wire::flow::FrameFlow;
use slipstack_wire::protocol;

use super::{Proto, Steering};

impl Steering {
    /// The slot of a frame, by the same rules as the steering's programs.
    pub fn owner_of(&self, frame: &[u8]) -> u16 {
        let Some(parsed) = FrameFlow::parse(frame) else {
            return 0;
        };
        if !self.is_own(parsed.dst.ip()) || parsed.is_to_group(frame) {
            return 0;
        }
        let proto = match parsed.protocol {
            protocol::TCP => Proto::Tcp,
            _ => Proto::Udp,
        };
        self.find_slot(proto, parsed.dst, parsed.src)
    }
}
