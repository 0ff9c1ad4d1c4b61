//! Input of frames: header prediction, trains, or the full path.

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::plain::PlainTcp;

use crate::counters::Counter;
use crate::effects::{Absent, Effects, RxChecksum, RxMeta};
use crate::stack::{Stack, cx};
use crate::tcp::TrainState;
use crate::time::Instant;

impl Stack {
    /// Takes a frame: from the device, or one of our own that is looped back ([`RxMeta::LOCAL`]).
    pub fn on_frame(&mut self, now: Instant, frame: &[u8], meta: RxMeta, fx: &mut impl Effects) {
        self.end_burst(now, fx);
        if self.is_kept_out(now, frame, meta, fx) {
            return;
        }
        self.take_frame(now, frame, meta, fx);
        self.tcp.train.state = TrainState::Idle;
    }

    /// Processes one of several frames that arrived together: segments that continue each other are
    /// processed as one. [`Stack::end_burst`] follows the last, before any other call.
    #[inline]
    pub fn on_burst_frame(
        &mut self,
        now: Instant,
        frame: &[u8],
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        if self.is_kept_out(now, frame, meta, fx) {
            return;
        }
        if self.tcp.train.state != TrainState::Idle {
            return self.on_train_frame(now, frame, meta, fx);
        }
        self.take_frame(now, frame, meta, fx);
    }

    /// Behind a full segment, or behind several that were taken as one.
    #[inline(never)]
    fn on_train_frame(&mut self, now: Instant, frame: &[u8], meta: RxMeta, fx: &mut impl Effects) {
        if self.tcp.train.state == TrainState::Open {
            if self.tcp.join_train(frame, meta, fx) {
                return;
            }
            self.tcp.end_train(now, &mut cx!(self), fx);
        }
        let before = self.tcp.train.latest;
        self.tcp.train.state = TrainState::Idle;
        self.take_frame(now, frame, meta, fx);
        if self.tcp.train.state == TrainState::Promising && self.tcp.train.latest == before {
            self.tcp.open_train(frame, meta.link);
        }
    }

    /// Processes a frame of `len` bytes of which the device has shown only the beginning: it is
    /// accepted if it is plain data that an open connection expects, whose place [`Effects::fetch`]
    /// then knows. Otherwise it has to be fetched whole.
    pub fn on_large_frame(
        &mut self,
        now: Instant,
        beginning: &[u8],
        len: usize,
        meta: RxMeta,
        fx: &mut impl Effects,
    ) {
        self.end_burst(now, fx);
        self.tcp.train.state = TrainState::Idle;
        // A frame that the filter has to look at is fetched whole.
        if !self.lets_large_in(now, beginning, meta) {
            return;
        }
        let Some((plain, from)) = PlainTcp::parse_beginning(beginning, len) else {
            return;
        };
        let absent = Absent {
            from,
            len: len - from,
        };
        if meta.checksum != RxChecksum::Unknown
            && self.net.macs.has(plain.link_dst)
            && absent.len > 0
            && self
                .tcp
                .take_absent(now, &plain, absent, meta, &mut cx!(self), fx)
        {
            self.count_large(now, beginning, len, meta);
            self.counters.count_in(meta.link, len);
            self.counters.bump(Counter::RxIpv4);
            self.counters.bump(Counter::RxTcp);
        }
    }

    /// No more frames come with those of [`Stack::on_burst_frame`].
    #[inline]
    pub fn end_burst(&mut self, now: Instant, fx: &mut impl Effects) {
        if self.tcp.train.state == TrainState::Open {
            self.tcp.end_train(now, &mut cx!(self), fx);
        }
    }

    #[inline]
    fn take_frame(&mut self, now: Instant, frame: &[u8], meta: RxMeta, fx: &mut impl Effects) {
        self.counters.count_in(meta.link, frame.len());
        if meta.local || !self.take_plain(now, frame, meta, fx) {
            self.on_other_frame(now, frame, meta, fx);
        }
    }

    /// Separate, so that the plain frame pays nothing for the needs of others.
    #[inline(never)]
    fn on_other_frame(&mut self, now: Instant, frame: &[u8], meta: RxMeta, fx: &mut impl Effects) {
        let Some((header, payload)) = EthernetHeader::parse(frame) else {
            self.counters.bump(Counter::DropEthernetShort);
            return;
        };
        let link_group = ethernet::is_group(header.dst);
        if !self.net.macs.has(header.dst) && !link_group {
            self.counters.bump(Counter::DropEthernetNotOurs);
            return;
        }
        let (ethertype, payload) = match header.ethertype {
            EtherType::TAGGED => match ethernet::parse_priority_tag(payload) {
                Some(inner) => inner,
                None => {
                    self.counters.bump(Counter::DropEthernetVlan);
                    return;
                }
            },
            plain => (plain, payload),
        };
        match ethertype {
            EtherType::IPV4 => self.on_ipv4(now, payload, link_group, meta, fx),
            EtherType::IPV6 => self.on_ipv6(now, payload, link_group, meta, fx),
            EtherType::ARP => cx!(self).on_arp(now, payload, meta.link, fx),
            _ => self.counters.bump(Counter::DropEthernetType),
        }
    }

    /// The commonest frame, at once. `false`: nothing has been touched.
    #[inline]
    fn take_plain(
        &mut self,
        now: Instant,
        frame: &[u8],
        meta: RxMeta,
        fx: &mut impl Effects,
    ) -> bool {
        let Some(plain) = PlainTcp::parse(frame) else {
            return false;
        };
        let is_taken = self.net.macs.has(plain.link_dst)
            && self.tcp.take_plain(now, &plain, meta, &mut cx!(self), fx);
        if is_taken {
            self.counters.bump(Counter::RxIpv4);
            self.counters.bump(Counter::RxTcp);
        }
        is_taken
    }
}
