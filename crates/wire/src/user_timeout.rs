//! The TCP User Timeout option (RFC 5482 3.3): how long the sender waits for acknowledgments. It is
//! rare, so it is parsed apart from the other options.

use core::num::NonZeroU16;

use crate::tcp::OPTIONS_MAX;

const END: u8 = 0;
const NOP: u8 = 1;
const USER_TIMEOUT: u8 = 28;
pub const USER_TIMEOUT_LEN: usize = 4;

/// The value is in minutes, not in seconds.
const MINUTES: u16 = 0x8000;
const VALUE_MAX: u16 = 0x7fff;
const MINUTE: u32 = 60;

/// Granularity and value as they are on the wire; never a reserved one (RFC 5482 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserTimeout(NonZeroU16);

impl UserTimeout {
    /// `None`: a value of 0, which is reserved and means nothing (RFC 5482 3.4).
    pub fn from_field(field: u16) -> Option<UserTimeout> {
        NonZeroU16::new(field)
            .filter(|field| field.get() != MINUTES)
            .map(UserTimeout)
    }

    pub fn field(self) -> u16 {
        self.0.get()
    }

    /// Encodes seconds as long as they fit, then minutes, rounded up; at most 32767 minutes.
    /// `None`: no time at all.
    pub fn of_seconds(seconds: u32) -> Option<UserTimeout> {
        let field = match u16::try_from(seconds) {
            Ok(seconds @ 0..=VALUE_MAX) => seconds,
            _ => {
                let minutes = seconds.div_ceil(MINUTE).min(VALUE_MAX.into());
                MINUTES | minutes as u16
            }
        };
        UserTimeout::from_field(field)
    }

    pub fn seconds(self) -> u32 {
        let value = u32::from(self.field() & VALUE_MAX);
        if self.field() & MINUTES == 0 {
            value
        } else {
            value * MINUTE
        }
    }

    /// Finds the option; one with a wrong length or a reserved value is none. At most 40 steps.
    pub fn find(mut options: &[u8]) -> Option<UserTimeout> {
        loop {
            match *options {
                [] | [END, ..] | [_] => return None,
                [NOP, ref rest @ ..] => options = rest,
                [USER_TIMEOUT, 4, high, low, ..] => {
                    return UserTimeout::from_field(u16::from_be_bytes([high, low]));
                }
                [_, len, ..] if len < 2 => return None,
                [_, len, ..] => options = options.get(usize::from(len)..)?,
            }
        }
    }

    /// Appends the option after `at` bytes of others and gives the new length; without room nothing
    /// is written.
    pub fn append(self, out: &mut [u8; OPTIONS_MAX], at: usize) -> usize {
        let end = at + USER_TIMEOUT_LEN;
        let Some(room) = out.get_mut(at..end) else {
            return at;
        };
        let [high, low] = self.field().to_be_bytes();
        room.copy_from_slice(&[USER_TIMEOUT, USER_TIMEOUT_LEN as u8, high, low]);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_options::TcpOptions;
    use proptest::prelude::*;

    #[test]
    fn an_option_with_a_wrong_length_or_reserved_value_is_ignored() {
        // RFC 5482 3.3 and 3.4.
        let table: [(&[u8], Option<u32>); 10] = [
            (&[28, 4, 0, 30], Some(30)),
            (&[1, 1, 28, 4, 0x80, 2], Some(120)),
            (&[2, 4, 5, 180, 28, 4, 0x7f, 0xff], Some(32_767)),
            (&[28, 4, 0, 0], None),
            (&[28, 4, 0x80, 0], None),
            (&[28, 3, 1, 28, 4, 0, 9], Some(9)),
            (&[28, 6, 0, 1, 0, 0, 28, 4, 0, 9], Some(9)),
            (&[28, 4, 1], None),
            (&[28, 0, 0, 1], None),
            (&[0, 28, 4, 0, 30], None),
        ];
        for (bytes, want) in table {
            assert_eq!(
                UserTimeout::find(bytes).map(UserTimeout::seconds),
                want,
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn times_that_are_too_long_for_seconds_are_minutes_rounded_up() {
        // RFC 5482 3.3.
        let told = |seconds| UserTimeout::of_seconds(seconds).map(|it| (it.field(), it.seconds()));
        assert_eq!(told(0), None);
        assert_eq!(told(1), Some((1, 1)));
        assert_eq!(told(32_767), Some((0x7fff, 32_767)));
        assert_eq!(told(32_768), Some((0x8000 | 547, 32_820)));
        assert_eq!(told(u32::MAX), Some((0xffff, 32_767 * 60)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_searched_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..=40),
        ) {
            let _ = UserTimeout::find(&bytes);
        }

        #[test]
        fn an_appended_timeout_leaves_other_options_unchanged(mss: u16, seconds in 1u32..) {
            let option = UserTimeout::of_seconds(seconds).unwrap();
            let others = TcpOptions { mss: Some(mss), sack_permitted: true, ..Default::default() };
            let mut out = [0; OPTIONS_MAX];
            let len = others.emit(&mut out);
            let len = option.append(&mut out, len);
            prop_assert_eq!(len % 4, 0);
            prop_assert_eq!(UserTimeout::find(&out[..len]), Some(option));
            prop_assert_eq!(TcpOptions::parse(&out[..len]), others);
            prop_assert_eq!(option.append(&mut out, 40), 40);
        }
    }
}
