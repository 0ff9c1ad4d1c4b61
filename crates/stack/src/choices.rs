//! Routing choices of sockets (mark, table, interface), each stored once: connections keep its
//! number.

use alloc::vec::Vec;

use crate::fib::Choice;

/// The number of a choice; the default is that nothing has been chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChoiceId(u16);

impl ChoiceId {
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// All choices of a stack, in the order in which they were made. They stay: programs choose few.
/// When there is no number left, a further choice counts as none.
#[derive(Debug, Default)]
pub struct Choices(Vec<Choice>);

impl Choices {
    pub fn note(&mut self, choice: Choice) -> ChoiceId {
        if choice.is_none() {
            return ChoiceId::default();
        }
        let at = match self.0.iter().position(|known| *known == choice) {
            Some(at) => at,
            None if self.0.len() >= usize::from(u16::MAX) => return ChoiceId::default(),
            None => {
                self.0.push(choice);
                self.0.len() - 1
            }
        };
        ChoiceId((at + 1) as u16)
    }

    #[inline]
    pub fn find(&self, id: ChoiceId) -> Choice {
        match id.0.checked_sub(1) {
            None => Choice::NONE,
            Some(at) => self.0.get(usize::from(at)).copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_routing_choices_have_one_number() {
        let mut choices = Choices::default();
        let mark = |mark| Choice {
            mark,
            ..Choice::NONE
        };
        assert!(choices.note(Choice::NONE).is_none());
        let (one, two) = (choices.note(mark(1)), choices.note(mark(2)));
        assert_eq!((choices.note(mark(1)), choices.find(two)), (one, mark(2)));
        assert_eq!(choices.find(ChoiceId::default()), Choice::NONE);
    }
}
