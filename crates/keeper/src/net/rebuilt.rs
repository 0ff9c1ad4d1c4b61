//! Connections of killed programs, ended as the kernel ends them: data that the program had written
//! is still delivered, and a FIN follows. A connection that was not accepted yet moves to another
//! listener of its port.
//!
//! The memory of the killed engine is not used. The state comes from the flow directory and the
//! cells, which are consistent at any instant, and from the peer's next segment.

use slipstack_channel::control::LeftFile;
use slipstack_channel::{FlowEntry, LeftConnection, Opened, PassedOn};
use slipstack_device::{Flow, Transport};
use slipstack_engine::carried_head;
use slipstack_mem::Region;
use slipstack_mem::process::has_ended;
use slipstack_stack::{ConnectionImage, ConnectionOrigin, Progress};

use super::Net;
use super::backlogs::Detached;
use crate::regions::RegionKey;

/// Received bytes that go to another listener with a connection at most.
const BYTES_MAX: usize = 1024 * 1024;

impl Net {
    /// Continues a connection from a killed program's region. Returns `None` if it has to be reset
    /// because its program had not read everything, or had chosen that.
    pub fn adopt_killed(
        &mut self,
        (entry, left): (&FlowEntry, LeftConnection),
        region: &Region,
        key: RegionKey,
        now: u64,
    ) -> Option<Flow> {
        if left.read != left.received {
            return None;
        }
        let image = image_of(entry, &entry.opened?, &left);
        // On the kernel the connection stays with them; here it ends without a reset.
        let has_users = left.loan.is_lent() && !left.loan.sole_user().is_some_and(has_ended);
        let mut bytes = left.unsent;
        bytes.stack = image.to_bytes().to_vec();
        if image.resets_at_end() && !has_users {
            self.send_before_reset(bytes, &image, region, key, now);
            return None;
        }
        self.adopt(bytes, region, key, now)
    }

    /// Sends an unaccepted connection to another listener, or keeps it until there is one. Returns
    /// `false` if it has to be reset.
    pub fn pass_killed(
        &mut self,
        (entry, left): (&FlowEntry, &LeftConnection),
        region: &Region,
        now: u64,
    ) -> bool {
        let (Some(opened), Some(bytes)) = (entry.opened, left.unread(region)) else {
            return false;
        };
        if bytes.len() > BYTES_MAX || left.read != 0 || left.unsent.head != 0 {
            return false;
        }
        let image = image_of(entry, &opened, left);
        let detached = Detached {
            image: &image,
            bytes: &bytes,
            has_fin: left.has_fin,
            urgent: left.urgent,
        };
        self.pass_on(detached, now);
        true
    }

    /// Segments of a connection that waits for a process which uses it are not answered meanwhile.
    pub fn expect_user(&mut self, entry: &FlowEntry, now: u64) {
        let flow = Flow {
            proto: Transport::Tcp,
            local: entry.local,
            remote: entry.remote,
        };
        self.effects.strays.note_awaited(flow, now);
    }

    /// Returns a connection of a killed program for another process that uses it, which has these
    /// bytes already. All bytes to send go along, as if none of them had been sent.
    /// `None`: these are no possible values.
    pub fn left_file(
        (entry, left): (&FlowEntry, &LeftConnection),
        region: &Region,
        has: PassedOn,
    ) -> Option<LeftFile> {
        let mut left = left.read_by(has)?;
        let received = left.unread(region)?;
        let unsent = left.unsent.to_vec(region);
        let told = left.told();
        left.read = left.read.checked_sub(u64::from(has.unread))?;
        left.unsent.head = left.unsent.acked;
        let image = image_of(entry, &entry.opened?, &left);
        Some(LeftFile {
            head: carried_head(image, left.has_fin),
            unsent,
            received,
            ..told
        })
    }
}

fn image_of(entry: &FlowEntry, opened: &Opened, left: &LeftConnection) -> ConnectionImage {
    let origin = ConnectionOrigin::of_words(opened.origin, opened.choice);
    let progress = Progress {
        acked: left.unsent.acked,
        written: left.unsent.head,
        received: left.received,
        read: left.read,
        has_fin: left.has_fin,
    };
    ConnectionImage::rebuild(entry.local, entry.remote, &origin, &progress)
}
