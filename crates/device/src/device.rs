//! The trait by which engines use devices.

use std::os::fd::RawFd;

use slipstack_mem::{RawSlice, RawSpace};
use slipstack_terms::LinkTags;
use slipstack_wire::rss::QueueMap;
use slipstack_wire::{RxMeta, TxOffload};

/// Properties of a device by which an engine configures its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Source address of our frames.
    pub mac: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// The device completes partial transport checksums.
    pub tx_checksum: bool,
    /// Largest TCP payload of one frame that the device cuts into segments; 0 = it does not.
    pub tso_max: u32,
    /// The device segments joined datagrams.
    pub udp_segmentation: bool,
}

/// Refusal of a frame for lack of room. Counted; the sender tries again after a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxFull;

/// Returns an estimate of the kernel memory that a datagram with a payload of `len` bytes fills in
/// its queue.
#[inline]
#[must_use]
pub fn datagram_cost(len: usize) -> u64 {
    frame_cost(1, len as u64)
}

/// As [`datagram_cost`], of several frames with `bytes` in all.
#[inline]
pub(crate) fn frame_cost(frames: u64, bytes: u64) -> u64 {
    1024 * frames + bytes + bytes / 4
}

/// Receiver of a device's frames: any closure of a frame, or more than that.
pub trait Sink {
    /// A frame, in order of arrival. Its bytes are the device's again when this returns.
    fn frame(&mut self, frame: &[u8], meta: RxMeta);

    /// A large frame of which the device has fetched only the beginning. A sink that wants the
    /// frame fetches the rest at once; by default the frame is fetched whole.
    fn large(&mut self, beginning: &[u8], meta: RxMeta, rest: &mut dyn Rest) {
        let _ = (beginning, meta, rest);
    }

    /// Returns the monotonic time with which the frames are handled. A device that knows arrival
    /// times keeps later frames for its next run.
    fn clock_ns(&self) -> Option<u64> {
        None
    }
}

impl<F: FnMut(&[u8], RxMeta)> Sink for F {
    #[inline]
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        self(frame, meta);
    }
}

/// Sees a frame that waits for another process, and decides whether to take it over.
pub type Takes<'a> = dyn FnMut(&[u8], RxMeta) -> bool + 'a;

/// The rest of a large frame.
pub trait Rest {
    /// Length of the whole frame.
    fn frame_len(&self) -> usize;

    /// Puts the bytes from `from` on, a position in the shown beginning, into memory of exactly
    /// their length. Returns `false` if they are lost; then the written bytes are invalid. May be
    /// called once.
    fn fetch(&mut self, from: usize, into: [RawSpace<'_>; 2]) -> bool;
}

/// News about the link of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkNotice {
    /// A sentence for the operator.
    pub sentence: String,
    /// The station at the other end is another one than before, which knows none of our addresses.
    pub has_new_peer: bool,
}

impl From<String> for LinkNotice {
    fn from(sentence: String) -> LinkNotice {
        LinkNotice {
            sentence,
            has_new_peer: false,
        }
    }
}

/// The methods of a [`Device`] that ask, passed on to the device in a field.
macro_rules! pass_on {
    ($device:ident) => {
        fn poll_fd(&self) -> std::os::fd::RawFd {
            self.$device.poll_fd()
        }

        fn descriptors(&self) -> Vec<std::os::fd::RawFd> {
            self.$device.descriptors()
        }

        fn waiting_since_ns(&self) -> Option<u64> {
            self.$device.waiting_since_ns()
        }

        fn tx_pending(&self) -> bool {
            self.$device.tx_pending()
        }

        fn datagram_room(&mut self, now_ns: u64, taken: u64) -> u64 {
            self.$device.datagram_room(now_ns, taken)
        }

        fn take_notice(&mut self) -> Option<$crate::device::LinkNotice> {
            self.$device.take_notice()
        }

        fn queue_map(&self) -> Option<slipstack_wire::rss::QueueMap> {
            self.$device.queue_map()
        }

        fn answers_away(&self) -> u64 {
            self.$device.answers_away()
        }

        fn port_counters(&self) -> Vec<(u16, $crate::device::DeviceCounters)> {
            self.$device.port_counters()
        }

        fn counters(&self) -> $crate::device::DeviceCounters {
            self.$device.counters()
        }

        fn counters_at_hand(&self) -> $crate::device::DeviceCounters {
            self.$device.counters_at_hand()
        }
    };
}
pub(crate) use pass_on;

/// One slot of a network device. Nothing here blocks.
pub trait Device: Send {
    fn info(&self) -> DeviceInfo;

    /// Hands up to `budget` frames to `sink` and returns how many. It may hand over fewer if the
    /// frames are large.
    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize;

    /// Takes a frame, copying it before this returns. Small frames may wait for [`Device::flush`];
    /// large ones leave at once, after those that wait.
    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull>;

    /// Returns the kernel's numbers of the interfaces behind it, in the order of its ports. A
    /// device whose interfaces cannot become others has none.
    fn interfaces(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Goes on with another device in the place of the one inside; `None` = done. One that has none
    /// inside gives it back: whoever owns it replaces it.
    fn replace(&mut self, device: Box<dyn Device>) -> Option<Box<dyn Device>> {
        Some(device)
    }

    /// Frames of these VLANs are wanted beside those of the device's own link, of a device
    /// with several ports those of these links ([`slipstack_wire::LinkId`]). A device without tags
    /// has none.
    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        let _ = vlans;
    }

    /// Sends queued frames, as far as the kernel takes them.
    fn flush(&mut self);

    /// Readable while frames wait, if [`Device::has_rx`] was called after the last
    /// [`Device::rx`] (and writable when [`Device::tx_pending`] frames may go).
    fn poll_fd(&self) -> RawFd;

    /// Every descriptor of the slot, that to wait on among them.
    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.poll_fd()]
    }

    /// Returns whether frames wait; may cost a system call.
    fn has_rx(&self) -> bool;

    /// Returns the arrival time of the next frame, by the monotonic clock; `None` if there is none,
    /// or it is unknown.
    fn waiting_since_ns(&self) -> Option<u64> {
        None
    }

    /// Frames wait because the kernel had no room: poll for writing too, then flush.
    fn tx_pending(&self) -> bool {
        false
    }

    /// Returns the cost of the datagrams ([`datagram_cost`]) that may be sent before this is asked
    /// again; 0 = its queue has no room for any now. `taken` is the cost of those since the last
    /// time. A device that cannot tell has room for all.
    fn datagram_room(&mut self, now_ns: u64, taken: u64) -> u64 {
        let _ = (now_ns, taken);
        u64::MAX
    }

    /// Returns news about the link, once.
    fn take_notice(&mut self) -> Option<LinkNotice> {
        None
    }

    /// Returns how the card spreads received flows over its queues, seen from the slot's; `None`:
    /// that is unknown, or does not matter.
    fn queue_map(&self) -> Option<QueueMap> {
        None
    }

    /// Returns how many SYN-ACKs have arrived by another queue than the slot's own; 0 without a
    /// [`Device::queue_map`].
    fn answers_away(&self) -> u64 {
        0
    }

    /// Counters of the ports after the first, which [`Device::counters`] includes, with the numbers
    /// of their links.
    fn port_counters(&self) -> Vec<(u16, DeviceCounters)> {
        Vec::new()
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }

    /// As [`Device::counters`], without asking the system: losses that it alone knows of are as
    /// they were when it was asked last.
    fn counters_at_hand(&self) -> DeviceCounters {
        self.counters()
    }
}

impl<T: Device + ?Sized> Device for Box<T> {
    fn info(&self) -> DeviceInfo {
        (**self).info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        (**self).rx(budget, sink)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        (**self).tx(header, payload, offload)
    }

    fn interfaces(&self) -> Vec<u32> {
        (**self).interfaces()
    }

    fn replace(&mut self, device: Box<dyn Device>) -> Option<Box<dyn Device>> {
        (**self).replace(device)
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        (**self).set_vlans(vlans);
    }

    fn flush(&mut self) {
        (**self).flush();
    }

    fn poll_fd(&self) -> RawFd {
        (**self).poll_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        (**self).descriptors()
    }

    fn has_rx(&self) -> bool {
        (**self).has_rx()
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        (**self).waiting_since_ns()
    }

    fn tx_pending(&self) -> bool {
        (**self).tx_pending()
    }

    fn datagram_room(&mut self, now_ns: u64, taken: u64) -> u64 {
        (**self).datagram_room(now_ns, taken)
    }

    fn take_notice(&mut self) -> Option<LinkNotice> {
        (**self).take_notice()
    }

    fn queue_map(&self) -> Option<QueueMap> {
        (**self).queue_map()
    }

    fn answers_away(&self) -> u64 {
        (**self).answers_away()
    }

    fn port_counters(&self) -> Vec<(u16, DeviceCounters)> {
        (**self).port_counters()
    }

    fn counters(&self) -> DeviceCounters {
        (**self).counters()
    }

    fn counters_at_hand(&self) -> DeviceCounters {
        (**self).counters_at_hand()
    }
}

/// Declares the counters once: the struct and the list of names come from one table.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a device since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DeviceCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl DeviceCounters {
            /// Every counter with its name.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl core::ops::AddAssign for DeviceCounters {
            fn add_assign(&mut self, other: DeviceCounters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Frames handed to the engine.
    rx_frames,
    rx_bytes,
    /// Frames larger than a ring slot, fetched one by one.
    rx_large,
    /// Received frames that were stored directly in their reader's ring.
    rx_direct,
    /// Frames cut off because the kernel had no memory to keep the whole.
    rx_truncated,
    /// Frames that the kernel dropped because the ring was full.
    rx_overrun,
    /// Frames that bypassed the kernel's stack, by an AF_XDP socket.
    rx_bypassed,
    /// Frames of another VLAN than ours.
    rx_vlan,
    /// Frames for other stations of the link.
    rx_foreign,
    /// Frames with a virtio header, or rings of a memif peer, that make no sense.
    rx_malformed,
    /// Large frames whose ring slot had been consumed by a predecessor that died.
    rx_orphaned,
    /// Frames of other engines that were passed on to them: no keeper is left to see to it.
    rx_passed_on,
    /// Frames passed on that the other engine had no room for, and joined datagrams.
    rx_passed_lost,
    tx_frames,
    tx_bytes,
    /// Frames that left by an AF_XDP socket.
    tx_bypassed,
    /// Frames refused because nothing more could be taken; the stack retries.
    tx_full,
    /// Times the kernel took no more for now.
    tx_again,
    /// Times the kernel's queue refused a frame. A TCP segment behind others of ours is tried again
    /// up to three times.
    tx_nobufs,
    /// Frames given up: the kernel refused them for good.
    tx_dropped,
    /// Frames sent while the link had no peer.
    tx_unlinked,
    /// Errors taken off the descriptor, such as the interface going down.
    link_errors,
}
