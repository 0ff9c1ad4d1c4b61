//! Our own heap, apart from the program's `malloc`.
//!
//! Our code runs where the program's allocator may not: in signal handlers that interrupted
//! `malloc`, in fork children of threaded programs, below an allocator that reads a file.
//! Allocations happen only inside an open guard (handlers are deferred), so no interrupted thread
//! ever holds the lock of this heap.

mod sys;

#[global_allocator]
static HEAP: sys::Heap = sys::Heap::new();

/// Holds the heap over a fork, so that the child finds it whole.
pub fn hold() {
    HEAP.lock().take();
}

/// Ends [`hold`], in the parent and in the child.
pub fn release() {
    HEAP.lock().release();
}

#[cfg(test)]
mod tests {
    /// A piece of memory full of one byte, and that byte.
    type Filled = (Vec<u8>, u8);

    fn is_whole((piece, byte): &Filled) -> bool {
        piece.iter().all(|it| it == byte)
    }

    #[test]
    fn pieces_of_all_sizes_are_disjoint_and_keep_their_contents() {
        let mut held: Vec<Filled> = Vec::new();
        let mut random = 1_u64;
        for step in 0..40_000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (at, size) = (random >> 33, 1 + (random >> 20) % 700);
            let byte = step as u8;
            match (random >> 60) % 4 {
                _ if held.len() < 100 => held.push((vec![byte; size as usize], byte)),
                0 => {
                    // Grows or shrinks where it is, or moves.
                    let index = at as usize % held.len();
                    let (piece, byte) = &mut held[index];
                    piece.resize(size as usize, *byte);
                    piece.shrink_to_fit();
                }
                1 => assert!(vec![0_u8; size as usize].iter().all(|byte| *byte == 0)),
                _ => {
                    let index = at as usize % held.len();
                    assert!(is_whole(&held.swap_remove(index)), "step {step}");
                }
            }
        }
        assert!(held.iter().all(is_whole));
    }

    #[test]
    fn more_pieces_of_one_size_than_a_bin_keeps_come_and_go() {
        for _ in 0..3 {
            let pieces: Vec<Box<[u8; 48]>> = (0..1000).map(|n| Box::new([n as u8; 48])).collect();
            for (n, piece) in pieces.iter().enumerate() {
                assert_eq!(**piece, [n as u8; 48]);
            }
        }
    }

    #[test]
    fn pieces_are_aligned_as_asked() {
        #[repr(align(128))]
        struct Wide([u8; 100]);
        for n in 0..200 {
            let (wide, narrow) = (Box::new(Wide([n; 100])), Box::new(u128::from(n)));
            assert_eq!((&raw const *wide).addr() % 128, 0);
            assert_eq!((&raw const *narrow).addr() % 16, 0);
            assert_eq!((wide.0[99], *narrow), (n, u128::from(n)));
        }
    }
}
