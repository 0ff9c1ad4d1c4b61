use super::*;
use crate::rng::Rng;
use proptest::prelude::*;
use std::vec;

const SECOND: u64 = 1_000_000_000;
const LIMIT: usize = 256 << 10;

fn fragments() -> Fragments {
    let key = Rng::new(&[3; 32]).sip_key();
    Fragments::new(key, 30 * SECOND, 576, LIMIT)
}

fn piece(identification: u32, offset: u16, has_more: bool, payload: &[u8]) -> Fragment<'_> {
    Fragment {
        key: Key {
            src: IpAddr::from([10, 0, 0, 9]),
            dst: IpAddr::from([10, 0, 0, 5]),
            protocol: 17,
            identification,
        },
        offset,
        has_more,
        tos: 0,
        packet: payload,
        next_header: 17,
        payload,
    }
}

fn take(all: &mut Fragments, fragment: Fragment<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    let mut refused = None;
    let whole = all.take(Instant::ZERO, &fragment, |why| refused = Some(why));
    match refused {
        Some(why) => Err(why),
        None => Ok(whole.map(|whole| whole.payload)),
    }
}

#[test]
fn contradicting_fragments_discard_their_packet() {
    use Counter::{DropFragmentDuplicate, DropFragmentOverlap};
    // Offset, more to come, length: after 16..32 and 32..48, the latter not the last.
    let table = [
        (16, true, 16, DropFragmentDuplicate),
        (24, true, 16, DropFragmentDuplicate),
        (24, true, 32, DropFragmentOverlap),
        (8, true, 16, DropFragmentOverlap),
        (8, true, 64, DropFragmentOverlap),
        (16, true, 8, DropFragmentDuplicate),
        (16, false, 8, DropFragmentOverlap),
        (40, false, 8, DropFragmentOverlap),
        (0, false, 16, DropFragmentOverlap),
    ];
    for (offset, has_more, len, want) in table {
        let mut all = fragments();
        for offset in [16, 32] {
            assert_eq!(take(&mut all, piece(1, offset, true, &[1; 16])), Ok(None));
        }
        let bytes = vec![2; len];
        let got = take(&mut all, piece(1, offset, has_more, &bytes)).unwrap_err();
        assert_eq!(got.0, want, "{offset} {has_more} {len}");
        if want == DropFragmentOverlap {
            assert_eq!(got.1, 3, "the two before go with it");
            assert!(all.cost() < 400, "{}", all.cost());
            let late = take(&mut all, piece(1, 64, true, &[1; 8]));
            assert_eq!(late, Err((DropFragmentOverlap, 1)));
        }
    }
}

#[test]
fn a_fragment_beyond_a_gap_does_not_complete_the_packet() {
    let mut all = fragments();
    for offset in [16, 48] {
        assert_eq!(take(&mut all, piece(1, offset, true, &[1; 16])), Ok(None));
    }
    let over_the_gap = take(&mut all, piece(1, 24, true, &[1; 32]));
    assert_eq!(over_the_gap, Err((Counter::DropFragmentOverlap, 3)));
}

#[test]
fn a_fragment_beyond_the_end_is_invalid() {
    let mut all = fragments();
    assert_eq!(take(&mut all, piece(1, 16, false, &[1; 8])), Ok(None));
    let beyond = take(&mut all, piece(1, 24, true, &[1; 8]));
    assert_eq!(beyond, Err((Counter::DropFragmentOverlap, 2)));
    assert_eq!(take(&mut all, piece(2, 16, false, &[1; 8])), Ok(None));
    let other = take(&mut all, piece(2, 32, false, &[1; 8]));
    assert_eq!(other, Err((Counter::DropFragmentOverlap, 2)));
}

#[test]
fn the_fragments_of_a_packet_are_bounded() {
    let mut all = fragments();
    for at in 1..=PIECES_MAX as u16 {
        assert_eq!(take(&mut all, piece(1, at * 8, true, &[1; 8])), Ok(None));
    }
    let one_more = take(&mut all, piece(1, 0, true, &[1; 8]));
    let gone = PIECES_MAX as u64 + 1;
    assert_eq!(one_more, Err((Counter::DropFragmentPieces, gone)));
}

#[test]
fn the_oldest_incomplete_packets_are_dropped_for_new_ones() {
    let mut all = fragments();
    let mut evicted = 0;
    for identification in 0..10_000 {
        let first = piece(identification, 8, true, &[7; 1000]);
        all.take(Instant::ZERO, &first, |(why, fragments)| {
            assert_eq!((why, fragments), (Counter::DropFragmentMemory, 1));
            evicted += 1;
        });
        assert!(all.cost() <= LIMIT);
    }
    assert!(evicted > 9_000);
    assert_eq!(all.partials.len() + evicted, 10_000);
    // The last packet can still be completed.
    let rest = take(&mut all, piece(9_999, 1008, false, b"end"));
    assert_eq!(rest, Ok(None));
    let whole = take(&mut all, piece(9_999, 0, true, &[1; 8])).unwrap();
    assert_eq!(whole.unwrap().len(), 1011);
}

#[test]
fn reassembly_times_out_and_returns_the_first_fragment() {
    let mut all = fragments();
    let first = [9; 800];
    let _ = take(&mut all, piece(1, 0, true, &first));
    let late = piece(2, 8, true, &[1; 8]);
    all.take(Instant(SECOND), &late, |why| panic!("{why:?}"));
    assert_eq!(all.next_deadline(), Some(Instant(30 * SECOND)));
    assert_eq!(all.pop_expired(Instant(30 * SECOND - 1)), None);
    let expired = all.pop_expired(Instant(30 * SECOND)).unwrap();
    assert_eq!((expired.fragments, expired.first), (1, vec![9; 576]));
    assert_eq!(all.pop_expired(Instant(30 * SECOND)), None);
    let expired = all.pop_expired(Instant(31 * SECOND)).unwrap();
    assert_eq!((expired.fragments, expired.first), (1, vec![]));
    assert_eq!((all.cost(), all.next_deadline()), (0, None));
}

#[test]
fn a_congestion_mark_on_a_fragment_marks_the_packet() {
    // RFC 3168 5.3.
    let both = |first: u8, second: u8| {
        let mut all = fragments();
        let one = Fragment {
            tos: first,
            ..piece(1, 0, true, &[1; 8])
        };
        let two = Fragment {
            tos: second,
            ..piece(1, 8, false, &[1; 8])
        };
        let mut refused = None;
        all.take(Instant::ZERO, &one, |_| {});
        let whole = all.take(Instant::ZERO, &two, |why| refused = Some(why));
        whole.map(|whole| whole.tos).ok_or(refused)
    };
    assert_eq!(both(0x12, 0x12), Ok(0x12));
    assert_eq!(both(0x12, 0x13), Ok(0x13));
    let refused = Some((Counter::DropFragmentEcn, 2));
    assert_eq!(both(0x10, 0x13), Err(refused));
}

#[test]
fn completed_packets_leave_no_state() {
    let mut all = fragments();
    let _ = take(&mut all, piece(0, 0, true, &[1; 8]));
    for identification in 1..5_000 {
        assert_eq!(
            take(&mut all, piece(identification, 0, true, &[1; 8])),
            Ok(None)
        );
        let whole = take(&mut all, piece(identification, 8, false, &[2; 3])).unwrap();
        assert_eq!(whole.unwrap().len(), 11);
    }
    assert!(all.deadlines.len() <= STALE_MAX + 3);
    assert_eq!(all.partials.len(), 1);
}

proptest! {
    #[test]
    fn fragments_in_any_order_give_the_packet(len in 1usize..9000, size in 1u16..100, seed: u64) {
        let packet: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let size = usize::from(size).max(len.div_ceil(PIECES_MAX * 8)) * 8;
        let mut parts: Vec<_> = packet.chunks(size).enumerate().collect();
        let mut rng = Rng::new(&[seed as u8; 32]);
        for at in (1..parts.len()).rev() {
            parts.swap(at, rng.below(at as u32 + 1) as usize);
        }
        let mut all = fragments();
        let mut got = None;
        let last = parts.len() - 1;
        for (count, (at, bytes)) in parts.into_iter().enumerate() {
            let offset = (at * size) as u16;
            let has_more = at * size + bytes.len() < len;
            let taken = take(&mut all, piece(1, offset, has_more, bytes)).unwrap();
            prop_assert_eq!(taken.is_some(), count == last);
            got = taken;
        }
        prop_assert_eq!(got, Some(packet));
        prop_assert_eq!(all.cost(), 0);
    }
}
