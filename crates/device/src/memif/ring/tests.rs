//! Two ends of a link in one process, and malicious peers.

use super::*;
use crate::memif::control::bell;

type Violations = fn(&Ring);

/// A client and its server in one process.
fn pair() -> (Connection, Connection) {
    pair_of(1)
}

fn pair_of(lanes: usize) -> (Connection, Connection) {
    let bells = (0..lanes).map(|_| [bell().unwrap(), bell().unwrap()]);
    let client = Connection::make(1, 4, bells.collect(), true)
        .unwrap()
        .unwrap();
    let mut fds = client.descriptors();
    for bells in fds[..2 * lanes].chunks_exact_mut(2) {
        bells.swap(0, 1);
    }
    let fds = fds.iter().map(|fd| fd.try_clone_to_owned().unwrap());
    let turned = |lane: &LaneShape| LaneShape {
        rx: lane.tx,
        tx: lane.rx,
    };
    let shape = ConnectionShape {
        is_client: false,
        lanes: client.shape.lanes.iter().map(turned).collect(),
        ..client.shape.clone()
    };
    let server = Connection::open(shape, fds.collect()).unwrap();
    (client, server)
}

fn send(link: &Connection, frame: &[u8]) -> bool {
    send_by(link, 0, frame)
}

fn send_by(link: &Connection, lane: usize, frame: &[u8]) -> bool {
    let (header, payload) = frame.split_at(frame.len() / 2);
    let payload = [RawSlice::of(payload), RawSlice::EMPTY];
    send_parts(link, lane, header, payload).unwrap()
}

/// A batch of one frame.
fn send_parts(
    link: &Connection,
    lane: usize,
    header: &[u8],
    payload: [RawSlice<'_>; 2],
) -> Result<bool, ProtocolViolation> {
    let mut batch = link.begin(lane)?;
    let is_put = link.put(&mut batch, header, payload, false)?;
    link.publish(&batch);
    Ok(is_put)
}

#[test]
fn a_batch_is_seen_as_a_whole_and_takes_no_more_than_the_ring_has_room_for() {
    let (client, server) = pair();
    let mut buffer = vec![0; FRAME_MAX];
    for (from, to) in [(&client, &server), (&server, &client)] {
        let mut batch = from.begin(0).unwrap();
        let mut count = 0;
        while from
            .put(&mut batch, &[7; 60], [RawSlice::EMPTY; 2], false)
            .unwrap()
        {
            count += 1;
        }
        assert_eq!((count, batch.frames), (16, 16));
        assert!(!to.has_rx(0));
        from.publish(&batch);
        let taken = to.receive(0, 256, &mut buffer, |frame, _| assert_eq!(frame, [7; 60]));
        assert_eq!(taken, Ok(16));
        let none = from.begin(0).unwrap();
        from.publish(&none);
        assert!(!to.has_rx(0));
    }
}

fn receive(link: &Connection) -> Option<Vec<u8>> {
    receive_by(link, 0)
}

fn receive_by(link: &Connection, lane: usize) -> Option<Vec<u8>> {
    let (mut buffer, mut frame) = (vec![0; FRAME_MAX], None);
    let take = |bytes: &mut [u8], _| frame = Some(bytes.to_vec());
    link.receive(lane, 1, &mut buffer, take).unwrap();
    frame
}

#[test]
fn queues_do_not_touch_each_other() {
    let (client, server) = pair_of(3);
    for (from, to) in [(&client, &server), (&server, &client)] {
        for lane in 0..3 {
            for number in 0..16 {
                assert!(send_by(from, lane, &[lane as u8, number, 7]));
            }
            assert!(!send_by(from, lane, &[9; 60]));
        }
        for lane in (0..3).rev() {
            for number in 0..16 {
                assert!(to.has_rx(lane));
                assert_eq!(receive_by(to, lane), Some(vec![lane as u8, number, 7]));
            }
            assert!(!to.has_rx(lane));
        }
    }
}

#[test]
fn frames_go_both_ways_in_order_and_a_full_ring_takes_none() {
    let (client, server) = pair();
    for lap in 0..5 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            for number in 0..16 {
                assert!(send(from, &[lap, number, 1, 2, 3]));
            }
            assert!(!send(from, &[9; 60]));
            assert!(to.has_rx(0));
            for number in 0..16 {
                assert_eq!(receive(to), Some(vec![lap, number, 1, 2, 3]));
            }
            assert_eq!(receive(to), None);
            assert!(!to.has_rx(0));
        }
    }
}

#[test]
fn frames_come_in_bursts_of_the_requested_size() {
    let (client, server) = pair();
    for (from, to) in [(&client, &server), (&server, &client)] {
        for number in 0..10 {
            assert!(send(from, &[number, 1]));
        }
        let mut seen = Vec::new();
        let mut buffer = vec![0; FRAME_MAX];
        for (most, got) in [(0, 0), (4, 4), (16, 6), (16, 0)] {
            let take = |frame: &mut [u8], _| seen.push(frame[0]);
            assert_eq!(to.receive(0, most, &mut buffer, take), Ok(got));
        }
        assert_eq!(seen, Vec::from_iter(0..10));
        for number in 0..16 {
            assert!(send(from, &[number]), "every buffer was given back");
        }
        assert_eq!(to.receive(0, 99, &mut buffer, |_, _| {}), Ok(16));
    }
}

#[test]
fn a_frame_in_several_buffers_is_put_together() {
    let (client, server) = pair();
    for part in [[1; 40], [2; 40]] {
        assert!(send(&client, &part));
    }
    let rx = &server.lanes[0].rx;
    let mut first = rx.read(0);
    first.flags = DESCRIPTOR_NEXT;
    rx.write(0, first);
    assert_eq!(receive(&server), Some([[1; 40], [2; 40]].concat()));
    assert_eq!(receive(&server), None);
}

#[test]
fn false_ring_positions_of_a_peer_are_detected() {
    let lies: [(&str, Violations); 5] = [
        ("exceeds", |ring| {
            ring.region
                .u16(HEAD_AT)
                .unwrap()
                .store(17, Ordering::Relaxed)
        }),
        ("outside", |ring| {
            change(ring, |desc| desc.offset = u32::MAX)
        }),
        ("outside", |ring| change(ring, |desc| desc.len = u32::MAX)),
        ("outside", |ring| change(ring, |desc| desc.region = 1)),
        ("no end", |ring| {
            ring.region
                .u16(HEAD_AT)
                .unwrap()
                .store(16, Ordering::Relaxed);
            for index in 0..16 {
                let mut desc = ring.read(index);
                desc.flags = DESCRIPTOR_NEXT;
                desc.len = 1;
                ring.write(index, desc);
            }
        }),
    ];
    for (word, violation) in lies {
        let (client, server) = pair();
        assert!(send(&client, &[5; 60]));
        violation(&client.lanes[0].tx);
        let found = server.receive(0, 1, &mut vec![0; FRAME_MAX], |_, _| {});
        let found = found.unwrap_err();
        assert!(found.0.contains(word), "{word}: {found:?}");
    }
    for violation in [
        |desc: &mut Desc| desc.offset = u32::MAX,
        |desc: &mut Desc| desc.region = 7,
        |desc: &mut Desc| desc.len = 8,
    ] {
        let (client, server) = pair();
        change(&client.lanes[0].rx, violation);
        assert!(send_parts(&server, 0, &[1; 60], [RawSlice::EMPTY; 2]).is_err());
    }
}

fn change(ring: &Ring, how: impl Fn(&mut Desc)) {
    let mut desc = ring.read(0);
    how(&mut desc);
    ring.write(0, desc);
}

/// Returns, for a frame without and with the mark, whether the receiver sees a partial checksum.
fn marks(from: &Connection, to: &Connection) -> Vec<bool> {
    let mut seen = Vec::new();
    for is_partial in [false, true, false] {
        let mut batch = from.begin(0).unwrap();
        let put = from.put(&mut batch, &[7; 60], [RawSlice::EMPTY; 2], is_partial);
        assert_eq!(put, Ok(true));
        from.publish(&batch);
        let take = |_: &mut [u8], is_partial| seen.push(is_partial);
        to.receive(0, 1, &mut vec![0; FRAME_MAX], take).unwrap();
    }
    seen
}

#[test]
fn a_partial_checksum_is_marked_in_both_directions_and_heeded_only_where_it_was_agreed_upon() {
    let (client, mut server) = pair();
    for _ in 0..20 {
        assert_eq!(marks(&client, &server), [false, true, false]);
        assert_eq!(marks(&server, &client), [false, true, false]);
    }
    server.shape.takes_partial = false;
    assert_eq!(marks(&client, &server), [false; 3]);
}

#[test]
fn an_invalid_ring_is_refused() {
    let (client, _) = pair();
    let open = |change: fn(&mut ConnectionShape)| {
        let mut shape = client.shape.clone();
        change(&mut shape);
        let fds = client.descriptors();
        let fds = fds.iter().map(|fd| fd.try_clone_to_owned().unwrap());
        Connection::open(shape, fds.collect()).unwrap_err()
    };
    open(|shape| shape.lanes[0].rx.offset += 64);
    open(|shape| shape.lanes[0].rx.offset = u32::MAX - 63);
    open(|shape| shape.lanes[0].rx.log2 = 15);
    open(|shape| shape.lanes[0].tx.region = 1);
    open(|shape| shape.lanes.clear());
    open(|shape| shape.regions[0] += 4096);
    open(|shape| shape.regions.push(1));
}

/// Numbers that follow from a seed, many of them at an edge.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^ word >> 31
    }

    fn any(&mut self) -> u32 {
        let word = self.next();
        match word % 8 {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << 31,
            3 => (word >> 32) as u32 % 32,
            4 => (word >> 32) as u32 % 4096,
            5 => ((word >> 32) as u32 % 64) * 2048,
            _ => (word >> 32) as u32,
        }
    }
}

/// Writes over a ring what its peer may: positions, flags, descriptors.
fn scribble(ring: &Ring, numbers: &mut Numbers) {
    for _ in 0..1 + numbers.next() % 6 {
        let index = numbers.next() as u16 % 16;
        let mut desc = ring.read(index);
        match numbers.next() % 8 {
            0 => desc.flags = numbers.any() as u16,
            1 => desc.region = numbers.any() as u16,
            2 => desc.len = numbers.any(),
            3 => desc.offset = numbers.any(),
            place => {
                let at = [HEAD_AT, TAIL_AT, FLAGS_AT, HEAD_AT][place as usize - 4];
                let word = ring.region.u16(ring.offset + at).unwrap();
                let near = word
                    .load(Ordering::Relaxed)
                    .wrapping_add(numbers.next() as u16 % 5);
                let value = [near, numbers.any() as u16][numbers.next() as usize % 2];
                word.store(value, Ordering::Relaxed);
            }
        }
        ring.write(index, desc);
    }
}

#[test]
fn arbitrary_ring_contents_get_a_bounded_answer() {
    let (mut violations, mut frames) = (0, 0);
    for seed in 0..3000 {
        let mut numbers = Numbers(seed);
        let (client, server) = pair();
        let (honest, liar) = match seed % 2 {
            0 => (&server, &client),
            _ => (&client, &server),
        };
        let mut buffer = vec![0; FRAME_MAX];
        for _ in 0..4 {
            let payload = [RawSlice::of(&[7; 900]), RawSlice::EMPTY];
            let _ = send_parts(liar, 0, &[1; 60], payload);
            scribble(&liar.lanes[0].tx, &mut numbers);
            scribble(&liar.lanes[0].rx, &mut numbers);
            let taken = honest.receive(0, 256, &mut buffer, |frame, _| {
                assert!(frame.len() <= FRAME_MAX);
                frames += 1;
            });
            // A ring has sixteen entries.
            assert!(taken.unwrap_or(0) <= 16);
            violations += usize::from(taken.is_err());
            let sent = send_parts(honest, 0, &[2; 60], payload);
            violations += usize::from(sent.is_err());
        }
    }
    assert!(
        violations > 1000 && frames > 1000,
        "{violations} violations, {frames} frames"
    );
}
