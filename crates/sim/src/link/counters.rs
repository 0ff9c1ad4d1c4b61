//! Counters of a link.

/// Reason why a frame does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The link is cut.
    Cut,
    /// Longer than the MTU; [`super::too_big::answer`] is a router's error for it.
    TooBig,
    /// Beyond the policer's rate and burst.
    Policed,
    /// The queue is full.
    QueueFull,
    /// The wire lost it.
    Lost,
}

/// Declares the counters once: the struct and the list of names come from one table.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Since the link was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl LinkCounters {
            /// Every counter with its name.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Frames offered to the link.
    offered,
    offered_bytes,
    delivered,
    delivered_bytes,
    dropped_cut,
    dropped_too_big,
    dropped_policed,
    dropped_queue_full,
    dropped_lost,
    /// Second copies.
    duplicated,
    corrupted,
    /// Held back, so that others may overtake.
    reordered,
    /// Congestion experienced set.
    marked,
    /// The longest that the queue has been.
    queue_bytes_max,
}

impl LinkCounters {
    pub(super) fn on_drop(&mut self, reason: DropReason) {
        *match reason {
            DropReason::Cut => &mut self.dropped_cut,
            DropReason::TooBig => &mut self.dropped_too_big,
            DropReason::Policed => &mut self.dropped_policed,
            DropReason::QueueFull => &mut self.dropped_queue_full,
            DropReason::Lost => &mut self.dropped_lost,
        } += 1;
    }

    pub fn dropped(&self) -> u64 {
        self.dropped_cut
            + self.dropped_too_big
            + self.dropped_policed
            + self.dropped_queue_full
            + self.dropped_lost
    }
}
