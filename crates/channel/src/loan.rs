//! Words of a connection's cell that say whether processes other than its owner may use it, and how
//! far the owner has moved their bytes.
//!
//! The keeper reads them: after the owner was killed, another process can go on with the
//! connection if it is known which of its bytes are in the rings and which with that process.
//!
//! Bytes for the user are counted by the position of the receive ring, from which only the steward
//! takes some while it gives them: the words have the position at which those of the user begin. If
//! nothing but the steward uses the connection in its owner, so are the user's bytes by that of the
//! send ring, which holds at any instant. Otherwise the words have their number, and are unsure
//! while they are put into the ring.

const LENT: u64 = 1;
const UNSURE: u64 = 1 << 1;
const TAKING: u64 = 1 << 2;
/// Bytes may be with the user that have not been taken out of the receive ring.
const GIVING: u64 = 1 << 3;
/// Nothing but the steward uses the connection in its owner.
const ALONE: u64 = 1 << 4;
/// No process but the user and the owner has the connection.
const SOLE: u64 = 1 << 5;
const USER_SHIFT: u32 = 32;

/// See the [module documentation](self). Numbers of bytes are modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loan {
    pub(crate) word: u64,
    /// Two numbers: of the bytes of the user that are in the send ring, or were, and of those that
    /// it has been given. In a cell the second one is a position, and with [`ALONE`] both are.
    pub(crate) counts: u64,
}

impl Loan {
    /// No other process may use the connection.
    pub const NONE: Loan = Loan { word: 0, counts: 0 };

    /// A connection that this process may use; 0: it is not known which one does. `taken`: bytes of
    /// the user that are in the send ring, or were. `given`: bytes that it has been given.
    #[must_use]
    pub fn to(user: u32, taken: u32, given: u32) -> Loan {
        let word = u64::from(user) << USER_SHIFT | LENT;
        Loan {
            word,
            counts: joined(taken, given),
        }
    }

    /// The loan of a connection that nothing but the steward uses.
    #[must_use]
    pub fn alone(self) -> Loan {
        self.with(ALONE)
    }

    /// The loan of a connection that no process but its user and its owner has.
    #[must_use]
    pub fn sole(self) -> Loan {
        self.with(SOLE)
    }

    /// The loan while it is not known whether bytes have been moved.
    #[must_use]
    pub fn unsure(self) -> Loan {
        self.with(UNSURE)
    }

    /// The loan while the owner may have bytes of the user which are not in the ring.
    #[must_use]
    pub fn taking(self) -> Loan {
        self.with(TAKING)
    }

    /// The loan while the user may have bytes which are in the receive ring too.
    #[must_use]
    pub fn giving(self) -> Loan {
        self.with(GIVING)
    }

    /// The loan while bytes are put into the send ring.
    #[must_use]
    pub fn putting(self) -> Loan {
        match self.is_alone() {
            true => self.taking(),
            false => self.taking().unsure(),
        }
    }

    fn with(self, bit: u64) -> Loan {
        Loan {
            word: self.word | bit,
            ..self
        }
    }

    /// As it is in a cell, whose send ring has been written and whose receive ring has been read up
    /// to these positions.
    #[must_use]
    pub(crate) fn at(self, written: u64, read: u64) -> Loan {
        let (taken, given) = (self.counts as u32, (self.counts >> 32) as u32);
        let taken = match self.is_alone() {
            true => (written as u32).wrapping_sub(taken),
            false => taken,
        };
        Loan {
            counts: joined(taken, (read as u32).wrapping_sub(given)),
            ..self
        }
    }

    /// Whether another process has the connection, too.
    pub fn is_lent(self) -> bool {
        self.word & LENT != 0
    }

    /// Whether another process may go on with the connection.
    pub fn is_sound(self) -> bool {
        self.word & (LENT | UNSURE) == LENT
    }

    pub fn is_taking(self) -> bool {
        self.word & TAKING != 0
    }

    pub fn is_giving(self) -> bool {
        self.word & GIVING != 0
    }

    fn is_alone(self) -> bool {
        self.word & ALONE != 0
    }

    /// Returns how many bytes of the user have come to the send ring, which has been written up to
    /// that position. `self` is from a cell.
    pub fn taken(self, written: u64) -> u32 {
        let count = self.counts as u32;
        match self.is_alone() {
            true => (written as u32).wrapping_sub(count),
            false => count,
        }
    }

    /// Returns the position behind the last byte that the user has been given, if it has been given
    /// `given` ones, and the receive ring has been read up to `read`. `self` is from a cell.
    pub fn given_upto(self, given: u32, read: u64) -> u64 {
        let from = (self.counts >> 32) as u32;
        let more = from.wrapping_add(given).wrapping_sub(read as u32);
        read.wrapping_add(u64::from(more))
    }

    /// The process that uses the connection, if that is known.
    pub fn user(self) -> Option<u32> {
        match (self.word >> USER_SHIFT) as u32 {
            0 => None,
            user => Some(user),
        }
    }

    /// The process that uses the connection, if no other one has it when that and the owner have
    /// ended.
    pub fn sole_user(self) -> Option<u32> {
        self.user().filter(|_| self.word & SOLE != 0)
    }
}

fn joined(taken: u32, given: u32) -> u64 {
    u64::from(taken) | u64::from(given) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_keeps_its_user_while_bytes_move() {
        let loan = Loan::to(u32::MAX, 7, 0);
        assert!(loan.is_sound() && !loan.is_taking());
        assert!(loan.taking().is_sound() && loan.taking().is_taking());
        assert!(!loan.unsure().is_sound() && !loan.taking().unsure().is_sound());
        assert!(!loan.putting().is_sound() && loan.putting().is_taking());
        let users = [loan, loan.taking(), loan.unsure(), loan.alone().giving()].map(Loan::user);
        assert_eq!(users, [Some(u32::MAX); 4]);
        assert_eq!(Loan::to(0, 0, 0).user(), None);
        assert!(Loan::to(0, 0, 0).is_sound() && !Loan::NONE.is_sound());
    }

    #[test]
    fn a_user_is_the_sole_one_only_if_that_is_said() {
        let loan = Loan::to(7, 1, 2);
        assert_eq!((loan.user(), loan.sole_user()), (Some(7), None));
        let sole = loan.sole();
        let moving = [sole, sole.alone().giving(), sole.putting(), sole.at(9, 9)];
        assert_eq!(moving.map(Loan::sole_user), [Some(7); 4]);
        assert_eq!(Loan::to(0, 0, 0).sole().sole_user(), None);
        assert!(sole.is_sound() && !sole.unsure().is_sound());
    }

    #[test]
    fn a_loan_that_the_steward_alone_serves_is_sound_at_any_instant() {
        let (written, read) = (u64::from(u32::MAX) + 5, 1 << 40);
        let loan = Loan::to(3, 100, 2000).alone();
        let begun = loan.giving().putting().at(written, read);
        assert!(begun.is_sound() && begun.is_giving() && begun.is_taking());
        assert_eq!(begun.taken(written), 100);
        assert_eq!(begun.taken(written + 50), 150, "the ring has 50 more");
        assert_eq!(
            begun.given_upto(2000, read),
            read,
            "the user has none of them"
        );
        assert_eq!(begun.given_upto(2070, read), read + 70, "it has 70 of them");
        assert_eq!(
            begun.given_upto(2070, read + 70),
            read + 70,
            "taken out of the ring"
        );
        assert!(
            begun.given_upto(1999, read) > read + (1 << 30),
            "impossible"
        );
        let shared = Loan::to(3, 100, 2000).giving().at(written, read);
        assert_eq!(shared.taken(written + 50), 100, "others write too");
        assert_eq!(shared.given_upto(2070, read), read + 70);
    }
}
