//! Parameters of a link.

use super::loss::Loss;

/// A probability in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    pub const NEVER: Self = Self(0);
    pub const ALWAYS: Self = Self(1_000_000);

    /// Millionths; more than a million is a million.
    pub const fn ppm(millionths: u32) -> Self {
        if millionths > Self::ALWAYS.0 {
            return Self::ALWAYS;
        }
        Self(millionths)
    }

    pub const fn percent(percent: u32) -> Self {
        Self::ppm(percent.saturating_mul(10_000))
    }

    pub const fn as_ppm(self) -> u32 {
        self.0
    }

    /// Draws a random decision. Nothing is drawn for a probability of zero, so that an unused
    /// impairment does not disturb the others.
    pub fn happens(self, rng: &mut slipstack_stack::rng::Rng) -> bool {
        self.0 != 0 && rng.below(Self::ALWAYS.0) < self.0
    }
}

/// The queue before the bottleneck. 0 = no limit, no marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueParams {
    /// Bytes and frames that wait or are being sent; a frame that would exceed either is dropped.
    pub bytes_max: u64,
    pub packets_max: u32,
    /// ECN-capable packets that find more than this waiting are marked (DCTCP's K, RFC 8257 3.1).
    pub mark_bytes: u64,
}

/// A token bucket without a queue (RFC 2698's single rate, two colours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bits per second.
    pub rate: u64,
    pub burst_bytes: u64,
}

/// One direction of a link. The default is perfect: nothing is lost and nothing takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkParams {
    /// Bits of Ethernet frames (without preamble and FCS) per second; 0 = no limit.
    pub rate: u64,
    pub queue: QueueParams,
    pub policer: Option<Policer>,
    /// Propagation, one way.
    pub delay_ns: u64,
    /// Added to the delay, up to this, evenly. Frames keep their order, as in a queue elsewhere.
    pub jitter_ns: u64,
    pub loss: Loss,
    pub duplication: Share,
    /// Frames that are overtaken: late by up to `reorder_ns`.
    pub reordering: Share,
    pub reorder_ns: u64,
    /// Frames of which one bit is flipped, or (one in ten) the end cut off.
    pub corruption: Share,
    /// Largest IP packet; 0 = no limit.
    pub mtu: u32,
    /// Nothing passes.
    pub is_cut: bool,
}

/// A combination of parameters that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamsError {
    /// A queue limit or a marking threshold needs a rate.
    QueueWithoutRate,
    /// A policer with rate or burst 0 passes nothing.
    EmptyPolicer,
    /// Reordering needs to know by how much.
    ReorderingWithoutDelay,
}

impl std::fmt::Display for ParamsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::QueueWithoutRate => "a queue limit or marking threshold needs a rate",
            Self::EmptyPolicer => "a policer needs a rate and a burst",
            Self::ReorderingWithoutDelay => "reordering needs to know by how much frames are late",
        })
    }
}

impl std::error::Error for ParamsError {}

impl LinkParams {
    /// 5 % lost, 5 % doubled, 10 % reordered, 1 % corrupted.
    pub const ROUGH: Self = Self {
        rate: 0,
        queue: QueueParams {
            bytes_max: 0,
            packets_max: 0,
            mark_bytes: 0,
        },
        policer: None,
        delay_ns: 5_000_000,
        jitter_ns: 0,
        loss: Loss::Random(Share::percent(5)),
        duplication: Share::percent(5),
        reordering: Share::percent(10),
        reorder_ns: 20_000_000,
        corruption: Share::percent(1),
        mtu: 0,
        is_cut: false,
    };

    /// Bytes that the path holds at this rate and round-trip time.
    pub const fn bandwidth_delay_product(rate: u64, round_trip_ns: u64) -> u64 {
        (rate as u128 * round_trip_ns as u128 / 8_000_000_000) as u64
    }

    /// A bottleneck of `mbits` Mbit/s on a path with this round trip, with a queue of
    /// `queue_percent` per cent of the bandwidth-delay product.
    pub fn bottleneck(mbits: u64, round_trip_ms: u64, queue_percent: u64) -> Self {
        let (rate, round_trip_ns) = (mbits * 1_000_000, round_trip_ms * 1_000_000);
        let product = Self::bandwidth_delay_product(rate, round_trip_ns);
        Self {
            rate,
            delay_ns: round_trip_ns / 2,
            queue: QueueParams {
                bytes_max: product * queue_percent / 100,
                ..QueueParams::default()
            },
            ..Self::default()
        }
    }

    /// Returns the link, cut.
    pub const fn cut(self) -> Self {
        Self {
            is_cut: true,
            ..self
        }
    }

    pub fn check(&self) -> Result<(), ParamsError> {
        if self.rate == 0 && self.queue != QueueParams::default() {
            return Err(ParamsError::QueueWithoutRate);
        }
        if self
            .policer
            .is_some_and(|policer| policer.rate == 0 || policer.burst_bytes == 0)
        {
            return Err(ParamsError::EmptyPolicer);
        }
        if self.reordering != Share::NEVER && self.reorder_ns == 0 {
            return Err(ParamsError::ReorderingWithoutDelay);
        }
        Ok(())
    }
}
