//! Frames to our own address: back into this stack, or to the engine of another slot.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slipstack_channel::{INBOX_BYTES, INBOX_CELLS, InboxMessage};
use slipstack_device::{Flow, Port, RecentFlows, SlotSet, Steering, Transport};
use slipstack_mem::{Doorbell, InboxReader, MpscInbox, RawSlice, Region};
use slipstack_wire::flow::{FrameFlow, is_group_frame};
use slipstack_wire::frame_fragment::{FrameFragment, PacketId};
use slipstack_wire::protocol;

/// Frames to ourselves that wait at most; more are lost, as on a wire.
const LOCAL_LEN_MAX: usize = 1024;
/// Spare buffers kept.
const SPARE_MAX: usize = 64;

/// Number of attempts, and their distance, for a full inbox.
const PATIENCE: u32 = 200;
const PAUSE: Duration = Duration::from_micros(100);

/// Time after a change of ports during which an unexpected reset may be for another engine.
const MOVING_NS: u64 = 2_000_000_000;

/// The connections between the engines of one device.
#[derive(Debug)]
pub struct Interconnect {
    own_slot: u16,
    inboxes: Vec<MpscInbox>,
    bells: Vec<Doorbell>,
    steering: Arc<Steering>,
    /// The slots of the latest frames' flows.
    recent: RecentFlows,
    reader: InboxReader,
}

/// Outboxes to the other engines, for users that have no inbox of their own.
pub(crate) struct Outboxes {
    pub(crate) own_slot: u16,
    pub(crate) steering: Arc<Steering>,
    inboxes: Vec<MpscInbox>,
    bells: Vec<Doorbell>,
}

impl Outboxes {
    /// `false` when the other engine has no room.
    pub(crate) fn post(&self, slot: usize, message: &InboxMessage<'_>) -> bool {
        post(&self.inboxes, &self.bells, slot, message)
    }
}

fn post(
    inboxes: &[MpscInbox],
    bells: &[Doorbell],
    slot: usize,
    message: &InboxMessage<'_>,
) -> bool {
    let (Some(inbox), Some(bell)) = (inboxes.get(slot), bells.get(slot)) else {
        return false;
    };
    let taken = message.put(|parts| inbox.push(parts));
    wake(inbox, bell);
    taken
}

fn wake(inbox: &MpscInbox, bell: &Doorbell) {
    if inbox.take_sleeping() {
        bell.ring();
    }
}

impl Interconnect {
    /// `region` holds an inbox of [`INBOX_BYTES`] per slot; `bells` are the slots' doorbells in
    /// order. `None` when the region is too short for the slots.
    pub fn new(
        own_slot: u16,
        region: &Region,
        bells: Vec<Doorbell>,
        steering: Steering,
    ) -> Option<Interconnect> {
        let inboxes = (0..bells.len())
            .map(|slot| MpscInbox::new(region, slot * INBOX_BYTES, INBOX_CELLS))
            .collect::<Option<Vec<_>>>()?;
        let own = inboxes.get(usize::from(own_slot))?.clone();
        Some(Interconnect {
            own_slot,
            inboxes,
            bells,
            steering: Arc::new(steering),
            recent: RecentFlows::default(),
            reader: InboxReader::new(own),
        })
    }

    pub(crate) fn outboxes(&self) -> Outboxes {
        Outboxes {
            own_slot: self.own_slot,
            steering: Arc::clone(&self.steering),
            inboxes: self.inboxes.clone(),
            bells: self.bells.clone(),
        }
    }

    pub(crate) fn own_slot(&self) -> u16 {
        self.own_slot
    }

    pub(crate) fn reader(&mut self) -> &mut InboxReader {
        &mut self.reader
    }

    pub(crate) fn has_frames(&self) -> bool {
        self.reader.is_claimed()
    }

    /// Returns the slots that get frames of a flow, as bits: one, or for a multicast group all that
    /// serve the port, including this one, whose own multicast frames are looped back.
    fn find_slots_of(&mut self, flow: &Flow, is_to_group: bool) -> SlotSet {
        if is_to_group {
            let port = flow.local.port();
            return self.steering.find_slots(flow.proto, port) | self.own_bit();
        }
        1 << self.recent.find_slot(&self.steering, flow)
    }

    fn own_bit(&self) -> SlotSet {
        1 << self.own_slot
    }

    /// Returns the slot whose program would get a new connection of this flow; 0 if there is none.
    /// Exceptions are ignored, because they may still name our own slot.
    pub(crate) fn find_route(&self, flow: &Flow) -> u16 {
        match self.steering.port(flow.proto, flow.local.port()) {
            Port::Keeper => 0,
            Port::Slot(slot) => slot,
            Port::Group(group) => {
                let bucket = self.steering.bucket(flow.local, flow.remote);
                self.steering.group_slot(group, bucket)
            }
        }
    }

    /// Returns the slot of a flow if it is another program's.
    pub(crate) fn find_taker(&self, flow: &Flow) -> Option<usize> {
        let slot = self.find_route(flow);
        // Slot 0 is the keeper's, which serves no program.
        (slot != self.own_slot && slot != 0).then_some(usize::from(slot))
    }

    /// Returns whether another engine may serve a port.
    pub(crate) fn has_others(&self, transport: Transport, port: u16) -> bool {
        match self.steering.port(transport, port) {
            Port::Keeper => false,
            Port::Slot(slot) => slot != self.own_slot,
            Port::Group(_) => true,
        }
    }

    /// The slots of other engines that serve a port, as bits.
    pub(crate) fn other_slots(&self, transport: Transport, port: u16) -> SlotSet {
        self.steering.find_slots(transport, port) & !self.own_bit()
    }

    /// Returns whether ports have changed hands a moment ago.
    pub(crate) fn is_moving(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.steering.changed_ns()) < MOVING_NS
    }

    /// `false` when the other engine has no room.
    pub(crate) fn post(&self, slot: usize, message: &InboxMessage<'_>) -> bool {
        post(&self.inboxes, &self.bells, slot, message)
    }

    /// Puts a frame whose payload lies in a send ring into an inbox.
    fn post_stream(
        &self,
        slot: usize,
        link: u16,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
    ) -> bool {
        let (Some(inbox), Some(bell)) = (self.inboxes.get(slot), self.bells.get(slot)) else {
            return false;
        };
        let len = header.len() + payload.iter().map(RawSlice::len).sum::<usize>();
        let message = InboxMessage::frame_header(link, len);
        let taken = inbox.push_shared(&[&message, header], &payload);
        wake(inbox, bell);
        taken
    }

    /// As [`Interconnect::post`], for a message that must not be lost: an owner without room is
    /// given a moment. [`Interconnect::wake`] follows.
    pub(crate) fn post_patiently(&self, slot: usize, message: &InboxMessage<'_>) -> bool {
        let Some(inbox) = self.inboxes.get(slot) else {
            return false;
        };
        for _ in 0..PATIENCE {
            if message.put(|parts| inbox.push(parts)) {
                return true;
            }
            self.wake(slot);
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Number of turns that an engine has begun, wrapping.
    pub(crate) fn beats(&self, slot: usize) -> Option<u64> {
        Some(self.inboxes.get(slot)?.beats())
    }

    /// Wakes the owner of an inbox.
    pub(crate) fn wake(&self, slot: usize) {
        if let (Some(inbox), Some(bell)) = (self.inboxes.get(slot), self.bells.get(slot)) {
            wake(inbox, bell);
        }
    }
}

/// Returns the frame's flow if it is a SYN to this port.
pub(crate) fn syn_to(frame: &[u8], port: u16) -> Option<Flow> {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let parsed = FrameFlow::parse(frame)?;
    let is_syn = parsed.tcp_flags()? & (SYN | ACK) == SYN;
    (is_syn && parsed.dst.port() == port).then(|| flow_of(&parsed))
}

/// From its receiver's point of view.
pub(crate) fn flow_of(parsed: &FrameFlow<'_>) -> Flow {
    Flow {
        proto: proto_of(parsed.protocol),
        local: parsed.dst,
        remote: parsed.src,
    }
}

/// The quoted flow from the point of view of the quoted packet's sender.
fn quoted_flow(quoted: &FrameFlow<'_>) -> Flow {
    Flow {
        proto: proto_of(quoted.protocol),
        local: quoted.src,
        remote: quoted.dst,
    }
}

fn proto_of(number: u8) -> Transport {
    match number {
        protocol::TCP => Transport::Tcp,
        _ => Transport::Udp,
    }
}

/// The result of taking a frame for our own address.
pub(crate) struct Taken {
    /// Copies in other engines' inboxes.
    pub(crate) posted: u64,
    /// Copies for which there was no room.
    pub(crate) lost: u64,
}

/// Local frames of one engine.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) interconnect: Option<Interconnect>,
    /// Each with the link that it comes by.
    waiting: VecDeque<(u16, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// The last packet in fragments, and the slots that its first one went to. The others, which
    /// have no ports, follow immediately.
    fragmented: Option<(PacketId, SlotSet)>,
}

impl Local {
    /// Returns whether datagrams to a leased port arrive here: another program may have claimed it.
    pub(crate) fn has_datagrams(&self, port: u16) -> bool {
        let is_own =
            |it: &Interconnect| it.steering.port(Transport::Udp, port) == Port::Slot(it.own_slot);
        self.interconnect.as_ref().is_none_or(is_own)
    }

    /// Returns whether a connection from a leased port would get its answers: another program may
    /// have claimed the port, or have a connection between these two ends.
    pub(crate) fn has_flow(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let is_own = |it: &Interconnect| {
            it.steering.port(Transport::Tcp, local.port()) == Port::Slot(it.own_slot)
                && it.steering.find_slot(Transport::Tcp, local, remote) == it.own_slot
        };
        self.interconnect.as_ref().is_none_or(is_own)
    }

    /// Returns whether another engine has a connection between these two ends, which the steering
    /// names.
    pub(crate) fn is_on_other_engine(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let Some(interconnect) = &self.interconnect else {
            return false;
        };
        let found = interconnect
            .steering
            .find_exception(Transport::Tcp, local, remote);
        found.is_some_and(|slot| slot != 0 && slot != interconnect.own_slot)
    }

    /// The slots that get this frame, as bits; 0: it is ours alone.
    fn find_slots(&mut self, frame: &[u8]) -> SlotSet {
        let Some(interconnect) = &mut self.interconnect else {
            return 0;
        };
        if let Some(parsed) = FrameFlow::parse(frame) {
            return interconnect.find_slots_of(&flow_of(&parsed), parsed.is_to_group(frame));
        }
        if let Some(quoted) = FrameFlow::parse_quoted(frame) {
            // An error about a packet of another engine.
            return interconnect.find_slots_of(&quoted_flow(&quoted), false);
        }
        match FrameFragment::parse(frame) {
            Some(FrameFragment::First(id, number, src, dst)) => {
                let flow = Flow {
                    proto: proto_of(number),
                    local: dst,
                    remote: src,
                };
                let slots = interconnect.find_slots_of(&flow, is_group_frame(frame));
                self.fragmented = Some((id, slots));
                slots
            }
            Some(FrameFragment::Later(id)) => match self.fragmented {
                Some((of, slots)) if of == id => slots,
                _ => 0,
            },
            Some(FrameFragment::Portless(_)) | None => 0,
        }
    }

    /// Puts a frame into the inboxes of these slots but our own: how many took it and how many had
    /// no room.
    fn post(&self, slots: SlotSet, (link, frame): (u16, &[u8])) -> (u64, u64) {
        let Some(interconnect) = &self.interconnect else {
            return (0, 0);
        };
        let mut left = slots & !interconnect.own_bit();
        let (mut taken, mut lost) = (0, 0);
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            let is_taken = interconnect.post(slot, &InboxMessage::Frame { link, frame });
            left &= left - 1;
            taken += u64::from(is_taken);
            lost += u64::from(!is_taken);
        }
        (taken, lost)
    }

    /// Returns whether a frame for these slots is for this stack too.
    fn is_ours(&self, slots: SlotSet) -> bool {
        let interconnect = self.interconnect.as_ref();
        slots == 0 || interconnect.is_none_or(|interconnect| slots & interconnect.own_bit() != 0)
    }

    pub(crate) fn new(interconnect: Option<Interconnect>) -> Local {
        Local {
            interconnect,
            ..Local::default()
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next frame to ourselves; give the buffer back with [`Local::recycle`].
    pub(crate) fn pop(&mut self) -> Option<(u16, Vec<u8>)> {
        self.waiting.pop_front()
    }

    /// An empty buffer to assemble a frame in.
    pub(crate) fn spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Puts a frame for our own address, or of ours to a group that left by `link`, where it
    /// belongs: into the inboxes of other engines, into our own queue, or both.
    pub(crate) fn take(&mut self, link: u16, frame: Vec<u8>) -> Taken {
        let slots = self.find_slots(&frame);
        let (posted, mut lost) = self.post(slots, (link, &frame));
        if !self.is_ours(slots) {
            self.recycle(frame);
        } else if self.waiting.len() >= LOCAL_LEN_MAX {
            lost += 1;
            self.recycle(frame);
        } else {
            self.waiting.push_back((link, frame));
        }
        Taken { posted, lost }
    }

    /// Puts a segment for our own address into another engine's inbox; `None`: it is for this
    /// stack, which takes whole frames.
    pub(crate) fn take_stream(
        &mut self,
        link: u16,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
    ) -> Option<Taken> {
        let interconnect = self.interconnect.as_mut()?;
        let flow = flow_of(&FrameFlow::parse_headers(header)?);
        let slot = interconnect.recent.find_slot(&interconnect.steering, &flow);
        if slot == interconnect.own_slot {
            return None;
        }
        let is_posted = interconnect.post_stream(usize::from(slot), link, header, payload);
        Some(Taken {
            posted: u64::from(is_posted),
            lost: u64::from(!is_posted),
        })
    }

    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.is_empty()
            || self
                .interconnect
                .as_ref()
                .is_some_and(Interconnect::has_frames)
    }

    /// Shows the keeper that the engine runs.
    #[inline]
    pub(crate) fn beat(&self) {
        if let Some(interconnect) = &self.interconnect {
            interconnect.reader.beat();
        }
    }

    /// Announces sleep to other engines; returns `false` if a frame arrived meanwhile.
    pub(crate) fn set_sleeping(&self, sleeping: bool) {
        if let Some(interconnect) = &self.interconnect {
            if sleeping {
                interconnect.reader.prepare_sleep();
            } else {
                interconnect.reader.finish_sleep();
            }
        }
    }
}
