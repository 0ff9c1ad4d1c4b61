//! Layout of the one value of the steering table.
//!
//! ```text
//! 0        header: count of exceptions, flags, hash key, heartbeat, half in use, rates
//! 128      one byte per slot: 1 = alive
//! 4096     TCP ports   65,536 × u16: 0 = the keeper's slot, n = slot n, 0x8000 | g = group g
//! 135168   UDP ports   the same
//! 266240   groups      256 × 4096 × u8: the slot of each bucket
//! 1314816  kernel's ports, a bit each: 8192 bytes of TCP, 8192 of UDP
//! 1331200  members     256 × 256 bytes: the slots of each group, see [`MEMBERS`]
//! 1396736  turns       256 × u32: how many flows of each group a rule has given out
//! 1397760  versions    4096 × u64: exceptions of each bucket (20 bits), and how often one changed
//! 2097152  addresses   two halves of 1 MiB, of which one is in use: see `addresses.rs`
//! ```

/// Flows in the exceptions map (u32).
pub(crate) const EXCEPTIONS: usize = 0;
/// [`FLAG_SHARE`] (u32).
pub(crate) const FLAGS: usize = 4;
/// Key of the flow hash (u64).
pub(crate) const HASH_KEY: usize = 8;
/// Last time the keeper was alive, CLOCK_MONOTONIC nanoseconds (u64).
pub(crate) const HEARTBEAT: usize = 16;
/// Time of the last change of ports, CLOCK_MONOTONIC nanoseconds (u64).
pub(crate) const CHANGED: usize = 24;
/// Which half of the addresses is in use: 0 or 1 (u32).
pub(crate) const HALF_IN_USE: usize = 32;
/// Packets a second that go to the kernel, of each of [`RATES`] classes; 0 = no limit (u32 each).
pub(crate) const RATE_LIMITS: usize = 36;
/// The second that is running, and its packets (u64 each), of each class. Programs write here.
pub(crate) const RATE_STATES: usize = 64;
/// Classes: ARP and multicast; the rest; both together.
pub(crate) const RATES: usize = 3;
pub(crate) const ALIVE: usize = 128;
pub(crate) const TCP_PORTS: usize = 4096;
pub(crate) const UDP_PORTS: usize = TCP_PORTS + 2 * 65_536;
pub(crate) const GROUPS: usize = UDP_PORTS + 2 * 65_536;
/// On shared addresses: one bit for each TCP port that is the kernel's, the same of UDP behind it.
pub(crate) const KERNEL_TCP: usize = GROUPS + GROUPS_MAX * BUCKETS;
pub(crate) const KERNEL_UDP: usize = KERNEL_TCP + 65_536 / 8;
/// The slots of each group for rules that count them ([`MEMBERS_LEN`] bytes each): a bit for each
/// slot, their number at [`MEMBERS_COUNT`], and their list from [`MEMBERS_LIST`] on.
pub(crate) const MEMBERS: usize = KERNEL_UDP + 65_536 / 8;
pub(crate) const MEMBERS_LEN: usize = 256;
pub(crate) const MEMBERS_COUNT: usize = SLOTS_MAX / 8;
pub(crate) const MEMBERS_LIST: usize = 32;
/// Programs write here.
pub(crate) const TURNS: usize = MEMBERS + GROUPS_MAX * MEMBERS_LEN;
/// Number of the exceptions of flows of each bucket (the low 20 bits), and of their changes, for
/// engines that remember them (u64 each).
pub(crate) const VERSIONS: usize = TURNS + 4 * GROUPS_MAX;
pub(crate) const ADDRESSES: usize = 2 << 20;
pub(crate) const LEN: usize = ADDRESSES + 2 * HALF_LEN;

/// Length of a half, and its contents: the multiplier of its hash (u64), and the shift of the
/// product that gives the place of an address (u64).
pub(crate) const HALF_LEN: usize = 1 << 20;
pub(crate) const MULTIPLIER: usize = 0;
pub(crate) const SHIFT: usize = 8;
/// The stack's IPv4 addresses in network order, 0 = none (u32 each).
pub(crate) const OWN: usize = 4096;
/// The broadcast addresses of their networks.
pub(crate) const BROADCAST: usize = OWN + 4 * (PLACES_MAX + PLACES_TRIED);
/// The stack's IPv6 addresses in network order, all zero = none (16 bytes each).
pub(crate) const OWN6: usize = BROADCAST + 4 * (PLACES_MAX + PLACES_TRIED);

/// The kernel uses the same addresses: ports whose bits are set belong to it.
pub(crate) const FLAG_SHARE: u32 = 1;
/// Packets for others are passed on.
pub(crate) const FLAG_FORWARD: u32 = 2;

/// The slot of an exception whose flow is the kernel's.
pub(crate) const KERNEL_SLOT: u16 = 0xffff;
/// Marks a port entry that names a group.
pub(crate) const GROUP_BIT: u16 = 0x8000;

/// Slots of one device at most; slot numbers fit the alive bytes and a bucket.
pub const SLOTS_MAX: usize = 128;
/// Listener groups of one device at most.
pub const GROUPS_MAX: usize = 256;
/// The group of the slots that pass packets for others on.
pub const TRANSIT_GROUP: u8 = (GROUPS_MAX - 1) as u8;
/// Buckets of a group.
pub const BUCKETS: usize = 4096;
/// Addresses of each family that a stack has at most.
pub const OWN_MAX: usize = 8192;
/// Places of a set of addresses: a power of two from 64 up to this.
pub(crate) const PLACES_MAX: usize = 32_768;
/// Places where an address may be, from the one that its hash names.
pub(crate) const PLACES_TRIED: usize = 24;

/// Buckets that are tried for a living slot, the flow's own included.
pub(crate) const PROBES: usize = 16;
/// Distance of the buckets that are tried one after the other; odd, so that the chain from any
/// bucket visits all.
pub(crate) const PROBE_STEP: u32 = 1361;

const _: () = assert!(ALIVE + SLOTS_MAX <= TCP_PORTS && VERSIONS + 8 * BUCKETS <= ADDRESSES);
const _: () = assert!(MEMBERS_LIST + SLOTS_MAX <= MEMBERS_LEN && MEMBERS_COUNT < MEMBERS_LIST);
const _: () = assert!(RATE_LIMITS + 4 * RATES <= RATE_STATES);
const _: () = assert!(RATE_STATES + 16 * RATES <= ALIVE);
const _: () = assert!(OWN6 + 16 * (PLACES_MAX + PLACES_TRIED) <= HALF_LEN);
