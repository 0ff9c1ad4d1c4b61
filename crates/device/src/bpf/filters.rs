//! The filter of the keeper's slot, which selects frames for the stack, and the ingress drop, which
//! keeps the stack's frames from the kernel.

use super::asm::{Alu, Helper, If, Label, Width};
use super::programs::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Emitter, Family, IP, IP_DESTINATION, IP_PROTOCOL,
    IP6_DESTINATION, IP6_LEN, IP6_NEXT_HEADER, KIND_HOST, Maps, PORTS, SKB_KIND, emit_tagged,
};
use crate::steering::layout;

use super::asm::Reg::{R0, R1, R2, R6, R7, R8, R10};

/// The `pkt_type` of frames that the kernel itself sends.
const KIND_OUTGOING: i32 = 4;
/// Answers of a program at the ingress of an interface (tcx and direct-action alike).
const INGRESS_DROP: i32 = 2;
const INGRESS_NEXT: i32 = -1;
/// The heartbeat may be this old, in nanoseconds.
const HEARTBEAT_MAX: u64 = 1_000_000_000;
const ETHERTYPE_ARP: i32 = 0x0608;

impl Emitter<'_> {
    /// Jumps to `theirs` if a packet without ports is an echo request, which the kernel answers on
    /// shared addresses, and to `other` otherwise.
    fn if_echo(&mut self, family: Family, theirs: Label, other: Label) {
        const ICMP: i32 = 1;
        const ICMP6: i32 = 58;
        const ECHO: i32 = 8;
        const ECHO6: i32 = 128;
        let code = &mut self.code;
        let echo = match family {
            Family::V4 => {
                code.load(Width::B1, R1, R10, IP_PROTOCOL);
                code.jump_if(If::Ne, R1, ICMP, other);
                code.load(Width::B1, R2, R10, IP);
                code.alu(Alu::And, R2, 15);
                code.alu(Alu::Lsh, R2, 2);
                code.alu(Alu::Add, R2, self.l3);
                self.copy_from_r2(PORTS, 1, other);
                ECHO
            }
            Family::V6 => {
                code.load(Width::B1, R1, R10, IP6_NEXT_HEADER);
                code.jump_if(If::Ne, R1, ICMP6, other);
                self.copy(self.l3 + IP6_LEN, PORTS, 1, other);
                ECHO6
            }
        };
        self.code.load(Width::B1, R1, R10, PORTS);
        self.code.jump_if(If::Eq, R1, echo, theirs);
        self.code.jump(other);
    }
}

/// Classes of frames to the kernel, by their places in the table.
#[derive(Clone, Copy)]
enum Rate {
    /// ARP and multicast.
    Console = 0,
    General = 1,
    /// The two classes together.
    Kernel = 2,
}

impl Emitter<'_> {
    /// Jumps to `drop` if the rate limit of a class is used up for this second. Processors that
    /// count at one instant may let a few more pass.
    fn limit(&mut self, rate: Rate, drop: Label) {
        const SECOND_NS: i32 = 1_000_000_000;
        let [done, same, counted] = core::array::from_fn(|_| self.code.label());
        self.table(R2, layout::RATE_LIMITS + 4 * rate as usize);
        let code = &mut self.code;
        code.load(Width::B4, R7, R2, 0);
        code.jump_if(If::Eq, R7, 0, done);
        code.call(Helper::KtimeNs);
        code.alu(Alu::Div, R0, SECOND_NS);
        self.table(R2, layout::RATE_STATES + 16 * rate as usize);
        let code = &mut self.code;
        code.load(Width::B8, R1, R2, 0);
        code.jump_if_reg(If::Eq, R1, R0, same);
        code.store(Width::B8, R2, 0, R0);
        code.alu(Alu::Mov, R1, 0);
        code.store(Width::B8, R2, 8, R1);
        code.bind(same);
        code.load(Width::B8, R1, R2, 8);
        code.jump_if_reg(If::Lt, R1, R7, counted);
        code.jump(drop);
        code.bind(counted);
        code.alu(Alu::Add, R1, 1);
        code.store(Width::B8, R2, 8, R1);
        code.bind(done);
    }

    /// Passes the frame to the kernel, if its rate limits allow.
    fn leave_to_kernel(&mut self, class: Rate, drop: Label) {
        self.limit(class, drop);
        self.limit(Rate::Kernel, drop);
        self.code.exit_with(INGRESS_NEXT);
    }

    /// Goes to `drop` if a connection of the stack's has the destination, which is not its address,
    /// as its own end, and to `theirs` otherwise.
    fn drop_foreign(&mut self, family: Family, theirs: Label, drop: Label) {
        self.strange_flow(family, theirs);
        let kernel = i32::from(layout::KERNEL_SLOT);
        self.code.jump_if(If::Ne, R0, kernel, drop);
        self.code.jump(theirs);
    }

    /// Goes to `group` if the IPv4 destination in R8 is a group or everybody.
    fn if_group(&mut self, group: Label) {
        let code = &mut self.code;
        // The first byte is the lowest in memory.
        code.alu_reg(Alu::Mov, R1, R8);
        code.alu(Alu::And, R1, 0xf0);
        code.jump_if(If::Eq, R1, 0xe0, group);
        code.load_u64(R2, 0xffff_ffff);
        code.jump_if_reg(If::Eq, R8, R2, group);
    }
}

/// Passes ARP and frames to the stack, to broadcast and to multicast addresses to the keeper's
/// slot: it need not wake for the kernel's frames. The hook sees the packet from its Ethernet
/// header, without the first tag of a VLAN.
pub(crate) fn keeper_filter(maps: Maps<'_>) -> Vec<u64> {
    let mut emit = Emitter::new(maps, 14);
    let received = emit.code.label();
    emit.code.load(Width::B4, R0, R6, SKB_KIND);
    emit.code.jump_if(If::Ne, R0, KIND_OUTGOING, received);
    emit.code.exit_with(0);
    emit.code.bind(received);
    emit.protocol();
    emit_tagged(&mut emit, 1, emit_keepers);
    emit_keepers(&mut emit);
    emit.code.finish()
}

/// From the frame's type in R0 to the answer.
fn emit_keepers(emit: &mut Emitter<'_>) {
    let (portless, portless6) = (emit.code.label(), emit.code.label());
    let (accept, own, reject) = (emit.code.label(), emit.code.label(), emit.code.label());
    let (v6, own6, strange) = (emit.code.label(), emit.code.label(), emit.code.label());
    emit.code.jump_if(If::Eq, R0, ETHERTYPE_ARP, accept);
    emit.code.jump_if(If::Eq, R0, ETHERTYPE_IPV6, v6);
    emit.code.jump_if(If::Ne, R0, ETHERTYPE_IPV4, reject);
    emit.ip_header(reject);
    emit.match_address(layout::OWN, own);
    emit.match_address(layout::BROADCAST, accept);
    emit.if_group(accept);
    let code = &mut emit.code;
    code.jump(strange);
    code.bind(reject);
    code.exit_with(0);
    code.bind(accept);
    code.load_u64(R0, 0x7fff_ffff);
    code.exit();
    code.bind(own);
    emit.unless_shared(Family::V4, portless, reject, accept);
    emit.code.bind(portless);
    emit.if_echo(Family::V4, reject, accept);
    emit.code.bind(v6);
    emit.ip6_header(reject);
    // ff00::/8: neighbour discovery uses multicast.
    emit.code.load(Width::B1, R1, R10, IP6_DESTINATION);
    emit.code.jump_if(If::Eq, R1, 0xff, accept);
    emit.match_own6(own6);
    emit.code.jump(strange);
    emit.code.bind(own6);
    emit.unless_shared(Family::V6, portless6, reject, accept);
    emit.code.bind(portless6);
    emit.if_echo(Family::V6, reject, accept);

    // For another address: ours to pass on, if we do that and it is for this station.
    emit.code.bind(strange);
    emit.table(R2, layout::FLAGS);
    let code = &mut emit.code;
    let passed_on = code.label();
    code.load(Width::B4, R1, R2, 0);
    code.jump_if(
        If::AnySet,
        R1,
        layout::FLAG_FORWARD.cast_signed(),
        passed_on,
    );
    code.jump(reject);
    code.bind(passed_on);
    code.load(Width::B4, R0, R6, SKB_KIND);
    code.jump_if(If::Eq, R0, KIND_HOST, accept);
    code.jump(reject);
}

/// Drops our frames before the kernel's own stack sees them; packet sockets have seen them already.
/// With `needs_heartbeat` only while the keeper lives: for hooks that outlive it.
pub(crate) fn ingress_drop(maps: Maps<'_>, needs_heartbeat: bool) -> Vec<u64> {
    let mut emit = Emitter::new(maps, 14);
    let [own, arp, drop, v6, own6] = core::array::from_fn(|_| emit.code.label());
    let [stale, console, general] = core::array::from_fn(|_| emit.code.label());
    if needs_heartbeat {
        emit.code.call(Helper::KtimeNs);
        emit.table(R2, layout::HEARTBEAT);
        let code = &mut emit.code;
        code.load(Width::B8, R1, R2, 0);
        code.alu_reg(Alu::Sub, R0, R1);
        code.load_u64(R1, HEARTBEAT_MAX);
        code.jump_if_reg(If::SignedGt, R0, R1, stale);
    }
    emit.protocol();
    emit.code.jump_if(If::Eq, R0, ETHERTYPE_ARP, arp);
    emit.code.jump_if(If::Eq, R0, ETHERTYPE_IPV6, v6);
    emit.code.jump_if(If::Ne, R0, ETHERTYPE_IPV4, general);
    emit.ip_header(general);
    emit.match_address(layout::OWN, own);
    emit.if_group(console);
    emit.drop_foreign(Family::V4, general, drop);
    emit.code.bind(general);
    emit.leave_to_kernel(Rate::General, drop);
    emit.code.bind(console);
    emit.leave_to_kernel(Rate::Console, drop);
    emit.code.bind(stale);
    emit.code.exit_with(INGRESS_NEXT);

    // A kernel that answers for addresses of other interfaces must not answer for ours.
    emit.code.bind(arp);
    emit.copy(14 + 24, IP_DESTINATION, 4, console);
    emit.code.load(Width::B4, R8, R10, IP_DESTINATION);
    emit.code.jump_if(If::Eq, R8, 0, console);
    let arp_own = emit.code.label();
    emit.match_address(layout::OWN, arp_own);
    emit.code.jump(console);
    emit.code.bind(arp_own);
    emit.table(R2, layout::FLAGS);
    let code = &mut emit.code;
    code.load(Width::B4, R1, R2, 0);
    let flag = layout::FLAG_SHARE.cast_signed();
    code.jump_if(If::AnySet, R1, flag, console);
    code.bind(drop);
    code.exit_with(INGRESS_DROP);

    code.bind(own);
    emit.unless_shared(Family::V4, general, general, drop);
    emit.code.bind(v6);
    emit.ip6_header(general);
    emit.match_own6(own6);
    // ff00::/8
    emit.code.load(Width::B1, R1, R10, IP6_DESTINATION);
    emit.code.jump_if(If::Eq, R1, 0xff, console);
    emit.drop_foreign(Family::V6, general, drop);
    emit.code.bind(own6);
    emit.unless_shared(Family::V6, general, general, drop);
    emit.code.finish()
}
