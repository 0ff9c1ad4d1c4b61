//! Words of a connection's cell that say whether processes other than its owner may use it, and how
//! far the owner has moved their bytes.
//!
//! The keeper reads them: after the owner was killed, another process can go on with the
//! connection if it is known which of its bytes are in the rings and which with that process.

const LENT: u64 = 1;
const UNSURE: u64 = 1 << 1;
const TAKING: u64 = 1 << 2;
const USER_SHIFT: u32 = 32;

/// See the [module documentation](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loan {
    pub(crate) word: u64,
    /// Bytes of the user that are in the send ring, or were.
    pub taken: u64,
}

impl Loan {
    /// No other process may use the connection.
    pub const NONE: Loan = Loan { word: 0, taken: 0 };

    /// A connection that this process may use; 0: it is not known which one does.
    #[must_use]
    pub fn to(user: u32, taken: u64) -> Loan {
        let word = u64::from(user) << USER_SHIFT | LENT;
        Loan { word, taken }
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

    fn with(self, bit: u64) -> Loan {
        Loan {
            word: self.word | bit,
            ..self
        }
    }

    /// Whether another process may go on with the connection.
    pub fn is_sound(self) -> bool {
        self.word & (LENT | UNSURE) == LENT
    }

    pub fn is_taking(self) -> bool {
        self.word & TAKING != 0
    }

    /// The process that uses the connection, if that is known.
    pub fn user(self) -> Option<u32> {
        match (self.word >> USER_SHIFT) as u32 {
            0 => None,
            user => Some(user),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_keeps_its_user_while_bytes_move() {
        let loan = Loan::to(u32::MAX, 7);
        assert!(loan.is_sound() && !loan.is_taking());
        assert!(loan.taking().is_sound() && loan.taking().is_taking());
        assert!(!loan.unsure().is_sound() && !loan.taking().unsure().is_sound());
        let users = [loan, loan.taking(), loan.unsure()].map(Loan::user);
        assert_eq!(users, [Some(u32::MAX); 3]);
        assert_eq!(Loan::to(0, 0).user(), None);
        assert!(Loan::to(0, 0).is_sound() && !Loan::NONE.is_sound());
    }
}
