//! A slot of several ports as one device.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slipstack_mem::{Descriptor, PrivateFd, RawSlice};
use slipstack_terms::LinkTags;
use slipstack_wire::{LinkId, RxMeta, TxOffload};

use crate::device::{Device, DeviceCounters, DeviceInfo, LinkNotice, Rest, Sink, TxFull};

/// The first byte of a link-layer address that is a group's has this bit.
const GROUP: u8 = 1;

/// One of the ports.
struct Port {
    device: Box<dyn Device>,
    mac: [u8; 6],
    /// The slot is waited for until its frames can go, too.
    is_waiting_to_send: bool,
    /// An operator or the kernel has put the port down: its frames do not reach the stack.
    is_down: bool,
}

/// See the [module documentation](self).
pub(super) struct JoinedSlot {
    ports: Vec<Port>,
    info: DeviceInfo,
    /// Readable when one of the ports is, or may send again.
    epoll: PrivateFd,
    /// The port that is polled first the next time, so that none starves another.
    first: usize,
    counters: DeviceCounters,
}

impl JoinedSlot {
    pub(super) fn new(devices: Vec<Box<dyn Device>>, info: DeviceInfo) -> io::Result<JoinedSlot> {
        let epoll = PrivateFd::of_engine(epoll::create(CreateFlags::CLOEXEC)?);
        let mut ports = Vec::new();
        for device in devices {
            if let Some(fd) = Descriptor::new(device.poll_fd()) {
                epoll::add(&epoll, fd.as_fd(), EventData::new_u64(0), EventFlags::IN)?;
            }
            ports.push(Port {
                mac: device.info().mac,
                device,
                is_waiting_to_send: false,
                is_down: false,
            });
        }
        Ok(JoinedSlot {
            ports,
            info,
            epoll,
            first: 0,
            counters: DeviceCounters::default(),
        })
    }
}

impl Port {
    /// Has the wait end when frames that the kernel had no room for can go.
    fn watch(&mut self, epoll: &OwnedFd) {
        let is_pending = self.device.tx_pending();
        if is_pending == self.is_waiting_to_send {
            return;
        }
        let Some(fd) = Descriptor::new(self.device.poll_fd()) else {
            return;
        };
        let flags = match is_pending {
            true => EventFlags::IN | EventFlags::OUT,
            false => EventFlags::IN,
        };
        if epoll::modify(epoll, fd.as_fd(), EventData::new_u64(0), flags).is_ok() {
            self.is_waiting_to_send = is_pending;
        }
    }
}

/// Receives the frames of one port.
pub(super) struct PortSink<'a> {
    link: LinkId,
    mac: [u8; 6],
    sink: &'a mut dyn Sink,
    /// Nothing is taken.
    is_down: bool,
    /// Frames for other stations, another port of ours among them.
    foreign: u64,
}

impl<'a> PortSink<'a> {
    pub(super) fn new(port: usize, mac: [u8; 6], sink: &'a mut dyn Sink) -> PortSink<'a> {
        PortSink {
            link: LinkId::new(port as u16, 0),
            mac,
            sink,
            is_down: false,
            foreign: 0,
        }
    }

    /// Returns the metadata of a frame that is for this port; `None` if it is for another station.
    fn admit(&mut self, frame: &[u8], meta: RxMeta) -> Option<RxMeta> {
        frame.get(..6)?;
        let admitted = admit(self.link.port(), self.mac, frame, meta).filter(|_| !self.is_down);
        self.foreign += u64::from(admitted.is_none());
        admitted
    }
}

/// Returns the metadata of a frame that is for the port with `mac`.
pub(super) fn admit(port: u16, mac: [u8; 6], frame: &[u8], meta: RxMeta) -> Option<RxMeta> {
    let to = frame.get(..6)?;
    (to[0] & GROUP != 0 || to == mac).then(|| RxMeta {
        link: LinkId::new(port, meta.link).0,
        ..meta
    })
}

impl Sink for PortSink<'_> {
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        if let Some(meta) = self.admit(frame, meta) {
            self.sink.frame(frame, meta);
        }
    }

    fn large(&mut self, beginning: &[u8], meta: RxMeta, rest: &mut dyn Rest) {
        if let Some(meta) = self.admit(beginning, meta) {
            self.sink.large(beginning, meta, rest);
        }
    }

    fn clock_ns(&self) -> Option<u64> {
        self.sink.clock_ns()
    }
}

impl Device for JoinedSlot {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let count = self.ports.len();
        let mut handed = 0;
        for at in (self.first..count).chain(0..self.first) {
            let port = &mut self.ports[at];
            let mut sink = PortSink::new(at, port.mac, sink);
            sink.is_down = port.is_down;
            handed += port.device.rx(budget - handed, &mut sink);
            self.counters.rx_foreign += sink.foreign;
            if handed >= budget {
                break;
            }
        }
        self.first = (self.first + 1) % count.max(1);
        handed
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let link = LinkId(offload.link);
        let Some(port) = self.ports.get_mut(usize::from(link.port())) else {
            self.counters.tx_dropped += 1;
            return Ok(());
        };
        let offload = TxOffload {
            link: link.vlan(),
            ..offload
        };
        port.device.tx(header, payload, offload)
    }

    fn interfaces(&self) -> Vec<u32> {
        let ports = self.ports.iter();
        ports.flat_map(|port| port.device.interfaces()).collect()
    }

    /// A port after the first is up if its own link is among them.
    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        for (at, port) in self.ports.iter_mut().enumerate() {
            port.is_down = at > 0
                && !vlans
                    .iter()
                    .any(|it| it.link == LinkId::new(at as u16, 0).0);
            let own = vlans.iter().filter(|it| {
                let link = LinkId(it.link);
                usize::from(link.port()) == at && link.vlan() != 0
            });
            let own = own.map(|it| LinkTags {
                link: LinkId(it.link).vlan(),
                ..*it
            });
            let own: Vec<LinkTags> = own.collect();
            port.device.set_vlans(&own);
        }
    }

    fn flush(&mut self) {
        for port in &mut self.ports {
            port.device.flush();
            port.watch(&self.epoll);
        }
    }

    fn poll_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let ports = self.ports.iter().flat_map(|port| port.device.descriptors());
        ports.chain([self.epoll.as_raw_fd()]).collect()
    }

    fn has_rx(&self) -> bool {
        self.ports.iter().any(|port| port.device.has_rx())
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        let waiting = self.ports.iter().filter(|port| port.device.has_rx());
        let since: Option<Vec<u64>> = waiting.map(|port| port.device.waiting_since_ns()).collect();
        since?.into_iter().min()
    }

    fn tx_pending(&self) -> bool {
        self.ports.iter().any(|port| port.device.tx_pending())
    }

    /// A port without room holds up no datagrams by the others.
    fn datagram_room(&mut self, now_ns: u64, taken: u64) -> u64 {
        let ports = self.ports.iter_mut();
        let rooms = ports.map(|port| port.device.datagram_room(now_ns, taken));
        rooms.max().unwrap_or(u64::MAX)
    }

    fn take_notice(&mut self) -> Option<LinkNotice> {
        let ports = self.ports.iter_mut();
        ports.filter_map(|port| port.device.take_notice()).next()
    }

    fn port_counters(&self) -> Vec<(u16, DeviceCounters)> {
        let ports = self.ports.iter().enumerate().skip(1);
        let counters =
            ports.map(|(at, port)| (LinkId::new(at as u16, 0).0, port.device.counters()));
        counters.collect()
    }

    fn counters(&self) -> DeviceCounters {
        let mut sum = self.counters;
        for port in &self.ports {
            sum += port.device.counters();
        }
        sum
    }

    fn counters_at_hand(&self) -> DeviceCounters {
        let mut sum = self.counters;
        for port in &self.ports {
            sum += port.device.counters_at_hand();
        }
        sum
    }
}
