//! The steering program (which slot?), its counterpart for AF_XDP (is it for the slot of its own
//! queue?), and the parts shared with the other programs. All of them read the steering table.
//!
//! The programs are assembled here and not compiled and loaded by a library: that would need clang
//! or a nightly compiler where Slipstack is built, and the programs share their layout and hash
//! with the code that writes the tables (`docs/adr/0022-code-that-stays-by-hand.md`).

use std::os::fd::BorrowedFd;

use super::asm::{Alu, Helper, If, Label, Program, Reg, Width};
use super::rules::{self, Chooser, RuleCode};
use super::transit;
use crate::steering::hash;
use crate::steering::layout;

use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// `protocol` and `pkt_type` of `struct __sk_buff`, and the type of frames to this station.
const SKB_PROTOCOL: i16 = 16;
pub(super) const SKB_KIND: i16 = 4;
pub(super) const KIND_HOST: i32 = 0;
/// EtherTypes in memory order.
pub(super) const ETHERTYPE_IPV4: i32 = 0x0008;
pub(super) const ETHERTYPE_IPV6: i32 = 0xdd86;
const ETHERTYPE_TAG: i32 = 0x0081;
const ETHERTYPE_PROVIDER_TAG: i32 = 0xa888;
const TAG_LEN: i32 = 4;
/// Any fragment: more to come, or not the first.
const FRAGMENT_BITS: i32 = 0xff3f;

const TCP: i32 = 6;
pub(super) const UDP: i32 = 17;

/// Places of the IPv4 header, the ports and the key of the exceptions map on the BPF stack.
pub(super) const IP: i16 = -32;
pub(super) const IP_FRAGMENT: i16 = IP + 6;
pub(super) const IP_PROTOCOL: i16 = IP + 9;
pub(super) const IP_SOURCE: i16 = IP + 12;
pub(super) const IP_DESTINATION: i16 = IP + 16;
pub(super) const PORTS: i16 = -8;
pub(super) const KEY: i16 = -80;
/// Place of the IPv6 header on the stack: its addresses are at multiples of eight.
pub(super) const IP6: i16 = -128;
pub(super) const IP6_NEXT_HEADER: i16 = IP6 + 6;
pub(super) const IP6_SOURCE: i16 = IP6 + 8;
pub(super) const IP6_DESTINATION: i16 = IP6 + 24;
pub(super) const IP6_LEN: i32 = 40;

/// `rx_queue_index` of `struct xdp_md`.
const XDP_QUEUE: i16 = 16;
/// The frame goes on to the kernel.
const XDP_PASS: i32 = 2;
/// The keeper's slot has no queue of its own.
pub(crate) const SLOT_OF_FIRST_QUEUE: i32 = 1;

/// The header on the BPF stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// Which hook the code is for.
#[derive(Clone, Copy)]
pub(super) enum Hook<'a> {
    /// The context is a `struct __sk_buff`, and the answer is the slot.
    Skb,
    /// The context is a `struct xdp_md`, and a frame of the slot of its own queue goes to the
    /// socket of that queue in this map.
    Xdp(BorrowedFd<'a>),
}

/// The maps of the steering.
#[derive(Clone, Copy)]
pub(crate) struct Maps<'a> {
    pub(crate) table: BorrowedFd<'a>,
    pub(crate) exceptions: BorrowedFd<'a>,
    /// `None`: new flows go by the hash.
    pub(crate) chooser: Option<Chooser<'a>>,
}

/// A program's instructions.
pub(crate) struct Code {
    pub(crate) instructions: Vec<u64>,
    /// The first instruction of its own function, if it has one.
    pub(crate) function_at: Option<usize>,
}

/// Emits code for a network header `l3` bytes into the packet.
pub(super) struct Emitter<'a> {
    pub(super) code: Program,
    maps: Maps<'a>,
    pub(super) l3: i32,
    pub(super) hook: Hook<'a>,
    /// The function that asks another program.
    asking: Option<Label>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(maps: Maps<'a>, l3: i32) -> Emitter<'a> {
        let mut code = Program::default();
        code.alu_reg(Alu::Mov, R6, R1);
        let hook = Hook::Skb;
        Emitter {
            code,
            maps,
            l3,
            hook,
            asking: None,
        }
    }

    /// The function that asks the rule's program.
    pub(super) fn asking(&mut self) -> Label {
        *self.asking.get_or_insert_with(|| self.code.label())
    }

    /// The whole program.
    fn finish(mut self) -> Code {
        let mut function_at = None;
        if let (Some(label), Some(chooser)) = (self.asking, self.maps.chooser)
            && let RuleCode::Program(programs) = chooser.rule
        {
            function_at = Some(self.code.here());
            self.code.bind(label);
            rules::emit_ask(&mut self.code, programs);
        }
        Code {
            instructions: self.code.finish(),
            function_at,
        }
    }

    /// Ends with the slot in R0.
    pub(super) fn leave(&mut self) {
        if let Hook::Xdp(sockets) = self.hook {
            let code = &mut self.code;
            let ours = code.label();
            code.load(Width::B4, R1, R6, XDP_QUEUE);
            code.alu_reg(Alu::Mov, R2, R1);
            code.alu(Alu::Add, R2, SLOT_OF_FIRST_QUEUE);
            code.jump_if_reg(If::Eq, R0, R2, ours);
            code.exit_with(XDP_PASS);
            code.bind(ours);
            code.alu_reg(Alu::Mov, R2, R1);
            code.load_map(R1, sockets);
            // The answer where the queue has no socket.
            code.alu(Alu::Mov, R3, XDP_PASS);
            code.call(Helper::RedirectMap);
        }
        self.code.exit();
    }

    /// Ends with the keeper's slot.
    pub(super) fn leave_to_keeper(&mut self) {
        self.code.exit_with(match self.hook {
            Hook::Skb => 0,
            Hook::Xdp(_) => XDP_PASS,
        });
    }

    pub(super) fn table(&mut self, dst: Reg, offset: usize) {
        // The table is 4 MB long.
        self.code
            .load_map_value(dst, self.maps.table, offset as i32);
    }

    /// Copies `len` packet bytes at the offset in R2 to the stack at `to`.
    pub(super) fn copy_from_r2(&mut self, to: i16, len: i32, failed: Label) {
        let code = &mut self.code;
        code.alu_reg(Alu::Mov, R1, R6);
        code.alu_reg(Alu::Mov, R3, R10);
        code.alu(Alu::Add, R3, i32::from(to));
        code.alu(Alu::Mov, R4, len);
        code.call(match self.hook {
            Hook::Skb => Helper::SkbLoadBytes,
            Hook::Xdp(_) => Helper::XdpLoadBytes,
        });
        code.jump_if(If::Ne, R0, 0, failed);
    }

    pub(super) fn copy(&mut self, from: i32, to: i16, len: i32, failed: Label) {
        self.code.alu(Alu::Mov, R2, from);
        self.copy_from_r2(to, len, failed);
    }

    /// Copies the IPv4 header to the stack; leaves the destination in R8.
    pub(super) fn ip_header(&mut self, failed: Label) {
        self.copy(self.l3, IP, 20, failed);
        let code = &mut self.code;
        code.load(Width::B4, R8, R10, IP_DESTINATION);
        code.jump_if(If::Eq, R8, 0, failed);
    }

    /// Leaves the addresses in use in R2, the multiplier of their hash in R4 and the distance of
    /// its shift in R5.
    pub(super) fn addresses(&mut self) {
        self.table(R2, layout::HALF_IN_USE);
        self.code.load(Width::B4, R1, R2, 0);
        self.table(R2, layout::ADDRESSES);
        let code = &mut self.code;
        code.alu(Alu::And, R1, 1);
        code.alu(Alu::Lsh, R1, layout::HALF_LEN.trailing_zeros() as i32);
        code.alu_reg(Alu::Add, R2, R1);
        code.load(Width::B8, R4, R2, layout::MULTIPLIER as i16);
        code.load(Width::B8, R5, R2, layout::SHIFT as i16);
    }

    /// Makes the product in R1 the place of an address, which it leaves in R2.
    pub(super) fn place(&mut self, set: usize, entry_len: usize) {
        let code = &mut self.code;
        code.alu(Alu::And, R5, 63);
        code.alu_reg(Alu::Rsh, R1, R5);
        code.alu(Alu::And, R1, layout::PLACES_MAX as i32 - 1);
        code.alu(Alu::Lsh, R1, entry_len.trailing_zeros() as i32);
        code.alu_reg(Alu::Add, R2, R1);
        code.alu(Alu::Add, R2, set as i32);
    }

    /// Goes to `own` when the address in R8 is in the set at `set`.
    pub(super) fn match_address(&mut self, set: usize, own: Label) {
        self.addresses();
        self.code.alu_reg(Alu::Mov, R1, R8);
        self.code.alu_reg(Alu::Mul, R1, R4);
        self.place(set, 4);
        for index in 0..layout::PLACES_TRIED {
            self.code.load(Width::B4, R3, R2, 4 * index as i16);
            self.code.jump_if_reg(If::Eq, R3, R8, own);
        }
    }

    /// Copies the IPv6 header to the stack.
    pub(super) fn ip6_header(&mut self, failed: Label) {
        self.copy(self.l3, IP6, IP6_LEN, failed);
    }

    /// Goes to `own` when the destination of the IPv6 header on the stack is one of ours.
    pub(super) fn match_own6(&mut self, own: Label) {
        let none = self.code.label();
        self.addresses();
        let code = &mut self.code;
        code.load(Width::B8, R0, R10, IP6_DESTINATION);
        code.load(Width::B8, R3, R10, IP6_DESTINATION + 8);
        // Places without an address hold the unspecified one.
        code.alu_reg(Alu::Mov, R1, R0);
        code.alu_reg(Alu::Or, R1, R3);
        code.jump_if(If::Eq, R1, 0, none);
        // The instructions of `steering/addresses.rs`.
        code.alu_reg(Alu::Mov, R1, R0);
        code.alu_reg(Alu::Mul, R1, R4);
        code.alu_reg(Alu::Mov, R0, R1);
        code.alu(Alu::Rsh, R0, hash::SHIFT.cast_signed());
        code.alu_reg(Alu::Xor, R1, R0);
        code.alu_reg(Alu::Xor, R1, R3);
        code.alu_reg(Alu::Mov, R0, R1);
        code.alu(Alu::Rsh, R0, hash::SHIFT.cast_signed());
        code.alu_reg(Alu::Xor, R1, R0);
        code.alu_reg(Alu::Mul, R1, R4);
        self.place(layout::OWN6, 16);
        let code = &mut self.code;
        code.load(Width::B8, R4, R10, IP6_DESTINATION);
        code.load(Width::B8, R5, R10, IP6_DESTINATION + 8);
        for index in 0..layout::PLACES_TRIED {
            let next = code.label();
            code.load(Width::B8, R3, R2, 16 * index as i16);
            code.jump_if_reg(If::Ne, R3, R4, next);
            code.load(Width::B8, R3, R2, 16 * index as i16 + 8);
            code.jump_if_reg(If::Eq, R3, R5, own);
            code.bind(next);
        }
        code.bind(none);
    }

    /// Leaves the protocol (TCP or UDP) in R7 and both ports in R9, or goes to `other`.
    pub(super) fn ports(&mut self, family: Family, other: Label) {
        if family == Family::V6 {
            return self.ports6(other);
        }
        let code = &mut self.code;
        let is_transport = code.label();
        code.load(Width::B1, R7, R10, IP_PROTOCOL);
        code.jump_if(If::Eq, R7, TCP, is_transport);
        code.jump_if(If::Ne, R7, UDP, other);
        code.bind(is_transport);
        code.load(Width::B2, R1, R10, IP_FRAGMENT);
        code.jump_if(If::AnySet, R1, FRAGMENT_BITS, other);
        code.load(Width::B1, R2, R10, IP);
        code.alu_reg(Alu::Mov, R1, R2);
        code.alu(Alu::Rsh, R1, 4);
        code.jump_if(If::Ne, R1, 4, other);
        code.alu(Alu::And, R2, 15);
        code.alu(Alu::Lsh, R2, 2);
        code.jump_if(If::Lt, R2, 20, other);
        code.alu(Alu::Add, R2, self.l3);
        self.copy_from_r2(PORTS, 4, other);
        self.code.load(Width::B4, R9, R10, PORTS);
    }

    /// As [`Emitter::ports`] for IPv6: extension headers, fragments among them, go to `other`.
    pub(super) fn ports6(&mut self, other: Label) {
        let code = &mut self.code;
        let is_transport = code.label();
        code.load(Width::B1, R7, R10, IP6_NEXT_HEADER);
        code.jump_if(If::Eq, R7, TCP, is_transport);
        code.jump_if(If::Ne, R7, UDP, other);
        code.bind(is_transport);
        self.copy(self.l3 + IP6_LEN, PORTS, 4, other);
        self.code.load(Width::B4, R9, R10, PORTS);
    }

    /// Leaves the entry of the destination port in R0.
    pub(super) fn port_entry(&mut self) {
        let (udp, found) = (self.code.label(), self.code.label());
        let code = &mut self.code;
        code.load(Width::B2, R1, R10, PORTS + 2);
        code.swap_u16(R1);
        code.alu(Alu::And, R1, 0xffff);
        code.alu(Alu::Lsh, R1, 1);
        code.jump_if(If::Eq, R7, UDP, udp);
        self.table(R2, layout::TCP_PORTS);
        self.code.jump(found);
        self.code.bind(udp);
        self.table(R2, layout::UDP_PORTS);
        self.code.bind(found);
        self.code.alu_reg(Alu::Add, R2, R1);
        self.code.load(Width::B2, R0, R2, 0);
    }

    /// Goes to `shared` if the kernel has the stack's addresses too.
    pub(super) fn if_shared(&mut self, shared: Label) {
        self.table(R2, layout::FLAGS);
        self.code.load(Width::B4, R1, R2, 0);
        let flag = layout::FLAG_SHARE.cast_signed();
        self.code.jump_if(If::AnySet, R1, flag, shared);
    }

    /// On shared addresses, goes to `theirs` if the packet is the kernel's by its flow or port, and
    /// to `other` if it has no ports.
    pub(super) fn unless_shared(
        &mut self,
        family: Family,
        other: Label,
        theirs: Label,
        ours: Label,
    ) {
        let (shared, by_port) = (self.code.label(), self.code.label());
        self.if_shared(shared);
        self.code.jump(ours);
        self.code.bind(shared);
        self.ports(family, other);
        self.exception(family, by_port);
        let kernel = i32::from(layout::KERNEL_SLOT);
        self.code.jump_if(If::Eq, R0, kernel, theirs);
        self.code.jump(ours);
        self.code.bind(by_port);
        self.if_kernel_port(theirs);
        self.code.jump(ours);
    }

    /// Goes to `theirs` if the destination port is one of the kernel's.
    pub(super) fn if_kernel_port(&mut self, theirs: Label) {
        let (udp, found) = (self.code.label(), self.code.label());
        let code = &mut self.code;
        code.load(Width::B2, R1, R10, PORTS + 2);
        code.swap_u16(R1);
        code.alu(Alu::And, R1, 0xffff);
        code.alu_reg(Alu::Mov, R3, R1);
        code.alu(Alu::And, R3, 7);
        code.alu(Alu::Rsh, R1, 3);
        code.jump_if(If::Eq, R7, UDP, udp);
        self.table(R2, layout::KERNEL_TCP);
        self.code.jump(found);
        self.code.bind(udp);
        self.table(R2, layout::KERNEL_UDP);
        self.code.bind(found);
        let code = &mut self.code;
        code.alu_reg(Alu::Add, R2, R1);
        code.load(Width::B1, R0, R2, 0);
        code.alu_reg(Alu::Rsh, R0, R3);
        code.jump_if(If::AnySet, R0, 1, theirs);
    }

    /// Leaves the slot of the flow's exception in R0, or goes to `none`.
    pub(super) fn exception(&mut self, family: Family, none: Label) {
        self.table(R2, layout::EXCEPTIONS);
        let code = &mut self.code;
        code.load(Width::B4, R1, R2, 0);
        code.jump_if(If::Eq, R1, 0, none);
        self.key(family);
        let code = &mut self.code;
        code.load_map(R1, self.maps.exceptions);
        code.alu_reg(Alu::Mov, R2, R10);
        code.alu(Alu::Add, R2, i32::from(KEY));
        code.call(Helper::MapLookup);
        code.jump_if(If::Eq, R0, 0, none);
        code.load(Width::B4, R0, R0, 0);
    }

    /// Builds the flow's key on the stack.
    pub(super) fn key(&mut self, family: Family) {
        let code = &mut self.code;
        match family {
            Family::V4 => {
                code.load(Width::B4, R1, R10, IP_SOURCE);
                code.store(Width::B8, R10, KEY, R1);
                code.alu(Alu::Mov, R1, 0);
                code.store(Width::B8, R10, KEY + 8, R1);
                code.store(Width::B8, R10, KEY + 16, R8);
                code.store(Width::B8, R10, KEY + 24, R1);
            }
            Family::V6 => {
                for word in (0..32).step_by(8) {
                    code.load(Width::B8, R1, R10, IP6_SOURCE + word);
                    code.store(Width::B8, R10, KEY + word, R1);
                }
            }
        }
        code.store(Width::B4, R10, KEY + 32, R9);
        code.store(Width::B4, R10, KEY + 36, R7);
    }

    /// As [`Emitter::exception`], for a packet whose ports are still to be read.
    pub(super) fn strange_flow(&mut self, family: Family, none: Label) {
        self.table(R2, layout::EXCEPTIONS);
        self.code.load(Width::B4, R1, R2, 0);
        self.code.jump_if(If::Eq, R1, 0, none);
        self.ports(family, none);
        self.exception(family, none);
    }

    pub(super) fn protocol(&mut self) {
        self.code.load(Width::B4, R0, R6, SKB_PROTOCOL);
    }
}

/// Chooses the slot of a received frame. `l3` is the offset of the network header at the hook: 0 in
/// a packet fan-out, 14 in a TAP.
pub(crate) fn steering(maps: Maps<'_>, l3: i32) -> Code {
    let mut emit = Emitter::new(maps, l3);
    emit.protocol();
    // A packet fan-out comes after the kernel has taken the first tag out.
    emit_tagged(&mut emit, if l3 == 0 { 1 } else { 2 }, emit_steering);
    emit_steering(&mut emit);
    emit.finish()
}

/// Treats a frame in which up to so many tags of VLANs are by the header behind them, as `body`
/// does, which ends with the answer; the type of any other stays in R0.
pub(super) fn emit_tagged(emit: &mut Emitter<'_>, tags: u32, body: fn(&mut Emitter<'_>)) {
    let [plain, tagged, short] = core::array::from_fn(|_| emit.code.label());
    emit.code.jump_if(If::Eq, R0, ETHERTYPE_TAG, tagged);
    emit.code.jump_if(If::Ne, R0, ETHERTYPE_PROVIDER_TAG, plain);
    emit.code.bind(tagged);
    let l3 = emit.l3;
    emit.l3 += TAG_LEN;
    emit.copy(emit.l3 - 2, PORTS, 2, short);
    emit.code.load(Width::B2, R0, R10, PORTS);
    if tags > 1 {
        emit_tagged(emit, tags - 1, body);
    }
    body(emit);
    emit.code.bind(short);
    emit.leave_to_keeper();
    emit.l3 = l3;
    emit.code.bind(plain);
}

/// From the frame's type in R0 to the slot.
pub(super) fn emit_steering(emit: &mut Emitter<'_>) {
    let [keeper, own, v6, own6] = core::array::from_fn(|_| emit.code.label());
    emit.code.jump_if(If::Eq, R0, ETHERTYPE_IPV6, v6);
    emit.code.jump_if(If::Ne, R0, ETHERTYPE_IPV4, keeper);
    emit.ip_header(keeper);
    emit.match_address(layout::OWN, own);
    transit::emit(emit, Family::V4, keeper);
    emit.code.bind(keeper);
    emit.leave_to_keeper();
    emit.code.bind(own);
    emit_slot(emit, Family::V4);

    emit.code.bind(v6);
    let keeper = emit.code.label();
    emit.ip6_header(keeper);
    emit.match_own6(own6);
    transit::emit(emit, Family::V6, keeper);
    emit.code.bind(keeper);
    emit.leave_to_keeper();
    emit.code.bind(own6);
    emit_slot(emit, Family::V6);
}

/// From a header on the BPF stack whose destination is ours to the slot.
fn emit_slot(emit: &mut Emitter<'_>, family: Family) {
    let [keeper, by_port, group, shared, ours] = core::array::from_fn(|_| emit.code.label());
    emit.ports(family, keeper);
    emit.exception(family, by_port);
    let kernel = i32::from(layout::KERNEL_SLOT);
    emit.code.jump_if(If::Eq, R0, kernel, keeper);
    emit.leave();

    emit.code.bind(by_port);
    emit.if_shared(shared);
    emit.code.jump(ours);
    emit.code.bind(shared);
    // Its filter passes none of the kernel's frames.
    emit.if_kernel_port(keeper);
    emit.code.bind(ours);
    emit.port_entry();
    let code = &mut emit.code;
    code.jump_if(If::AnySet, R0, i32::from(layout::GROUP_BIT), group);
    code.alu(Alu::And, R0, layout::SLOTS_MAX as i32 - 1);
    emit.leave();
    emit.code.bind(keeper);
    emit.leave_to_keeper();
    emit.code.bind(group);
    if let Some(chooser) = emit.maps.chooser {
        rules::emit(emit, chooser, family);
    }
    emit_bucket(emit, family);
}

/// From the group entry in R0, the addresses on the BPF stack (of IPv4 the destination in R8) and
/// the ports in R9 to the slot of the first bucket on the flow's chain whose slot is alive.
fn emit_bucket(emit: &mut Emitter<'_>, family: Family) {
    let code = &mut emit.code;
    code.alu(Alu::And, R0, layout::GROUPS_MAX as i32 - 1);
    code.alu(Alu::Lsh, R0, layout::BUCKETS.trailing_zeros() as i32);
    code.alu_reg(Alu::Mov, R7, R0);
    emit_hash(emit, family);
    emit_chain(emit);
}

/// From the flow's hash in R1 and the first bucket of the group in R7 to the slot.
pub(super) fn emit_chain(emit: &mut Emitter<'_>) {
    emit.code.alu(Alu::And, R1, layout::BUCKETS as i32 - 1);
    emit.table(R3, layout::GROUPS);
    emit.code.alu_reg(Alu::Add, R3, R7);
    emit.table(R4, layout::ALIVE);
    let found = emit.code.label();
    let code = &mut emit.code;
    for _ in 0..layout::PROBES {
        code.alu_reg(Alu::Mov, R2, R3);
        code.alu_reg(Alu::Add, R2, R1);
        code.load(Width::B1, R0, R2, 0);
        code.alu(Alu::And, R0, layout::SLOTS_MAX as i32 - 1);
        code.alu_reg(Alu::Mov, R5, R4);
        code.alu_reg(Alu::Add, R5, R0);
        code.load(Width::B1, R5, R5, 0);
        code.jump_if(If::Ne, R5, 0, found);
        code.alu(Alu::Add, R1, layout::PROBE_STEP.cast_signed());
        code.alu(Alu::And, R1, layout::BUCKETS as i32 - 1);
    }
    code.alu(Alu::Mov, R0, 0);
    code.bind(found);
    emit.leave();
}

/// Multiplies R1 and folds it; uses R3 and R4.
pub(super) fn mix(code: &mut Program, multiplier: u64) {
    code.load_u64(R4, multiplier);
    code.alu_reg(Alu::Mul, R1, R4);
    code.alu_reg(Alu::Mov, R3, R1);
    code.alu(Alu::Rsh, R3, hash::SHIFT.cast_signed());
    code.alu_reg(Alu::Xor, R1, R3);
}

/// Leaves the flow's hash in R1: the instructions of `steering/hash.rs`.
fn emit_hash(emit: &mut Emitter<'_>, family: Family) {
    emit.table(R2, layout::HASH_KEY);
    let code = &mut emit.code;
    code.load(Width::B8, R3, R2, 0);
    match family {
        Family::V4 => {
            code.load(Width::B4, R1, R10, IP_SOURCE);
            code.alu(Alu::Lsh, R1, 32);
            code.alu_reg(Alu::Or, R1, R9);
            code.alu_reg(Alu::Xor, R1, R3);
            mix(code, hash::MULTIPLIER_1);
            code.alu_reg(Alu::Add, R1, R8);
        }
        Family::V6 => {
            code.alu_reg(Alu::Mov, R1, R9);
            code.alu_reg(Alu::Xor, R1, R3);
            for word in (0..32).step_by(8) {
                code.load(Width::B8, R3, R10, IP6_SOURCE + word);
                code.alu_reg(Alu::Xor, R1, R3);
                mix(code, hash::MULTIPLIER_1);
            }
        }
    }
    mix(code, hash::MULTIPLIER_2);
}
