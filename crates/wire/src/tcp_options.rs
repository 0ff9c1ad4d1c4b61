//! TCP options: MSS (RFC 9293 3.2), window scale and timestamps (RFC 7323), SACK (RFC 2018).

use crate::tcp::OPTIONS_MAX;

/// Most blocks that fit beside a timestamp is 3; without one, 4.
pub const SACK_BLOCKS_MAX: usize = 4;
/// Bytes of a timestamp option with its two NOPs.
pub const TIMESTAMPS_LEN: usize = 12;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: our clock, returned.
    pub echo: u32,
}

/// NOP, NOP, kind and length of timestamps, as one word.
pub(crate) const TIMESTAMPS_AHEAD: u32 = 0x0101_080a;

impl Timestamps {
    /// The option with its two NOPs, in words of the header.
    #[inline]
    pub const fn words(self) -> [u32; 3] {
        [TIMESTAMPS_AHEAD, self.value, self.echo]
    }
}

/// SACK blocks in the order of the option; each is [left, right).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
    len: u8,
}

impl SackBlocks {
    pub const EMPTY: Self = Self {
        blocks: [(0, 0); SACK_BLOCKS_MAX],
        len: 0,
    };

    /// `false`: full.
    pub fn push(&mut self, left: u32, right: u32) -> bool {
        let Some(block) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *block = (left, right);
        self.len += 1;
        true
    }

    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len).min(SACK_BLOCKS_MAX)]
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub const fn len(&self) -> usize {
        self.len as usize
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len as u8);
    }
}

/// The options that we know. Others are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TcpOptions {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    pub timestamps: Option<Timestamps>,
    pub sack: SackBlocks,
}

/// Timestamps alone in the layout that every stack sends (NOP NOP TS): the fast path.
#[inline]
pub fn parse_timestamps_only(options: &[u8]) -> Option<Timestamps> {
    match *options {
        [NOP, NOP, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3] => Some(Timestamps {
            value: u32::from_be_bytes([v0, v1, v2, v3]),
            echo: u32::from_be_bytes([e0, e1, e2, e3]),
        }),
        _ => None,
    }
}

/// The timestamps that [`TcpOptions::parse`] finds.
pub fn find_timestamps(options: &[u8]) -> Option<Timestamps> {
    match *options {
        // An ACK with SACK blocks as Linux and we ourselves send it.
        [NOP, NOP, SACK, len, ..] if options.len() == 2 + usize::from(len) => None,
        [NOP, NOP, TIMESTAMPS, 10, ..] if is_followed_by_sack(options) => {
            parse_timestamps_only(&options[..TIMESTAMPS_LEN])
        }
        _ => TcpOptions::parse(options).timestamps,
    }
}

fn is_followed_by_sack(options: &[u8]) -> bool {
    match options.split_at_checked(TIMESTAMPS_LEN) {
        Some((_, &[NOP, NOP, SACK, len, ref blocks @ ..])) => 2 + blocks.len() == usize::from(len),
        _ => false,
    }
}

impl TcpOptions {
    /// Lenient like every receiver: an option with a wrong length is skipped, one that reaches
    /// beyond the header ends the walk (RFC 9293 3.1, MUST-6, MUST-7). At most 40 steps.
    pub fn parse(bytes: &[u8]) -> Self {
        // A SYN as Linux and we ourselves send it.
        if let [
            MSS,
            4,
            m0,
            m1,
            SACK_PERMITTED,
            2,
            TIMESTAMPS,
            10,
            v0,
            v1,
            v2,
            v3,
            e0,
            e1,
            e2,
            e3,
            NOP,
            WINDOW_SCALE,
            3,
            shift,
        ] = *bytes
        {
            return Self {
                mss: Some(u16::from_be_bytes([m0, m1])),
                window_scale: Some(shift),
                sack_permitted: true,
                timestamps: Some(Timestamps {
                    value: u32::from_be_bytes([v0, v1, v2, v3]),
                    echo: u32::from_be_bytes([e0, e1, e2, e3]),
                }),
                sack: SackBlocks::EMPTY,
            };
        }
        match Self::of_sack(bytes) {
            Some(options) => options,
            None => Self::walk(bytes),
        }
    }

    /// Nothing but SACK blocks, as Linux and we ourselves send them.
    #[inline]
    fn of_sack(bytes: &[u8]) -> Option<Self> {
        let [NOP, NOP, SACK, len, ref blocks @ ..] = *bytes else {
            return None;
        };
        let mut options = Self::default();
        if blocks.len() + 2 == usize::from(len) {
            options.take_sack(blocks);
            return Some(options);
        }
        None
    }

    fn walk(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        loop {
            match *bytes {
                [] | [END, ..] | [_] => return options,
                [NOP, ref rest @ ..] => bytes = rest,
                [kind, len, ..] => {
                    let len = usize::from(len);
                    if len < 2 {
                        return options;
                    }
                    let Some((option, rest)) = bytes.split_at_checked(len) else {
                        return options;
                    };
                    options.take(kind, &option[2..]);
                    bytes = rest;
                }
            }
        }
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([v0, v1, v2, v3]),
                    echo: u32::from_be_bytes([e0, e1, e2, e3]),
                });
            }
            (SACK, blocks) => self.take_sack(blocks),
            _ => {}
        }
    }

    fn take_sack(&mut self, blocks: &[u8]) {
        let (blocks, []) = blocks.as_chunks::<8>() else {
            return;
        };
        for &[l0, l1, l2, l3, r0, r1, r2, r3] in blocks {
            let left = u32::from_be_bytes([l0, l1, l2, l3]);
            self.sack.push(left, u32::from_be_bytes([r0, r1, r2, r3]));
        }
    }

    /// The words of a SYN that offers everything, as [`TcpOptions::emit`] writes them; `None`: it
    /// does not.
    #[inline]
    pub fn syn_words(&self) -> Option<[u32; 5]> {
        let (Some(mss), Some(shift), Some(timestamps)) =
            (self.mss, self.window_scale, self.timestamps)
        else {
            return None;
        };
        let tail = [NOP, WINDOW_SCALE, 3, shift];
        (self.sack_permitted && self.sack.is_empty()).then_some([
            u32::from_be_bytes([MSS, 4, 0, 0]) | u32::from(mss),
            u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, 10]),
            timestamps.value,
            timestamps.echo,
            u32::from_be_bytes(tail),
        ])
    }

    /// Returns whether there are only timestamps, or no options at all.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.mss.is_none()
            && self.window_scale.is_none()
            && !self.sack_permitted
            && self.sack.is_empty()
    }

    /// Writes the options, padded to a multiple of 4, and returns their length. SACK blocks that
    /// do not fit are left out.
    pub fn emit(&self, out: &mut [u8; OPTIONS_MAX]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            put(&[MSS, 4, a, b]);
        }
        // Linux's order: SACK permitted takes the place of the timestamp's two NOPs.
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => put(&[SACK_PERMITTED, 2]),
            (true, false) => put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, true) => put(&[NOP, NOP]),
            (false, false) => {}
        }
        if let Some(timestamps) = self.timestamps {
            let [v0, v1, v2, v3] = timestamps.value.to_be_bytes();
            let [e0, e1, e2, e3] = timestamps.echo.to_be_bytes();
            put(&[TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3]);
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if !self.sack.is_empty() {
            let blocks = self.sack.as_slice();
            let fits = self.sack_blocks_that_fit().min(blocks.len());
            if fits > 0 {
                put(&[NOP, NOP, SACK, (2 + 8 * fits) as u8]);
                for (left, right) in &blocks[..fits] {
                    put(&left.to_be_bytes());
                    put(&right.to_be_bytes());
                }
            }
        }
        at
    }

    const fn sack_blocks_that_fit(&self) -> usize {
        let mut used = 4;
        if self.mss.is_some() {
            used += 4;
        }
        if self.timestamps.is_some() {
            used += TIMESTAMPS_LEN;
        } else if self.sack_permitted {
            used += 4;
        }
        if self.window_scale.is_some() {
            used += 4;
        }
        (OPTIONS_MAX - used) / 8
    }
}

/// Writes timestamps as [`parse_timestamps_only`] reads them.
#[inline]
pub fn emit_timestamps(timestamps: Timestamps, out: &mut [u8; TIMESTAMPS_LEN]) {
    out[..4].copy_from_slice(&[NOP, NOP, TIMESTAMPS, 10]);
    out[4..8].copy_from_slice(&timestamps.value.to_be_bytes());
    out[8..].copy_from_slice(&timestamps.echo.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_option_lengths_end_the_parsing_or_skip_the_option() {
        // RFC 9293 3.2.
        let mss = TcpOptions {
            mss: Some(1460),
            ..Default::default()
        };
        let table: [(&[u8], TcpOptions); 8] = [
            (&[2, 4, 5, 180], mss),
            (&[1, 1, 2, 4, 5, 180, 0, 9, 9], mss),
            (&[2, 3, 5, 180], TcpOptions::default()),
            (&[2, 0, 5, 180], TcpOptions::default()),
            (&[2, 1, 5, 180], TcpOptions::default()),
            (&[2, 4, 5], TcpOptions::default()),
            (&[254, 2, 2, 4, 5, 180], mss),
            (&[2, 4, 5, 180, 8, 10, 1, 2], mss),
        ];
        for (bytes, want) in table {
            assert_eq!(TcpOptions::parse(bytes), want, "{bytes:?}");
        }
    }

    /// Start of the options of ACKs.
    const SHAPES: &[&[u8]] = &[
        &[NOP, NOP, SACK],
        &[
            NOP, NOP, TIMESTAMPS, 10, 0, 0, 0, 1, 0, 0, 0, 2, NOP, NOP, SACK,
        ],
        &[NOP, NOP, TIMESTAMPS, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        &[],
    ];

    proptest! {
        #[test]
        fn timestamps_are_found_as_if_all_options_were_read(
            shape in prop::sample::select(SHAPES),
            len in 0u8..40,
            rest in prop::collection::vec(0u8..12, 0..28),
        ) {
            let lens = [len, rest.len() as u8 + 2];
            for len in lens {
                let options = [shape, &[len], &rest[..]].concat();
                let parsed = TcpOptions::parse(&options);
                prop_assert_eq!(find_timestamps(&options), parsed.timestamps);
                prop_assert_eq!(parsed, TcpOptions::walk(&options));
            }
        }
    }

    #[test]
    fn more_blocks_than_fit_beside_timestamps_are_cut() {
        // RFC 2018 3.
        let mut sack = SackBlocks::EMPTY;
        for i in 0..4 {
            assert!(sack.push(i * 10, i * 10 + 5));
        }
        assert!(!sack.push(99, 100));
        let options = TcpOptions {
            timestamps: Some(Timestamps::default()),
            sack,
            ..Default::default()
        };
        let mut bytes = [0; OPTIONS_MAX];
        let len = options.emit(&mut bytes);
        assert_eq!(len, 40);
        assert_eq!(TcpOptions::parse(&bytes[..len]).sack.len(), 3);
    }

    #[test]
    fn the_fast_path_parses_emitted_headers() {
        let timestamps = Timestamps {
            value: 0x0102_0304,
            echo: 0x0506_0708,
        };
        let mut bytes = [0; OPTIONS_MAX];
        let len = TcpOptions {
            timestamps: Some(timestamps),
            ..Default::default()
        }
        .emit(&mut bytes);
        assert_eq!(parse_timestamps_only(&bytes[..len]), Some(timestamps));
        let mut alone = [0; TIMESTAMPS_LEN];
        emit_timestamps(timestamps, &mut alone);
        assert_eq!(alone, bytes[..len]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let _ = TcpOptions::parse(&bytes);
        }

        #[test]
        fn emit_and_parse_agree(
            mss: Option<u16>, window_scale: Option<u8>, sack_permitted: bool,
            timestamps in proptest::option::of(any::<(u32, u32)>()),
            blocks in proptest::collection::vec(any::<(u32, u32)>(), 0..=2),
        ) {
            let timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
            let mut sack = SackBlocks::EMPTY;
            // A SYN carries no blocks; with all else on board there is room for one.
            let room = if mss.is_some() || window_scale.is_some() { 1 } else { 2 };
            for (left, right) in blocks.into_iter().take(room) {
                sack.push(left, right);
            }
            let options = TcpOptions { mss, window_scale, sack_permitted, timestamps, sack };
            let mut bytes = [0; OPTIONS_MAX];
            let len = options.emit(&mut bytes);
            prop_assert_eq!(len % 4, 0);
            prop_assert_eq!(TcpOptions::parse(&bytes[..len]), options);
            if let Some(words) = options.syn_words() {
                let flat: std::vec::Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
                prop_assert_eq!(&bytes[..len], &flat[..]);
            }
        }
    }
}
