//! Rules that choose an engine for a flow once, with its first frame, and remember it.
//!
//! A SYN, and a datagram of a flow that is not known, takes the slot that the rule names among
//! those of the port's group; whatever follows finds it in the map of chosen flows. A segment whose
//! flow is not there (or no more: the map forgets what has been silent for longest) goes by the
//! hash, and from the engine that it reaches to the one that has the flow.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::asm::{Alu, Helper, If, Label, Program, Reg, Width};
use super::programs::{Emitter, Family, Hook, IP, IP6_LEN, KEY, UDP};
use crate::steering::layout;
use crate::steering::row::Row;

use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R10};

/// Places on the stack below the IPv6 header: the group, whether the frame may begin a flow, the
/// slot, and a segment's flags.
const GROUP: i16 = -136;
const IS_FIRST: i16 = -144;
const SLOT: i16 = -152;
const FLAGS: i16 = -160;

/// Offset of a segment's flags, and those that tell a SYN from others: RST, ACK and SYN.
const FLAGS_AT: i32 = 13;
const FLAGS_READ: i32 = 0x16;
const SYN: i32 = 2;

/// Members that are looked at for one that is alive.
const TRIED: usize = 8;

/// A rule as the programs have it.
#[derive(Clone, Copy)]
pub(crate) enum RuleCode<'a> {
    /// By turns.
    Turns,
    /// By the first row whose network has the sender.
    Table(&'a [Row]),
    /// By the answer of a program in this array of programs.
    Program(BorrowedFd<'a>),
}

/// A rule and the map of the flows that it has chosen for.
#[derive(Clone, Copy)]
pub(crate) struct Chooser<'a> {
    pub(crate) rule: RuleCode<'a>,
    pub(crate) flows: BorrowedFd<'a>,
}

/// From the group entry in R0, the addresses and ports as for the hash, to the slot of the flow, or
/// on with the entry in R0: by the hash.
pub(super) fn emit(emit: &mut Emitter<'_>, chooser: Chooser<'_>, family: Family) {
    let [by_hash, choose, known] = core::array::from_fn(|_| emit.code.label());
    emit.code.alu(Alu::And, R0, layout::GROUPS_MAX as i32 - 1);
    emit.code.store(Width::B8, R10, GROUP, R0);
    emit_is_first(emit, family, by_hash);
    emit.key(family);
    emit_find(emit, chooser, known);
    // Not known.
    let code = &mut emit.code;
    code.load(Width::B8, R1, R10, IS_FIRST);
    code.jump_if(If::Eq, R1, 0, by_hash);
    code.bind(choose);
    match emit.hook {
        Hook::Skb => emit_choice(emit, chooser, family, by_hash),
        // The packet sockets' program chooses.
        Hook::Xdp(_) => emit.leave_to_keeper(),
    }
    emit.code.bind(known);
    emit_known(emit, choose);
    emit.code.bind(by_hash);
    emit.code.load(Width::B8, R0, R10, GROUP);
}

/// Writes down whether the frame may begin a flow: datagrams, and SYNs.
fn emit_is_first(emit: &mut Emitter<'_>, family: Family, failed: Label) {
    let found = emit.code.label();
    let code = &mut emit.code;
    code.alu(Alu::Mov, R1, 1);
    code.store(Width::B8, R10, IS_FIRST, R1);
    code.jump_if(If::Eq, R7, UDP, found);
    code.alu(Alu::Mov, R1, 0);
    code.store(Width::B8, R10, IS_FIRST, R1);
    match family {
        Family::V4 => {
            code.load(Width::B1, R2, R10, IP);
            code.alu(Alu::And, R2, 15);
            code.alu(Alu::Lsh, R2, 2);
            code.alu(Alu::Add, R2, emit.l3 + FLAGS_AT);
        }
        Family::V6 => code.alu(Alu::Mov, R2, emit.l3 + IP6_LEN + FLAGS_AT),
    }
    emit.copy_from_r2(FLAGS, 1, failed);
    let code = &mut emit.code;
    code.load(Width::B1, R1, R10, FLAGS);
    code.alu(Alu::And, R1, FLAGS_READ);
    code.jump_if(If::Ne, R1, SYN, found);
    code.store(Width::B8, R10, IS_FIRST, R1);
    code.bind(found);
}

/// Goes to `known` with the flow's slot in R0 if it has one that is alive.
fn emit_find(emit: &mut Emitter<'_>, chooser: Chooser<'_>, known: Label) {
    let code = &mut emit.code;
    let none = code.label();
    code.load_map(R1, chooser.flows);
    code.alu_reg(Alu::Mov, R2, R10);
    code.alu(Alu::Add, R2, i32::from(KEY));
    code.call(Helper::MapLookup);
    code.jump_if(If::Eq, R0, 0, none);
    code.load(Width::B4, R0, R0, 0);
    code.alu(Alu::And, R0, layout::SLOTS_MAX as i32 - 1);
    emit_if_alive(emit, known);
    emit.code.bind(none);
}

/// Goes to `alive` if the slot in R0 is.
fn emit_if_alive(emit: &mut Emitter<'_>, alive: Label) {
    emit.table(R5, layout::ALIVE);
    let code = &mut emit.code;
    code.alu_reg(Alu::Add, R5, R0);
    code.load(Width::B1, R5, R5, 0);
    code.jump_if(If::Ne, R5, 0, alive);
}

/// Ends with the slot in R0; a frame that may begin a flow goes to `choose` if the slot serves the
/// port no more.
fn emit_known(emit: &mut Emitter<'_>, choose: Label) {
    let stays = emit.code.label();
    emit.code.load(Width::B8, R1, R10, IS_FIRST);
    emit.code.jump_if(If::Eq, R1, 0, stays);
    emit_members(emit, R3);
    let code = &mut emit.code;
    code.alu_reg(Alu::Mov, R1, R0);
    code.alu(Alu::Rsh, R1, 3);
    code.alu_reg(Alu::Add, R3, R1);
    code.load(Width::B1, R2, R3, 0);
    code.alu_reg(Alu::Mov, R1, R0);
    code.alu(Alu::And, R1, 7);
    code.alu_reg(Alu::Rsh, R2, R1);
    code.alu(Alu::And, R2, 1);
    code.jump_if(If::Eq, R2, 0, choose);
    code.bind(stays);
    emit.leave();
}

/// Leaves the group's members in `to`; uses R1.
fn emit_members(emit: &mut Emitter<'_>, to: Reg) {
    emit.table(to, layout::MEMBERS);
    let code = &mut emit.code;
    code.load(Width::B8, R1, R10, GROUP);
    code.alu(Alu::And, R1, layout::GROUPS_MAX as i32 - 1);
    code.alu(Alu::Lsh, R1, layout::MEMBERS_LEN.trailing_zeros() as i32);
    code.alu_reg(Alu::Add, to, R1);
}

/// Asks the rule, writes down what it says, and ends with the slot.
fn emit_choice(emit: &mut Emitter<'_>, chooser: Chooser<'_>, family: Family, by_hash: Label) {
    match chooser.rule {
        RuleCode::Turns => emit_turn(emit),
        RuleCode::Table(rows) => emit_rows(emit, family, rows, by_hash),
        RuleCode::Program(_) => emit_asking(emit, by_hash),
    }
    let (taken, members) = (emit.code.label(), layout::SLOTS_MAX as i32 - 1);
    emit_members(emit, R3);
    let code = &mut emit.code;
    code.load(Width::B1, R4, R3, layout::MEMBERS_COUNT as i16);
    code.jump_if(If::Eq, R4, 0, by_hash);
    code.alu_reg(Alu::Mod, R2, R4);
    for _ in 0..TRIED {
        let code = &mut emit.code;
        let next = code.label();
        code.alu(Alu::And, R2, members);
        code.alu_reg(Alu::Mov, R1, R3);
        code.alu_reg(Alu::Add, R1, R2);
        code.load(Width::B1, R0, R1, layout::MEMBERS_LIST as i16);
        code.alu(Alu::And, R0, members);
        emit_if_alive(emit, taken);
        let code = &mut emit.code;
        code.alu(Alu::Add, R2, 1);
        code.jump_if_reg(If::Lt, R2, R4, next);
        code.alu(Alu::Mov, R2, 0);
        code.bind(next);
    }
    let code = &mut emit.code;
    code.jump(by_hash);
    code.bind(taken);
    code.store(Width::B8, R10, SLOT, R0);
    code.load_map(R1, chooser.flows);
    code.alu_reg(Alu::Mov, R2, R10);
    code.alu(Alu::Add, R2, i32::from(KEY));
    code.alu_reg(Alu::Mov, R3, R10);
    code.alu(Alu::Add, R3, i32::from(SLOT));
    code.alu(Alu::Mov, R4, 0);
    code.call(Helper::MapUpdate);
    code.load(Width::B8, R0, R10, SLOT);
    emit.leave();
}

/// Leaves the number of the group's turn in R2.
fn emit_turn(emit: &mut Emitter<'_>) {
    emit.table(R3, layout::TURNS);
    let code = &mut emit.code;
    code.load(Width::B8, R1, R10, GROUP);
    code.alu(Alu::And, R1, layout::GROUPS_MAX as i32 - 1);
    code.alu(Alu::Lsh, R1, 2);
    code.alu_reg(Alu::Add, R3, R1);
    code.alu(Alu::Mov, R2, 1);
    code.fetch_and_add(R3, R2);
}

/// Leaves the engine of the first row that has the sender in R2, or goes to `by_hash`.
fn emit_rows(emit: &mut Emitter<'_>, family: Family, rows: &[Row], by_hash: Label) {
    let code = &mut emit.code;
    let found = code.label();
    for row in rows {
        let next = code.label();
        let words = match (family, row.network) {
            (Family::V4, IpAddr::V4(_)) => 1,
            (Family::V6, IpAddr::V6(_)) => 2,
            _ => continue,
        };
        // The sender is first in the key.
        for (word, at) in row.words().into_iter().take(words).zip([KEY, KEY + 8]) {
            code.load(Width::B8, R1, R10, at);
            code.load_u64(R4, word.mask);
            code.alu_reg(Alu::And, R1, R4);
            code.load_u64(R4, word.value);
            code.jump_if_reg(If::Ne, R1, R4, next);
        }
        code.alu(Alu::Mov, R2, i32::from(row.engine));
        code.jump(found);
        code.bind(next);
    }
    // Always; the verifier wants a way to what follows even where no row is of this family.
    code.alu(Alu::Mov, R2, 0);
    code.jump_if(If::Eq, R2, 0, by_hash);
    code.bind(found);
}

/// Leaves the answer of the program that is asked in R2, or goes to `by_hash` if it is negative.
fn emit_asking(emit: &mut Emitter<'_>, by_hash: Label) {
    let ask = emit.asking();
    let code = &mut emit.code;
    code.alu_reg(Alu::Mov, R1, R6);
    code.call_local(ask);
    code.alu_reg(Alu::Mov, R2, R0);
    code.alu(Alu::Lsh, R2, 32);
    code.alu(Alu::Rsh, R2, 32);
    code.alu_reg(Alu::Mov, R1, R2);
    code.alu(Alu::Rsh, R1, 31);
    code.jump_if(If::Ne, R1, 0, by_hash);
}

/// Adds the function that asks the only program of an array, and where there is none answers -1.
pub(super) fn emit_ask(code: &mut Program, programs: BorrowedFd<'_>) {
    code.load_map(R2, programs);
    code.alu(Alu::Mov, R3, 0);
    // A successful tail call does not return here.
    code.call(Helper::TailCall);
    code.exit_with(-1);
}
