//! Builds an engine from a lease.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use slipstack_channel::control::net::NetworkState;
use slipstack_channel::control::{Descriptor, Reply, Request, SlotLease};
use slipstack_channel::{EngineEnd, EngineHandle, Placement, ProgramEnd};
use slipstack_config::Settings;
use slipstack_device::hooked::Hooked;
use slipstack_device::swap::Swap;
use slipstack_device::tee::{Plan, Tee};
use slipstack_device::{Device, SlotParams, SlotParts, Steering, open_slot};
use slipstack_engine::{
    Engine, InProcess, Instant, Interconnect, PortRange, Renewed, Role, Scatter, Setup, StackConfig,
};
use slipstack_keeper::{Inboxes, Neighbours, SlotWords};
use slipstack_mem::thread::thread_id;
use slipstack_mem::{Doorbell, Lock, PrivateFd, Region, now_ns};
use tracing::info;

use crate::door::random_u64;
use crate::error::Error;
use crate::link::KeeperClient;
use crate::queues::{HookMaker, Queues};
use crate::supervisor::{Keeper, NeighbourView};

/// Time for which an instance delays an ACK for the program's answer. It cannot tell a program that
/// is away from one that is about to answer, so it waits no longer than the in-process ticker does
/// (4 ms and the wake-up) where Linux waits for 40 ms.
const INSTANCE_DELAYED_ACK: Duration = Duration::from_millis(4);

/// A lease with its descriptors sorted.
struct Parts {
    lease: SlotLease,
    device: SlotParts,
    steering: Steering,
    words: SlotWords,
    inboxes: Inboxes,
    neighbours: Neighbours,
    claim: Option<PrivateFd>,
}

/// An engine on a slot of its own, with its doorbell.
pub struct Assembled {
    pub engine: Engine,
    pub bell: Doorbell,
    pub slot: u16,
    /// The engine's descriptors that must not outlive it in a process that has no engine.
    pub held: Vec<RawFd>,
}

/// The parts of an engine in a program that differ between its engines.
pub struct OwnEngine {
    pub link: Arc<KeeperClient>,
    /// The kernel's id of the thread that it is for.
    pub thread: u32,
    /// Bytes of its channel.
    pub region_len: usize,
}

/// Leases a slot and makes the engine of this process. Also returns [`Assembled::held`].
pub fn in_process(
    settings: &Settings,
    own: OwnEngine,
    hook: Option<&HookMaker>,
) -> Result<(EngineHandle, Vec<RawFd>), Error> {
    let OwnEngine {
        link,
        thread,
        region_len,
    } = own;
    let end = EngineEnd::create_of(region_len).map_err(Error::io("create the channel"))?;
    let region = end.region().clone();
    let program = ProgramEnd::open(region.clone()).map_err(Error::io("open the channel"))?;
    region
        .dont_fork()
        .map_err(Error::io("exclude the channel from children"))?;
    let place = EnginePlace {
        directory: region,
        placement: Placement::InProcess,
        thread,
    };
    let assembled = assemble_hooked(settings, &link, place, hook)?;
    let Assembled {
        mut engine,
        bell,
        slot,
        held,
    } = assembled;
    engine.attach_client(end, None);
    let welcome = link.welcome();
    let describe = format!("slot {slot} of {}", welcome.interface);
    let supervisor = Arc::new(Keeper { link, _claim: None });
    let driver =
        InProcess::new(engine, bell, supervisor).map_err(Error::io("start the engine's ticker"))?;
    Ok((
        EngineHandle {
            program,
            driver: Arc::new(driver),
            describe,
            core: core_of(&settings.cores, slot),
        },
        held,
    ))
}

/// The processor of a slot's engine: the slots of engines begin with 1.
fn core_of(cores: &[usize], slot: u16) -> Option<usize> {
    let at = usize::from(slot.saturating_sub(1));
    (cores.len() > 1).then(|| cores[at % cores.len()])
}

/// Leases a slot and makes an engine for the calling thread whose flows are listed in `directory`.
pub fn assemble(
    settings: &Settings,
    link: &Arc<KeeperClient>,
    directory: Region,
    placement: Placement,
) -> Result<Assembled, Error> {
    let place = EnginePlace {
        directory,
        placement,
        thread: thread_id(),
    };
    let assembled = assemble_hooked(settings, link, place, None)?;
    let (slot, device) = (assembled.slot, link.welcome().interface);
    info!(slot, device, "an engine has a slot");
    Ok(assembled)
}

/// The place of a new engine.
struct EnginePlace {
    /// Memory that lists its flows.
    directory: Region,
    placement: Placement,
    /// The kernel's id of the thread that drives it.
    thread: u32,
}

/// As [`assemble`], with a program that sees the frames before the engine does.
fn assemble_hooked(
    settings: &Settings,
    link: &Arc<KeeperClient>,
    place: EnginePlace,
    hook: Option<&HookMaker>,
) -> Result<Assembled, Error> {
    let (directory, placement, thread) = (place.directory, place.placement, place.thread);
    let (lease, fds) = match link.ask(&Request::LeaseSlot { thread }, &[])? {
        (Reply::Slot(lease), fds) => (*lease, fds),
        _ => return Err(Error::Confused),
    };
    let parts = sort(lease, fds)?;
    // The keeper gets the channel before the first frame, so that it can clean up after a crash.
    let fd = directory
        .try_clone_fd()
        .map_err(Error::io("share the channel"))?;
    link.register_region(fd.into())?;
    let slot = parts.lease.slot;
    let bell = parts.inboxes.bells().get(usize::from(slot));
    let bell = bell.cloned().ok_or(Error::Confused)?;
    // This process is notified of changes only since it leased the slot.
    let network = match link.ask(&Request::Network, &[])?.0 {
        Reply::Network(network) => Arc::new(*network),
        _ => return Err(Error::Confused),
    };
    let mut stack = stack_config(settings, &parts, &network);
    if placement == Placement::Instance {
        stack.tcp.delayed_ack = INSTANCE_DELAYED_ACK;
    }
    let position = parts.words.position(slot).ok_or(Error::Confused)?;
    let mut device = open_slot(parts.device, position)?;
    if let Some(path) = &settings.pcap {
        device = capture(device, path, (settings, &link.welcome().interface, slot))?;
    }
    let limits = parts.words.limits(slot);
    let queues = Queues::new(parts.words.clone(), parts.inboxes.clone(), slot);
    device = hooked(device, hook, &bell, queues);
    let interconnect = Interconnect::new(
        slot,
        parts.inboxes.region(),
        parts.inboxes.bells().to_vec(),
        parts.steering,
    )
    .ok_or(Error::Confused)?;
    let claim = parts.claim.as_ref().map(AsRawFd::as_raw_fd);
    let setup = Setup {
        stack,
        device,
        directory: Some(directory),
        interconnect: Some(interconnect),
        ports: Some(Box::new(Keeper {
            link: Arc::clone(link),
            _claim: parts.claim,
        })),
        neighbours: Some(Box::new(NeighbourView(parts.neighbours))),
    };
    let mut engine = Engine::new(setup, Instant(now_ns()));
    engine.share_limits(Arc::new(limits));
    engine.begin();
    let held = claim.into_iter().chain(engine.device_fds()).collect();
    Ok(Assembled {
        engine,
        bell,
        slot,
        held,
    })
}

fn stack_config(settings: &Settings, parts: &Parts, network: &Arc<NetworkState>) -> StackConfig {
    let (lease, link) = (&parts.lease, &parts.device.params.link);
    let mut seed = [0; 32];
    for chunk in seed.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random_u64().to_le_bytes());
    }
    let mut config = StackConfig {
        network: network.clone(),
        mac: lease.mac,
        tso_max: link.tso_max,
        has_udp_segmentation: link.udp_segmentation,
        role: Role::Engine,
        ephemeral: lease.ports,
        ports: PortRange {
            first: lease.port_pool.0,
            last: lease.port_pool.1,
        },
        scatter: Scatter::new(lease.port_pool, lease.sequence_key),
        seed,
        sequence_key: Some(lease.sequence_key),
        ..StackConfig::default()
    };
    settings.tune(&mut config);
    config
}

/// Processes and slots of the engines that have had a capture.
static CAPTURED: LazyLock<Lock<Vec<(u32, u16)>>> = LazyLock::new(Lock::default);

/// The end of the name of an engine's capture. A slot may be a process's again after it was given
/// back.
fn capture_suffix(slot: u16) -> String {
    let this = (std::process::id(), slot);
    let mut captured = CAPTURED.lock();
    let former = captured.iter().filter(|it| **it == this).count();
    captured.push(this);
    match former {
        0 => format!(".{}.{slot}", this.0),
        _ => format!(".{}.{slot}-{}", this.0, former + 1),
    }
}

/// Every engine writes a file of its own.
fn capture(
    device: Box<dyn Device>,
    path: &std::path::Path,
    (settings, interface, slot): (&Settings, &str, u16),
) -> Result<Box<dyn Device>, Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(capture_suffix(slot));
    let plan = Plan {
        path: name.into(),
        interface: interface.to_owned(),
        snaplen: settings.pcap_snaplen,
        file_size_max: settings.pcap_file_size.map(u64::from),
    };
    let tee = Tee::create(Swap::new(device), plan).map_err(Error::io("write the capture file"))?;
    Ok(Box::new(tee))
}

/// The device, with the program that sees its frames if there is one.
fn hooked(
    device: Box<dyn Device>,
    hook: Option<&HookMaker>,
    bell: &Doorbell,
    queues: Queues,
) -> Box<dyn Device> {
    match hook {
        Some(make) => {
            let device = Box::new(Swap::new(device));
            Box::new(Hooked::new(device, make(bell.clone(), queues)))
        }
        None => device,
    }
}

/// The slot of a device that has been opened again, from a lease that was asked for again.
///
/// `ports`: the positions of the interfaces whose rings are others now.
pub fn reopened((lease, fds): (SlotLease, Vec<OwnedFd>), ports: Vec<usize>) -> Option<Renewed> {
    let Parts {
        lease,
        mut device,
        words,
        ..
    } = sort(lease, fds).ok()?;
    Some(Box::new(move |numbers| {
        let mut numbers = numbers.iter();
        let renumbered = device.fds.into_iter().map(|fd| {
            let wanted = numbers.next();
            let moved = wanted.and_then(|it| rustix::io::fcntl_dupfd_cloexec(&fd, *it).ok());
            moved.unwrap_or(fd)
        });
        device.fds = renumbered.collect();
        let position = words.position(lease.slot)?;
        for port in ports {
            position.beside(port)?.rewind();
        }
        open_slot(device, position).ok()
    }))
}

fn sort(lease: SlotLease, fds: Vec<OwnedFd>) -> Result<Parts, Error> {
    if lease.descriptors.len() != fds.len() {
        return Err(Error::Confused);
    }
    let (mut words, mut inbox, mut neighbours, mut claim) = (None, None, None, None);
    let (mut device, mut maps, mut bells) = (Vec::new(), Vec::new(), Vec::new());
    for (role, fd) in lease.descriptors.iter().zip(fds) {
        match role {
            Descriptor::Device => device.push(fd),
            Descriptor::SteeringMap => maps.push(fd),
            Descriptor::Slots => words = Some(fd),
            Descriptor::Inbox => inbox = Some(fd),
            Descriptor::InboxDoorbell => bells.push(fd),
            Descriptor::Neighbours => neighbours = Some(fd),
            Descriptor::Claim => claim = Some(fd.into()),
            _ => return Err(Error::Confused),
        }
    }
    let (Some(words), Some(inbox), Some(neighbours)) = (words, inbox, neighbours) else {
        return Err(Error::Confused);
    };
    let params = SlotParams::from_text(&lease.params).ok_or(Error::Confused)?;
    let shared = "map the keeper's shared memory";
    let inboxes = Inboxes::open(inbox, bells).map_err(Error::io(shared))?;
    inboxes
        .region()
        .dont_fork()
        .map_err(Error::io("keep the inboxes from children"))?;
    // A third map is passed where a rule chooses engines.
    let chosen = if maps.len() > 2 { maps.pop() } else { None };
    let maps: [OwnedFd; 2] = maps.try_into().map_err(|_| Error::Confused)?;
    let mut steering = Steering::from_fds(maps)?;
    if let Some(flows) = chosen {
        steering = steering.with_chosen(flows);
    }
    Ok(Parts {
        lease,
        device: SlotParts {
            params,
            fds: device,
        },
        steering,
        words: SlotWords::open(words).map_err(Error::io(shared))?,
        inboxes,
        neighbours: Neighbours::open(neighbours).map_err(Error::io(shared))?,
        claim,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_leased_again_has_a_new_capture() {
        let pid = std::process::id();
        let names = [60_000, 60_001, 60_000, 60_000].map(capture_suffix);
        let expected = ["60000", "60001", "60000-2", "60000-3"];
        assert_eq!(names, expected.map(|it| format!(".{pid}.{it}")));
    }
}
