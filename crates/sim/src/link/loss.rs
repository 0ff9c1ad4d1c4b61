//! Loss on the wire: independent, or in bursts.

use slipstack_stack::rng::Rng;

use super::params::Share;

/// Pattern of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Each with the same probability.
    Random(Share),
    /// Gilbert and Elliott's two states, applied frame by frame. The mean burst has 1 / `to_good`
    /// frames, the bad state's share of the time is `to_bad` / (`to_bad` + `to_good`).
    Bursts {
        /// From the good state to the bad one.
        to_bad: Share,
        to_good: Share,
        /// Loss in each state.
        when_good: Share,
        when_bad: Share,
    },
}

impl Default for Loss {
    fn default() -> Self {
        Self::Random(Share::NEVER)
    }
}

impl Loss {
    /// Bursts of `frames_mean` frames, all of them lost, and on the whole this share.
    pub fn bursts_of(frames_mean: u32, share: Share) -> Self {
        let to_good = 1.0 / f64::from(frames_mean.max(1));
        let share = f64::from(share.as_ppm()) / 1e6;
        let to_bad = to_good * share / (1.0 - share).max(1e-6);
        let ppm = |probability: f64| Share::ppm((probability * 1e6).round().min(1e6) as u32);
        Self::Bursts {
            to_bad: ppm(to_bad),
            to_good: ppm(to_good),
            when_good: Share::NEVER,
            when_bad: Share::ALWAYS,
        }
    }
}

/// Which of the two states the wire is in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossState {
    is_bad: bool,
}

impl LossState {
    pub fn is_lost(&mut self, loss: Loss, rng: &mut Rng) -> bool {
        match loss {
            Loss::Random(share) => share.happens(rng),
            Loss::Bursts {
                to_bad,
                to_good,
                when_good,
                when_bad,
            } => {
                let turns = if self.is_bad { to_good } else { to_bad };
                self.is_bad ^= turns.happens(rng);
                let share = if self.is_bad { when_bad } else { when_good };
                share.happens(rng)
            }
        }
    }
}
