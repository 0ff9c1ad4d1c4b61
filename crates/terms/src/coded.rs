//! Enums whose variants have fixed numbers in shared memory.

/// Declares an enum of one-byte numbers, with `code` and `from_code`.
#[macro_export]
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)* }

        impl $name {
            pub const ALL: [Self; [$($code,)*].len()] = [$(Self::$variant,)*];

            /// Returns the number that travels.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// Returns the variant of this number; `None` if there is none.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
