//! Options that are one of a few names.

/// Declares an enumeration whose variants have the names that users type.
macro_rules! choice {
    ($(#[$meta:meta])* $type:ident {
        $($(#[$inner:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub enum $type {
            $($(#[$inner])* $variant,)+
        }

        impl $type {
            /// Names of the variants, in order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            pub(crate) fn from_name(name: &str) -> Option<$type> {
                match name {
                    $($name => Some($type::$variant),)+
                    _ => None,
                }
            }

            /// Returns the name that users type.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }
        }
    };
}

choice! {
    /// How much is written to standard error, and by a keeper to its log: each level includes those
    /// before it.
    Log {
        /// Nothing but the refusal of a command.
        Off = "off",
        /// Sockets that fail, and programs that stay on the kernel, because the stack is not there;
        /// connections that a keeper or an instance loses.
        Error = "error",
        /// Differences from what the program or its user may expect; what a keeper gives up.
        #[default]
        Warn = "warn",
        /// Which stack a program uses, and what configuration files say in vain; who comes to a
        /// keeper or an instance, and leaves.
        Info = "info",
        /// Each socket's placement, with its reason.
        Debug = "debug",
    }
}

choice! {
    /// Congestion control of connections that do not choose.
    Congestion {
        #[default]
        Cubic = "cubic",
        Reno = "reno",
        Dctcp = "dctcp",
        Bbr = "bbr",
    }
}

choice! {
    /// Explicit congestion notification.
    Ecn {
        Off = "off",
        #[default]
        Passive = "passive",
        On = "on",
    }
}
