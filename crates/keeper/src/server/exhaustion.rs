//! The programs that have been told that all slots are taken.

use crate::leases::Family;

/// Time after which a program is told again.
const TELL_AGAIN_NS: u64 = 60_000_000_000;
/// Programs that are remembered at most; of more the one that was told first is told again sooner.
const TOLD_MAX: usize = 64;

/// The families that were told lately, and when.
#[derive(Debug, Default)]
pub(super) struct Exhaustion {
    told: Vec<(Option<Family>, u64)>,
}

impl Exhaustion {
    /// Returns whether no process of `family` has been told lately, and notes that one is now.
    pub(super) fn is_news(&mut self, family: Option<Family>, now_ns: u64) -> bool {
        self.told
            .retain(|(_, at_ns)| now_ns.saturating_sub(*at_ns) < TELL_AGAIN_NS);
        if self.told.iter().any(|(told, _)| *told == family) {
            return false;
        }
        if self.told.len() == TOLD_MAX {
            self.told.remove(0);
        }
        self.told.push((family, now_ns));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Exhaustion, TELL_AGAIN_NS, TOLD_MAX};
    use crate::leases::Family;

    #[test]
    fn each_family_is_told_once_a_minute() {
        let mut exhaustion = Exhaustion::default();
        assert!(exhaustion.is_news(Some(Family(1)), 5));
        assert!(!exhaustion.is_news(Some(Family(1)), 6));
        assert!(exhaustion.is_news(Some(Family(2)), 6));
        assert!(!exhaustion.is_news(Some(Family(1)), 4 + TELL_AGAIN_NS));
        assert!(exhaustion.is_news(Some(Family(1)), 5 + TELL_AGAIN_NS));
    }

    #[test]
    fn a_bounded_number_of_families_is_remembered() {
        let mut exhaustion = Exhaustion::default();
        let families = 0..=TOLD_MAX as u64;
        assert!(
            families
                .into_iter()
                .all(|it| exhaustion.is_news(Some(Family(it)), 1))
        );
        assert!(exhaustion.is_news(Some(Family(0)), 1));
        assert!(!exhaustion.is_news(Some(Family(TOLD_MAX as u64)), 1));
        assert_eq!(exhaustion.told.len(), TOLD_MAX);
    }
}
