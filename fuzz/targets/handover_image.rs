//! Connections handed over by a hostile program: images of the stack, the handover area of a
//! channel's region, and the stack that adopts them.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use slipstack_channel::{HandoverImage, IMAGES_AT, REGION_BYTES, handover_images};
use slipstack_fuzz::{PEER_MAC, World, framed, number, stack, take};
use slipstack_mem::Region;
use slipstack_stack::{CloseMode, ConnectionImage, Instant, RxMeta, Stack};
use slipstack_wire::tcp::{HEADER_LEN, TcpFlags, TcpHeader};

const NOW: Instant = Instant(1_000_000_000);
const IMAGES: u32 = 4;
/// Bytes of the area's header, of an image, and of an image before the stack's part.
const HEADER: usize = 4096;
const IMAGE: usize = 1024;
const STACK_AT: usize = 64;
const STORM: usize = 8192;

struct Setting {
    region: Region,
    /// Images of real connections, to be damaged.
    sound: Vec<[u8; ConnectionImage::LEN]>,
}

thread_local! {
    static SETTING: RefCell<Option<Setting>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    SETTING.with_borrow_mut(|setting| {
        let setting = setting.get_or_insert_with(|| Setting {
            region: Region::create("fuzz", REGION_BYTES).expect("a region"),
            sound: [0, 1, 2].map(connection).to_vec(),
        });
        run(setting, data);
    });
});

fn run(setting: &Setting, data: &[u8]) {
    let mut rest = data;
    fill(setting, &mut rest);
    let images = handover_images(&setting.region, IMAGES);
    assert!(images.len() <= IMAGES as usize);
    let mut world = World::default();
    let mut stack = stack(NOW, &mut world);
    for image in &images {
        adopt(&setting.region, image, &mut stack, &mut world);
    }
    let mut now = NOW;
    while !rest.is_empty() {
        step(&mut rest, &mut now, &mut stack, &mut world);
        world.frames = 0;
        stack.flush(now, &mut world);
        assert!(
            world.frames <= STORM,
            "one step caused {} frames",
            world.frames
        );
    }
}

/// Writes the area: per image which real connection it starts from, its words, and damage.
fn fill(setting: &Setting, rest: &mut &[u8]) {
    let region = &setting.region;
    let write = |at: usize, bytes: &[u8]| assert!(region.write_from(at, bytes));
    write(IMAGES_AT, &u64::from(IMAGES).to_le_bytes());
    for index in 0..IMAGES as usize {
        let at = IMAGES_AT + HEADER + index * IMAGE;
        let choice = number(rest, 1) as u8;
        let mut bytes = match setting.sound.get(usize::from(choice & 7)) {
            Some(sound) => *sound,
            None => {
                let mut bytes = [0; ConnectionImage::LEN];
                let raw = take(rest, ConnectionImage::LEN);
                bytes[..raw.len()].copy_from_slice(raw);
                bytes
            }
        };
        for _ in 0..choice >> 5 {
            let place = number(rest, 2) as usize % ConnectionImage::LEN;
            bytes[place] ^= number(rest, 1) as u8;
        }
        let words = if choice & 8 == 0 {
            // A length that fits, a ring of a page or more, and its contents.
            let log2 = 12 + number(rest, 1) % 3;
            [bytes.len() as u64, ring(region, log2), 0, 1 << log2]
        } else {
            [(); 4].map(|()| number(rest, 8))
        };
        for (at, word) in (at..).step_by(8).zip(words) {
            write(at, &word.to_le_bytes());
        }
        write(at + STACK_AT, &bytes);
    }
}

/// The word of a ring at the start of the send arena.
fn ring(region: &Region, log2: u64) -> u64 {
    let arena = region.len() - 2 * (1 << 30);
    slipstack_mem::RingWord::new(0, log2 as u32, arena).0
}

/// As the keeper does it.
fn adopt(region: &Region, image: &HandoverImage, stack: &mut Stack, world: &mut World) {
    let Ok(bytes) = image.stack.as_slice().try_into() else {
        return;
    };
    let plain = ConnectionImage::from_bytes(bytes);
    let (acked, written) = plain.send_offsets().unwrap_or_default();
    let Ok(conn) = stack.tcp_adopt(NOW, &plain, world) else {
        return;
    };
    assert!(stack.tcp_endpoints(conn).is_some());
    let known = world.known(conn);
    known.restore(acked, written);
    for (at, len) in [
        (acked, 1),
        (acked, 1460),
        (written, 1460),
        (image.acked, 1 << 20),
    ] {
        let slices = image.gather(region, at, len);
        let mut out = vec![0; len];
        let first = slices[0].copy_to(&mut out);
        let second = slices[1].copy_to(&mut out[first..]);
        assert!(first + second == len || first + second == 0);
    }
    stack.tcp_close(NOW, conn, CloseMode::Orderly, false, world);
}

fn step(rest: &mut &[u8], now: &mut Instant, stack: &mut Stack, world: &mut World) {
    let kind = number(rest, 1) as u8;
    if kind & 3 == 0 {
        now.0 += 1 << (20 + (kind >> 2) % 20);
        stack.on_timers(*now, world);
        return;
    }
    let Some(flow) = world.sent.iter().rev().nth(usize::from(kind >> 6)).copied() else {
        stack.on_neighbour(*now, slipstack_fuzz::PEER.into(), PEER_MAC, world);
        return;
    };
    let delta = |rest: &mut &[u8]| number(rest, 1) as i8 as i32 as u32;
    let header = TcpHeader {
        src_port: flow.peer_port,
        dst_port: flow.own_port,
        seq: flow.ack.wrapping_add(delta(rest)),
        ack: flow.next.wrapping_add(delta(rest)),
        flags: TcpFlags(kind >> 2 & 1 | kind >> 1 & 4 | 16),
        window: number(rest, 2) as u16,
        urgent: 0,
    };
    let mut bytes = [0; HEADER_LEN];
    header.emit(0, &mut bytes);
    stack.on_frame(*now, &framed(6, &bytes), RxMeta::VERIFIED, world);
}

/// The image of an accepted connection: plain, with options and data both ways, half closed.
fn connection(kind: u8) -> [u8; ConnectionImage::LEN] {
    let mut world = World::default();
    let mut stack = stack(NOW, &mut world);
    let options: &[u8] = match kind {
        0 => &[],
        _ => &[
            2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 3, 3, 7, 0,
        ],
    };
    let mut send = |flags: u8, options: &[u8], payload: usize, world: &mut World| {
        let flow = world.sent.last().copied();
        let header = TcpHeader {
            src_port: 4000,
            dst_port: 80,
            seq: flow.map_or(1000, |flow| flow.ack),
            ack: flow.map_or(0, |flow| flow.next),
            flags: TcpFlags(flags),
            window: 500,
            urgent: 0,
        };
        let mut bytes = vec![0; HEADER_LEN + options.len() + payload];
        header.emit(options.len(), &mut bytes);
        bytes[HEADER_LEN..HEADER_LEN + options.len()].copy_from_slice(options);
        stack.on_frame(NOW, &framed(6, &bytes), RxMeta::VERIFIED, world);
        stack.flush(NOW, world);
    };
    let stamps = if kind == 0 {
        &[][..]
    } else {
        &[1, 1, 8, 10, 0, 0, 0, 2, 0, 0, 0, 0]
    };
    send(2, options, 0, &mut world);
    send(16, stamps, 100, &mut world);
    let conn = world.pick(0).expect("the handshake is done");
    world.known(conn).written = 3000;
    stack.tcp_written(conn, 3000, false);
    if kind == 2 {
        stack.tcp_shutdown(NOW, conn, &mut world);
    }
    stack.flush(NOW, &mut world);
    stack.tcp_detach(conn).expect("it can move").to_bytes()
}
