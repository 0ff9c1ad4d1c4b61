//! Opening an interface with AF_XDP sockets on its queues.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};
use slipstack_terms::XdpMode;
use slipstack_wire::rss::Input;

use super::raw::Memory;
use super::socket::{METADATA_LEN, RX_FRAMES, RX_HEADROOM, Socket, SocketParams, TX_FRAMES};
use super::{XdpSlot, sys};
use crate::backend::{Backend, Capabilities, Description, DeviceKind, Opened};
use crate::bpf::programs::{Maps, SLOT_OF_FIRST_QUEUE};
use crate::bpf::redirect;
use crate::bpf::sys as bpf;
use crate::device::Device;
use crate::error::DeviceError;
use crate::ethtool::{Ethtool, Rss};
use crate::iface::{self, KernelInterface};
use crate::ingress::load_program_with;
use crate::packet::{PacketSlot, RingParams, open_members, shared_link};
use crate::parts::{SlotParts, own_value};
use crate::position::RingPosition;
use crate::rss::RssParams;
use crate::steering::{Steering, maps};

/// Ethernet's header with a tag.
const LINK_HEADER: u32 = 18;
const CHUNK_MIN: u32 = 2048;
const CHUNK_MAX: u32 = 4096;
/// Longest MTU that drivers take with a program that wants its frames in one piece.
const MTU_IN_ONE: u32 = 3000;
/// Number of attempts to bind a queue: the kernel releases a socket some time after its last
/// holder.
const BIND_TRIES: u32 = 100;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// Modes in which the program is attached and the sockets are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In the driver.
    Native,
    /// Receive hook of the kernel's general code.
    Generic,
    /// In the driver, which writes to our memory.
    ZeroCopy,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Native => XdpMode::Native.name(),
            Mode::Generic => XdpMode::Generic.name(),
            Mode::ZeroCopy => XdpMode::ZeroCopy.name(),
        }
    }

    /// Which are tried, in order.
    fn wanted(text: Option<&str>) -> Result<&'static [Mode], DeviceError> {
        let text = text.unwrap_or(XdpMode::Auto.name());
        match XdpMode::from_name(text) {
            Some(XdpMode::Auto) => Ok(&[Mode::Native, Mode::Generic]),
            Some(XdpMode::Native) => Ok(&[Mode::Native]),
            Some(XdpMode::Generic) => Ok(&[Mode::Generic]),
            Some(XdpMode::ZeroCopy) => Ok(&[Mode::ZeroCopy]),
            None => Err(DeviceError::Unsuitable(format!(
                "there is no XDP mode \"{text}\"; there are: {}",
                XdpMode::NAMES.join(", ")
            ))),
        }
    }
}

/// The argument of a device: `MODE[,busy=FRAMES][,any-port]`.
struct Wanted {
    /// The modes to try.
    modes: &'static [Mode],
    /// Frames of a busy poll; 0: none.
    busy_poll: u16,
    /// Connections do not look at the card's RSS.
    has_any_port: bool,
}

impl Wanted {
    fn of(text: Option<&str>) -> Result<Wanted, DeviceError> {
        let mut words = text.unwrap_or_default().split(',');
        let mut wanted = Wanted {
            modes: Mode::wanted(words.next().filter(|mode| !mode.is_empty()))?,
            busy_poll: 0,
            has_any_port: false,
        };
        for word in words {
            let frames = word.strip_prefix("busy=").map(str::parse);
            match (word, frames) {
                ("any-port", _) => wanted.has_any_port = true,
                (_, Some(Ok(frames))) => wanted.busy_poll = frames,
                _ => {
                    return Err(DeviceError::Unsuitable(format!(
                        "xdp: \"{word}\" is no option; there are: busy=N, any-port"
                    )));
                }
            }
        }
        Ok(wanted)
    }
}

/// The row of the table.
pub(crate) struct Xdp;

/// The back end's own part of a slot's parameters.
#[derive(Debug, Serialize, Deserialize)]
struct XdpParams {
    ring: RingParams,
    /// `None`: the slot has the packet socket alone.
    socket: Option<SocketParams>,
    /// Spreading of flows over the card's queues, if the driver tells it.
    #[serde(default)]
    rss: Option<RssParams>,
}

impl Backend for Xdp {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "xdp",
            title: "interface",
            usage: "xdp (AF_XDP beside it)",
            takes_path: false,
            default_interface: None,
            capabilities: Capabilities {
                has_interface: true,
                has_neighbours: true,
                ..Capabilities::NONE
            },
        }
    }

    fn open(
        &self,
        description: &Description<'_>,
        steering: &Steering,
    ) -> Result<Opened, DeviceError> {
        let wanted = Wanted::of(description.argument)?;
        let link = iface::usable(description.interface)?;
        let (packets, ring) = open_members(&link, description, steering)?;
        let queues = queues(&link.name).min(u32::from(description.slots).saturating_sub(1));
        let mut refusal = None;
        for mode in wanted.modes {
            for shape in shapes(&link, *mode, wanted.busy_poll) {
                match Attached::open(&link, steering, (*mode, shape), queues) {
                    Ok(attached) => {
                        let rss = rss(&link.name, &wanted);
                        return Ok(attached.opened(&link, packets, (ring, &rss)));
                    }
                    Err(error) => refusal = refusal.or(Some(error)),
                }
            }
        }
        Err(refusal.unwrap_or(DeviceError::BadParameters("no XDP mode")))
    }

    /// Waits at both sockets; a slot without a queue has the first alone.
    fn waits_at(&self, _own: &serde_json::Value) -> Vec<usize> {
        vec![0, 1]
    }

    fn adopt(
        &self,
        parts: SlotParts,
        position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let params: XdpParams = parts.params.own()?;
        let Some(shape) = params.socket else {
            let [fd] = SlotParts::descriptors(parts.fds)?;
            let slot = PacketSlot::from_fd(fd, &parts.params.link, params.ring, position)?;
            return Ok(Box::new(slot));
        };
        let [fd, socket, memory] = SlotParts::descriptors(parts.fds)?;
        let packet = PacketSlot::from_fd(fd, &parts.params.link, params.ring, position)?;
        let failed = |source| DeviceError::System {
            doing: "mapping the rings of an AF_XDP socket",
            source,
        };
        let socket = Socket::adopt(socket, memory, shape).map_err(failed)?;
        let map = params.rss.as_ref().and_then(RssParams::map);
        Ok(Box::new(XdpSlot::new(packet, socket, map).map_err(failed)?))
    }
}

/// The program on the interface and the sockets of its queues.
struct Attached {
    link: OwnedFd,
    sockets: Vec<(OwnedFd, OwnedFd)>,
    shape: SocketParams,
    mode: Mode,
}

impl Attached {
    fn open(
        link: &KernelInterface,
        steering: &Steering,
        (mode, mut shape): (Mode, SocketParams),
        queues: u32,
    ) -> Result<Attached, DeviceError> {
        let failed = |source| system("creating the map of AF_XDP sockets", source);
        let map = bpf::create_map("slip_sockets", bpf::MAP_XSK, 4, 4, queues.max(1), 0);
        let map = map.map_err(failed)?;
        let place = Place {
            maps: maps(steering)?,
            sockets: map.as_fd(),
            len_max: shape.len_max(),
        };
        let held = match mode {
            Mode::Generic => place.attach(link, mode, None)?,
            Mode::Native | Mode::ZeroCopy => {
                let with_tags = |function| place.attach(link, mode, Some(function)).ok();
                // An older kernel, or a driver that tells no tags.
                match redirect::tag_function().and_then(with_tags) {
                    Some(held) => held,
                    None => place.attach(link, mode, None)?,
                }
            }
        };
        let mut sockets = Vec::new();
        for queue in 0..queues {
            let (socket, memory) = open_socket(link, queue, mode, &mut shape)?;
            bpf::update_fd(map.as_fd(), queue, socket.as_fd()).map_err(failed)?;
            sockets.push((socket, memory));
        }
        Ok(Attached {
            link: held,
            sockets,
            shape,
            mode,
        })
    }

    fn opened(
        self,
        link: &KernelInterface,
        packets: Vec<OwnedFd>,
        (ring, rss): (RingParams, &Result<Rss, String>),
    ) -> Opened {
        let delivery = Some(delivery(self.sockets.len(), &self.shape, rss));
        let mut sockets = self.sockets.into_iter().zip(0u16..);
        let slots = packets.into_iter().enumerate().map(|(slot, packet)| {
            let has_queue = slot >= SLOT_OF_FIRST_QUEUE as usize;
            match has_queue.then(|| sockets.next()).flatten() {
                Some(((socket, memory), queue)) => {
                    let rss = rss.as_ref().ok().map(|rss| RssParams {
                        key: rss.key.to_vec(),
                        is_symmetric: rss.input == Input::Symmetric,
                        table: rss.table.clone(),
                        queue,
                    });
                    let params = XdpParams {
                        ring,
                        socket: Some(self.shape),
                        rss,
                    };
                    (vec![packet, socket, memory], own_value(&params))
                }
                None => {
                    let params = XdpParams {
                        ring,
                        socket: None,
                        rss: None,
                    };
                    (vec![packet], own_value(&params))
                }
            }
        });
        Opened {
            index: link.index,
            name: link.name.clone(),
            link: shared_link(link),
            slots: slots.collect(),
            held: vec![self.link],
            needs_ingress_drop: true,
            mode: Some(match self.shape.busy_poll {
                0 => self.mode.name().to_owned(),
                frames => format!("{},busy={frames}", self.mode.name()),
            }),
            delivery,
        }
    }
}

/// Maps and limits of the program on an interface.
struct Place<'a> {
    maps: Maps<'a>,
    sockets: BorrowedFd<'a>,
    len_max: u32,
}

impl Place<'_> {
    /// Attaches the program for as long as the result is held.
    fn attach(
        &self,
        link: &KernelInterface,
        mode: Mode,
        tag_function: Option<u32>,
    ) -> Result<OwnedFd, DeviceError> {
        let code = redirect::redirect(self.maps, self.sockets, self.len_max, tag_function);
        let kind = match link.mtu > MTU_IN_ONE {
            true => bpf::PROG_XDP | bpf::PROG_IN_PIECES,
            false => bpf::PROG_XDP,
        };
        let extras = bpf::Extras {
            functions: None,
            device: tag_function.map_or(0, |_| link.index),
        };
        let program = load_program_with("slip_xdp", kind, bpf::ATTACH_XDP, &code, extras)?;
        let flags = match mode {
            Mode::Native | Mode::ZeroCopy => bpf::XDP_NATIVE,
            Mode::Generic => bpf::XDP_GENERIC,
        };
        let held = bpf::link_xdp(program.as_fd(), link.index, flags);
        held.map_err(|source| refused(link, mode, source))
    }
}

fn rss(name: &str, wanted: &Wanted) -> Result<Rss, String> {
    if wanted.has_any_port {
        return Err("--xdp-any-port is given".to_owned());
    }
    let ethtool = Ethtool::new().map_err(|error| error.to_string())?;
    ethtool.rss(name).map_err(|reason| reason.to_string())
}

/// Says how frames and flows come to the queues of AF_XDP sockets.
fn delivery(queues: usize, shape: &SocketParams, rss: &Result<Rss, String>) -> String {
    let flows = match (queues, rss) {
        (..=1, _) => String::new(),
        (_, Ok(rss)) => format!(
            "; connections take ports that the card's RSS ({}Toeplitz, {} entries) puts into \
             their engine's queue, as long as answers come there",
            match rss.input {
                Input::Plain => "",
                Input::Symmetric => "symmetric ",
            },
            rss.table.len()
        ),
        (_, Err(reason)) => format!(
            "; {reason}, so connections take any port, and flows that come to another engine's \
             queue arrive by AF_PACKET"
        ),
    };
    let pieces = match shape.len_in_pieces {
        0 => String::new(),
        len => format!(", longer ones, up to {len} bytes, in several (multi-buffer)"),
    };
    let checksums = match shape.has_metadata {
        true => ", the kernel completes checksums",
        false => "",
    };
    format!(
        "{queues} with AF_XDP{flows}; need_wakeup, frames in chunks of {} bytes{pieces}{checksums}",
        shape.chunk
    )
}

fn system(doing: &'static str, source: io::Error) -> DeviceError {
    DeviceError::system(doing, "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF", source)
}

fn refused(link: &KernelInterface, mode: Mode, source: io::Error) -> DeviceError {
    let name = &link.name;
    match source.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => DeviceError::Unsuitable(format!(
            "another XDP program is on interface \"{name}\" already; \
             remove it, or use --device packet"
        )),
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) if mode != Mode::Generic => {
            DeviceError::Unsuitable(format!(
                "the driver of interface \"{name}\" takes no XDP program as it is set up; \
                 use --xdp-mode generic or --device packet"
            ))
        }
        _ => system("attaching an XDP program to the interface", source),
    }
}

/// Returns the shapes to try, in order: chunks that an ordinary frame fits into, and the needs of
/// this kind of interface. With a large MTU frames lie in several chunks, unless the kernel is
/// older.
fn shapes(link: &KernelInterface, mode: Mode, busy_poll: u16) -> Vec<SocketParams> {
    let chunk = match link.mtu + LINK_HEADER + RX_HEADROOM <= CHUNK_MIN {
        true => CHUNK_MIN,
        false => CHUNK_MAX,
    };
    let in_one = SocketParams {
        chunk,
        // Drivers that send from our memory do not say whether they complete checksums.
        has_metadata: mode != Mode::ZeroCopy,
        has_partial: !is_hardware(&link.name),
        is_zero_copy: mode == Mode::ZeroCopy,
        busy_poll,
        len_in_pieces: 0,
    };
    let in_pieces = SocketParams {
        len_in_pieces: link.mtu + LINK_HEADER,
        ..in_one
    };
    match link.mtu > MTU_IN_ONE {
        true => vec![in_pieces, in_one],
        false => vec![in_one],
    }
}

/// Returns whether frames come from outside of the machine: their checksums are whole.
fn is_hardware(name: &str) -> bool {
    let driver = Ethtool::new().and_then(|ethtool| ethtool.driver(name));
    driver.is_ok_and(|driver| !driver.bus.is_empty() && driver.name != "virtio_net")
}

/// Receive queues of an interface; a driver that does not say has one.
fn queues(name: &str) -> u32 {
    let queues = Ethtool::new().and_then(|ethtool| ethtool.receive_queues(name));
    queues.unwrap_or(1).max(1)
}

fn open_socket(
    link: &KernelInterface,
    queue: u32,
    mode: Mode,
    shape: &mut SocketParams,
) -> Result<(OwnedFd, OwnedFd), DeviceError> {
    let mut tries = 0;
    loop {
        match try_socket(link, queue, mode, shape) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < BIND_TRIES => {
                tries += 1;
                std::thread::sleep(BIND_PAUSE);
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(DeviceError::Unsuitable(format!(
                    "queue {queue} of interface \"{}\" has an AF_XDP socket of another program",
                    link.name
                )));
            }
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Err(DeviceError::Unsuitable(format!(
                    "the driver of interface \"{}\" has no XDP mode \"{}\"",
                    link.name,
                    mode.name()
                )));
            }
            opened => return opened.map_err(|source| system("opening an AF_XDP socket", source)),
        }
    }
}

fn try_socket(
    link: &KernelInterface,
    queue: u32,
    mode: Mode,
    shape: &mut SocketParams,
) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("slipstack-frames", flags)?;
    let marks = TX_FRAMES as usize;
    rustix::fs::ftruncate(&file, (shape.frames_len() + marks) as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    let memory = Memory::map(&file, shape.frames_len(), marks)?;
    let socket = sys::socket()?;
    let fd = socket.as_fd();
    let metadata_len = if shape.has_metadata { METADATA_LEN } else { 0 };
    if let Err(error) = sys::register(fd, memory.range(), shape.chunk, metadata_len) {
        if !shape.has_metadata || error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        // A kernel before 6.8.
        shape.has_metadata = false;
        sys::register(fd, memory.range(), shape.chunk, 0)?;
    }
    sys::make_rings(fd, RX_FRAMES, TX_FRAMES)?;
    Socket::fill_first(fd, shape.chunk)?;
    let bound = match mode {
        Mode::ZeroCopy => sys::BIND_ZEROCOPY,
        Mode::Native | Mode::Generic => sys::BIND_COPY,
    } | match shape.len_in_pieces {
        0 => 0,
        _ => sys::BIND_IN_PIECES,
    };
    sys::bind(fd, link.index, queue, bound)?;
    if shape.busy_poll != 0 {
        sys::prefer_busy_poll(fd, shape.busy_poll)?;
    }
    Ok((socket, file))
}
