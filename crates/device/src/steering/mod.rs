//! Steering: the choice of the slot for a received frame.
//!
//! TCP and UDP to one of the stack's addresses are steered by the destination port: to the keeper's
//! slot 0, to one slot (ports leased to an engine for its own connections), or to a listener group,
//! whose 4096 buckets name the slot for each flow hash. Single flows that must not follow their
//! bucket are in the table of exceptions. Packets to be forwarded are spread over a group of their
//! own. All other frames go to slot 0, which is the keeper's: ARP, ICMP, fragments, and IPv6 with
//! extension headers.
//!
//! The table is an eBPF array mapped into memory, so that a change is a store. A slot that is not
//! alive is skipped in groups: the flow takes the next bucket of a fixed chain. This holds for
//! every segment and not only for SYNs, because the rest of a handshake must reach the slot that
//! its SYN reached. The keeper sets *alive* (leased, and not known to be dead); it is no heartbeat,
//! because an engine that sleeps for want of work has none.
//!
//! [`Steering::find_slot`] makes the same decision for frames that never leave the machine.

mod addresses;
mod frame;
pub(crate) mod hash;
pub(crate) mod layout;
mod load;
mod rates;
mod raw;
mod recent;
pub(crate) mod row;
mod rules;
mod sharing;
mod table;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};

use slipstack_wire::zone::plain_ip;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::rand::{GetRandomFlags, getrandom};
use slipstack_terms::Transport;

use crate::bpf::sys;
use crate::error::DeviceError;
use rules::Chosen;
use sharing::{chain, level, successor};
use slipstack_mem::PrivateFd;
use table::{Tables, Writer};

pub(crate) use load::{load_steering, maps};

pub use layout::{BUCKETS, GROUPS_MAX, OWN_MAX, SLOTS_MAX, TRANSIT_GROUP};
pub use recent::RecentFlows;
pub use row::{ROWS_MAX, Row};
pub use rules::Rule;

/// Exceptions at most; a further one is refused.
pub const EXCEPTIONS_MAX: u32 = 65_536;

/// Marks a port entry that names a slot, to distinguish slot 0 from no entry.
const SLOT_BIT: u16 = 0x4000;

/// Several slots, a bit for each.
pub type SlotSet = u128;
const _: () = assert!(SLOTS_MAX <= SlotSet::BITS as usize);

/// Offset of the entries of a protocol's ports.
fn ports_at(proto: Transport) -> usize {
    match proto {
        Transport::Tcp => layout::TCP_PORTS,
        Transport::Udp => layout::UDP_PORTS,
    }
}

/// The receiver of a port's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The port is not assigned: slot 0 refuses it.
    Keeper,
    /// The port belongs to one slot.
    Slot(u16),
    /// The slot that the listener group names for the flow.
    Group(u8),
}

/// A connection or a pair of UDP endpoints, seen from the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub proto: Transport,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// A bucket that a change of its group's slots hands to another slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub bucket: u16,
    pub from: u16,
    pub to: u16,
}

/// The steering tables of one device. The keeper writes them, engines hold a read-only view.
#[derive(Debug)]
pub struct Steering {
    tables: Tables,
    /// `None`: nothing is steered by the kernel, and there are no exceptions.
    exceptions: Option<PrivateFd>,
    /// `None`: new flows go by the hash.
    chosen: Option<Chosen>,
}

impl Steering {
    /// Fresh tables: no addresses, everything to slot 0, slot 0 alive. `rule`: what chooses engines
    /// for new flows in place of the hash.
    pub fn create(rule: Option<Rule>) -> Result<Steering, DeviceError> {
        let failed =
            |source| DeviceError::system("creating the steering tables", "CAP_BPF", source);
        let tables = Tables::create().map_err(failed)?;
        let exceptions = sys::create_map(
            "slip_flows",
            sys::MAP_HASH,
            sys::KEY_LEN as u32,
            4,
            EXCEPTIONS_MAX,
            sys::MAP_NO_PREALLOC,
        )
        .map_err(failed)?;
        let mut key = [0u8; 8];
        getrandom(&mut key, GetRandomFlags::empty()).map_err(|errno| failed(errno.into()))?;
        let steering = Steering {
            tables,
            exceptions: Some(exceptions.into()),
            chosen: rule.map(Chosen::create).transpose().map_err(failed)?,
        };
        steering.begin(u64::from_ne_bytes(key))?;
        Ok(steering)
    }

    /// Makes tables that no program of the kernel reads and that take no exceptions, for the
    /// steering of a simulated device.
    pub fn create_apart(hash_key: u64) -> Result<Steering, DeviceError> {
        let tables = Tables::create_apart().map_err(|source| {
            DeviceError::system("creating the steering tables", "memory", source)
        })?;
        let steering = Steering {
            tables,
            exceptions: None,
            chosen: None,
        };
        steering.begin(hash_key)?;
        Ok(steering)
    }

    fn begin(&self, hash_key: u64) -> Result<(), DeviceError> {
        let table = self.writable()?;
        table.u64(layout::HASH_KEY, hash_key);
        table.u8(layout::ALIVE, 1);
        Ok(())
    }

    /// Another view of the tables of [`Steering::create_apart`], which cannot write.
    pub fn reader(&self) -> Result<Steering, DeviceError> {
        let mirror = self.tables.read_only_mirror();
        let tables = mirror.and_then(Tables::open_read_only).map_err(|source| {
            DeviceError::system("opening the steering tables", "memory", source)
        })?;
        Ok(Steering {
            tables,
            exceptions: None,
            chosen: None,
        })
    }

    /// Opens an engine's view, from [`Steering::read_only_fds`].
    pub fn from_fds(fds: [OwnedFd; 2]) -> Result<Steering, DeviceError> {
        let [mirror, exceptions] = fds;
        let tables = Tables::open_read_only(mirror)
            .map_err(|_| DeviceError::BadParameters("this is not a steering table"))?;
        Steering::open(tables, exceptions)
    }

    fn open(tables: Tables, exceptions: OwnedFd) -> Result<Steering, DeviceError> {
        // A kernel that does not return the map's properties to unprivileged users will refuse
        // lookups in a wrong map.
        if let Ok(info) = sys::map_info(exceptions.as_fd())
            && (info.kind, info.key_len, info.value_len) != (sys::MAP_HASH, sys::KEY_LEN as u32, 4)
        {
            return Err(DeviceError::BadParameters(
                "this is not a map of exceptions",
            ));
        }
        Ok(Steering {
            tables,
            exceptions: Some(exceptions.into()),
            chosen: None,
        })
    }

    /// Descriptors to pass to an engine: it can look, and cannot write through them.
    pub fn read_only_fds(&self) -> Result<[OwnedFd; 2], DeviceError> {
        let failed = |source| {
            let doing = "making read-only handles of the steering tables";
            DeviceError::system(doing, "CAP_SYS_ADMIN", source)
        };
        let mirror = self.tables.read_only_mirror().map_err(failed)?;
        let exceptions = sys::read_only(self.exceptions_map()?).map_err(failed)?;
        Ok([mirror, exceptions])
    }

    /// The descriptors behind the keeper's view: table, exceptions, and the engines' copy of the
    /// table. `None` for an engine's.
    pub fn fds(&self) -> Option<[BorrowedFd<'_>; 3]> {
        let map = self.tables.map()?;
        let exceptions = self.exceptions.as_ref()?;
        Some([map, exceptions.as_fd(), self.tables.mirror_fd()])
    }

    fn exceptions_map(&self) -> Result<BorrowedFd<'_>, DeviceError> {
        let map = self.exceptions.as_ref().ok_or(DeviceError::ReadOnly)?;
        Ok(map.as_fd())
    }

    fn writable(&self) -> Result<Writer<'_>, DeviceError> {
        self.tables.writer().ok_or(DeviceError::ReadOnly)
    }

    /// The stack's addresses with the lengths of their prefixes, in place of the former ones at
    /// once. Frames to others go to slot 0.
    pub fn set_own(&self, addresses: &[(IpAddr, u8)]) -> Result<(), DeviceError> {
        let plain: Vec<(IpAddr, u8)> = addresses
            .iter()
            .map(|&(ip, len)| (plain_ip(ip), len))
            .collect();
        addresses::set(self.writable()?, self.tables.read(), &plain)
    }

    /// Returns whether the stack has this address.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        addresses::is_own(self.tables.read(), plain_ip(ip))
    }

    /// Returns whether the kernel has the same addresses: the ports of
    /// [`Steering::set_kernel_port`] are its.
    pub fn set_share(&self, is_shared: bool) -> Result<(), DeviceError> {
        self.set_flag(layout::FLAG_SHARE, is_shared)
    }

    /// Sets whether packets to this station for other addresses are accepted, by the slots of
    /// [`TRANSIT_GROUP`] or else slot 0.
    pub fn set_forward(&self, is_on: bool) -> Result<(), DeviceError> {
        self.set_flag(layout::FLAG_FORWARD, is_on)
    }

    /// Returns the slot that forwards a packet that is for neither us nor a group; both directions
    /// of a flow have the same. 0: forwarding is off, or no engine forwards.
    pub fn transit_slot(&self, ends: (SocketAddr, SocketAddr)) -> u16 {
        let table = self.tables.read();
        if table.load_u32(layout::FLAGS) & layout::FLAG_FORWARD == 0 {
            return 0;
        }
        let hash = hash::of_transit(table.load_u64(layout::HASH_KEY), ends.0, ends.1);
        self.group_slot(layout::TRANSIT_GROUP, (hash as usize % BUCKETS) as u16)
    }

    fn set_flag(&self, flag: u32, is_on: bool) -> Result<(), DeviceError> {
        let others = self.tables.read().load_u32(layout::FLAGS) & !flag;
        let flags = others | if is_on { flag } else { 0 };
        self.writable()?.u32(layout::FLAGS, flags);
        Ok(())
    }

    /// Returns whether packets to a port of a shared address are the kernel's. One store; flows
    /// with an exception do not follow it.
    pub fn set_kernel_port(
        &self,
        proto: Transport,
        port: u16,
        is_kernels: bool,
    ) -> Result<(), DeviceError> {
        let (at, bit) = kernel_bit(proto, port);
        let before = self.tables.read().load_u8(at);
        let after = if is_kernels {
            before | bit
        } else {
            before & !bit
        };
        if after != before {
            self.writable()?.u8(at, after);
        }
        Ok(())
    }

    /// Returns whether the kernel has the same addresses, and the port is its.
    pub fn is_kernel_port(&self, proto: Transport, port: u16) -> bool {
        let table = self.tables.read();
        let (at, bit) = kernel_bit(proto, port);
        table.load_u32(layout::FLAGS) & layout::FLAG_SHARE != 0 && table.load_u8(at) & bit != 0
    }

    /// One store: frames that arrive from now on follow it.
    pub fn set_port(&self, proto: Transport, port: u16, to: Port) -> Result<(), DeviceError> {
        self.set_ports(proto, port..=port, to)
    }

    pub fn set_ports(
        &self,
        proto: Transport,
        ports: RangeInclusive<u16>,
        to: Port,
    ) -> Result<(), DeviceError> {
        self.set_each(ports.map(|port| (proto, port, to)))
    }

    /// As [`Steering::set_port`], of many ports.
    pub fn set_each(
        &self,
        ports: impl Iterator<Item = (Transport, u16, Port)>,
    ) -> Result<(), DeviceError> {
        let table = self.writable()?;
        table.u64(layout::CHANGED, slipstack_mem::now_ns());
        for (proto, port, to) in ports {
            let entry = match to {
                Port::Keeper => 0,
                Port::Slot(slot) => check_slot(slot)? | SLOT_BIT,
                Port::Group(group) => u16::from(group) | layout::GROUP_BIT,
            };
            table.u16(ports_at(proto) + 2 * usize::from(port), entry);
        }
        Ok(())
    }

    /// Time at which ports or groups were last changed, CLOCK_MONOTONIC nanoseconds.
    pub fn changed_ns(&self) -> u64 {
        self.tables.read().load_u64(layout::CHANGED)
    }

    /// Returns the present receiver of a port.
    pub fn port(&self, proto: Transport, port: u16) -> Port {
        match self
            .tables
            .read()
            .load_u16(ports_at(proto) + 2 * usize::from(port))
        {
            0 => Port::Keeper,
            entry if entry & layout::GROUP_BIT != 0 => Port::Group(entry as u8),
            entry => Port::Slot(entry & (SLOTS_MAX as u16 - 1)),
        }
    }

    /// Spreads a group evenly over these slots, moving as few buckets as that takes; none = slot 0.
    pub fn set_group(&self, group: u8, slots: &[u16]) -> Result<(), DeviceError> {
        let even: Vec<(u16, u16)> = slots.iter().map(|slot| (*slot, 1)).collect();
        self.share_group(group, &even)
    }

    /// As [`Steering::set_group`], each slot with buckets in proportion to its share.
    pub fn share_group(&self, group: u8, shares: &[(u16, u16)]) -> Result<(), DeviceError> {
        let table = self.writable()?;
        table.u64(layout::CHANGED, slipstack_mem::now_ns());
        for moved in self.group_moves(group, shares)? {
            // Slots are below SLOTS_MAX.
            table.u8(bucket_at(group, u32::from(moved.bucket)), moved.to as u8);
        }
        let slots: Vec<u16> = shares.iter().map(|(slot, _)| *slot).collect();
        self.set_members(group, &slots)
    }

    /// Returns the moves that [`Steering::share_group`] would make: flows of these buckets that are
    /// to stay where they are need exceptions first.
    pub fn group_moves(&self, group: u8, shares: &[(u16, u16)]) -> Result<Vec<Move>, DeviceError> {
        let wanted: &[(u16, u16)] = if shares.is_empty() { &[(0, 1)] } else { shares };
        let mut targets = [0; SLOTS_MAX];
        let all: usize = wanted.iter().map(|(_, share)| usize::from(*share)).sum();
        for &(slot, share) in wanted {
            let buckets = BUCKETS * usize::from(share) / all.max(1);
            targets[usize::from(check_slot(slot)?)] = buckets;
        }
        let old: Vec<u8> = (0..BUCKETS as u32)
            .map(|bucket| {
                self.tables.read().load_u8(bucket_at(group, bucket)) & (SLOTS_MAX as u8 - 1)
            })
            .collect();
        let mut new = old.clone();
        for (bucket, slot) in new.iter_mut().enumerate() {
            if targets[usize::from(*slot)] == 0 {
                *slot = successor(&old, bucket, &targets).unwrap_or(u8::MAX);
            }
        }
        level(&mut new, &targets);
        let moved = old.iter().zip(&new).zip(0u16..);
        Ok(moved
            .filter(|((from, to), _)| from != to)
            .map(|((&from, &to), bucket)| Move {
                bucket,
                from: u16::from(from),
                to: u16::from(to),
            })
            .collect())
    }

    /// Returns whether the slot takes part in groups. One store.
    pub fn set_alive(&self, slot: u16, is_alive: bool) -> Result<(), DeviceError> {
        let at = layout::ALIVE + usize::from(check_slot(slot)?);
        self.writable()?.u8(at, u8::from(is_alive));
        Ok(())
    }

    pub fn is_alive(&self, slot: u16) -> bool {
        let slot = usize::from(slot) % SLOTS_MAX;
        self.tables.read().load_u8(layout::ALIVE + slot) != 0
    }

    /// Assigns single flows to a slot whatever their port's entry. Costs a system call per flow.
    pub fn add_exceptions(&self, flows: &[(Flow, u16)]) -> Result<(), DeviceError> {
        for (flow, slot) in flows {
            self.add_exception(flow, check_slot(*slot)?)?;
        }
        Ok(())
    }

    /// Leaves single flows to the kernel, which has the same addresses, whatever their port's
    /// entry.
    pub fn leave_to_kernel(&self, flows: &[Flow]) -> Result<(), DeviceError> {
        for flow in flows {
            self.add_exception(flow, layout::KERNEL_SLOT)?;
        }
        Ok(())
    }

    fn add_exception(&self, flow: &Flow, slot: u16) -> Result<(), DeviceError> {
        let table = self.writable()?;
        let key = key_of(flow);
        let map = self.exceptions_map()?;
        let is_new = sys::lookup(map, &key).is_err();
        if is_new {
            self.count_in(table, flow);
        }
        if let Err(source) = sys::update(map, &key, slot.into()) {
            if is_new {
                self.count_out(table, flow);
            }
            let what = "adding an exception to the steering";
            return Err(DeviceError::system(what, "CAP_BPF", source));
        }
        if is_new {
            let count = self.tables.read().load_u32(layout::EXCEPTIONS);
            table.u32(layout::EXCEPTIONS, count + 1);
        }
        self.note_change(table, flow);
        Ok(())
    }

    /// Lets a flow follow its port again. That there is no such exception is no error.
    pub fn remove_exception(&self, flow: &Flow) -> Result<(), DeviceError> {
        let table = self.writable()?;
        match sys::delete(self.exceptions_map()?, &key_of(flow)) {
            Ok(()) => {
                let count = self.tables.read().load_u32(layout::EXCEPTIONS);
                table.u32(layout::EXCEPTIONS, count.saturating_sub(1));
                self.count_out(table, flow);
                Ok(())
            }
            Err(source) if source.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            Err(source) => Err(DeviceError::system(
                "removing an exception from the steering",
                "CAP_BPF",
                source,
            )),
        }
    }

    /// Number of exceptions.
    pub fn exceptions(&self) -> u32 {
        self.tables.read().load_u32(layout::EXCEPTIONS)
    }

    /// The bucket of a flow in any group.
    pub fn bucket(&self, local: SocketAddr, remote: SocketAddr) -> u16 {
        let key = self.tables.read().load_u64(layout::HASH_KEY);
        (hash::of_flow(key, local, remote) as usize % BUCKETS) as u16
    }

    /// Returns the slot that receives packets from `remote` to `local`, by the rules for received
    /// frames.
    pub fn find_slot(&self, proto: Transport, local: SocketAddr, remote: SocketAddr) -> u16 {
        if let Some(slot) = self.find_exception(proto, local, remote) {
            return slot;
        }
        self.find_by_port(&Flow {
            proto,
            local,
            remote,
        })
    }

    /// As [`Steering::find_slot`] without the exceptions.
    pub fn find_by_port(&self, flow: &Flow) -> u16 {
        match self.port(flow.proto, flow.local.port()) {
            Port::Keeper => 0,
            Port::Slot(slot) => slot,
            Port::Group(group) => self
                .find_chosen(flow)
                .unwrap_or_else(|| self.group_slot(group, self.bucket(flow.local, flow.remote))),
        }
    }

    /// The slot of a flow that has an entry of its own; 0 if that is the kernel.
    pub fn find_exception(
        &self,
        proto: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<u16> {
        let flow = Flow {
            proto,
            local,
            remote,
        };
        if self.exceptions() == 0 || self.count_near(&flow) == 0 {
            return None;
        }
        let slot = sys::lookup(self.exceptions_map().ok()?, &key_of(&flow)).ok()?;
        // The kernel's are none of those that stay on the machine.
        Some(check_slot(slot as u16).unwrap_or(0))
    }

    /// Returns the slots of all engines that serve a port, as bits: each gets multicast datagrams.
    pub fn find_slots(&self, proto: Transport, port: u16) -> SlotSet {
        match self.port(proto, port) {
            Port::Keeper | Port::Slot(0) => 0,
            Port::Slot(slot) => 1 << slot,
            Port::Group(group) => {
                let table = self.tables.read();
                (0..BUCKETS as u32)
                    .map(|bucket| table.load_u8(bucket_at(group, bucket)))
                    .fold(0, |all, slot| all | 1 << (slot & (SLOTS_MAX as u8 - 1)))
                    & !1
            }
        }
    }

    /// The slot of a bucket, passing over slots that are not alive.
    pub fn group_slot(&self, group: u8, bucket: u16) -> u16 {
        chain(u32::from(bucket))
            .map(|bucket| u16::from(self.tables.read().load_u8(bucket_at(group, bucket))))
            .map(|slot| slot & (SLOTS_MAX as u16 - 1))
            .find(|&slot| self.is_alive(slot))
            .unwrap_or(0)
    }

    /// Tells programs that outlive their keeper that this one lives.
    pub(crate) fn beat(&self, now_ns: u64) {
        if let Some(table) = self.tables.writer() {
            table.u64(layout::HEARTBEAT, now_ns);
        }
    }
}

/// The place of a port among the kernel's, and its bit there.
fn kernel_bit(proto: Transport, port: u16) -> (usize, u8) {
    let of_proto = match proto {
        Transport::Tcp => layout::KERNEL_TCP,
        Transport::Udp => layout::KERNEL_UDP,
    };
    (of_proto + usize::from(port / 8), 1 << (port % 8))
}

/// The byte of a set of slots, and the bit there.
fn slot_bit(slot: u16) -> (usize, u8) {
    (usize::from(slot) / 8 % (SLOTS_MAX / 8), 1 << (slot % 8))
}

fn check_slot(slot: u16) -> Result<u16, DeviceError> {
    if usize::from(slot) < SLOTS_MAX {
        return Ok(slot);
    }
    Err(DeviceError::OutOfRange {
        what: "slot",
        value: usize::from(slot),
    })
}

fn bucket_at(group: u8, bucket: u32) -> usize {
    layout::GROUPS + usize::from(group) * BUCKETS + bucket as usize % BUCKETS
}

/// The key of the exceptions: the words of a received packet's headers, IPv4 addresses in the first
/// four bytes of their places.
fn key_of(flow: &Flow) -> sys::Key {
    let mut key = [0; sys::KEY_LEN];
    let mut put = |at: usize, ip: IpAddr| match ip {
        IpAddr::V4(ip) => key[at..at + 4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => key[at..at + 16].copy_from_slice(&ip.octets()),
    };
    put(0, plain_ip(flow.remote.ip()));
    put(16, plain_ip(flow.local.ip()));
    key[32..34].copy_from_slice(&flow.remote.port().to_be_bytes());
    key[34..36].copy_from_slice(&flow.local.port().to_be_bytes());
    key[36] = flow.proto.number();
    key
}
