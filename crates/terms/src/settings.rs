//! Settings that several crates read.

use serde::{Deserialize, Serialize};

/// Declares an enumeration whose variants have the names that users type.
macro_rules! named {
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

            pub fn from_name(name: &str) -> Option<$type> {
                match name {
                    $($name => Some($type::$variant),)+
                    _ => None,
                }
            }

            /// Returns the name that users type.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }
        }
    };
}

named! {
    /// Amount of what is written to standard error, and by a keeper to its log: each level includes
    /// those before it.
    LogLevel {
        /// Nothing but the refusal of a command.
        Off = "off",
        /// Sockets that fail, and programs that stay on the kernel, because the stack is not there;
        /// connections that a keeper or an instance loses.
        Error = "error",
        /// Deviations from the expectations of the program or its user; work that a keeper gives
        /// up.
        #[default]
        Warn = "warn",
        /// The stack that a program uses, and settings without effect in configuration files;
        /// programs that attach to a keeper or an instance, and leave.
        Info = "info",
        /// Each socket's placement, with its reason.
        Debug = "debug",
    }
}

named! {
    /// Explicit congestion notification (RFC 3168), by the values of Linux's `tcp_ecn`.
    EcnMode {
        Off = "off",
        /// Agreed to when a peer asks.
        #[default]
        Passive = "passive",
        /// Asked for too.
        On = "on",
    }
}

named! {
    /// Place of the program of a device of kind `xdp`.
    XdpMode {
        /// In the driver if that can, else in the kernel's own code.
        #[default]
        Auto = "auto",
        Native = "native",
        Generic = "generic",
        /// In the driver, which uses Slipstack's memory.
        ZeroCopy = "zerocopy",
    }
}

named! {
    /// The rule by which new flows of a port that several engines serve are spread over them.
    SpreadRule {
        #[default]
        Hash = "hash",
        Port = "port",
        Shares = "shares",
        Turns = "turns",
        Table = "table",
        Program = "program",
    }
}

named! {
    /// The side that has the listed ports of addresses that the kernel has too, by F-Stack's word
    /// for what the kernel does with them; the other side has all others.
    #[derive(Serialize, Deserialize)]
    Listed {
        #[default]
        Stack = "reject",
        Kernel = "accept",
    }
}

named! {
    /// The action on shared ports that an operator has set for now.
    #[derive(Serialize, Deserialize)]
    ShareAction {
        /// As listed.
        #[default]
        Default = "default",
        /// New flows go to the kernel.
        AllToKernel = "alltokni",
        /// New flows go to the stack.
        AllToStack = "alltoff",
    }
}

/// Time for which a waiting thread, or an idle loop, polls before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Spin {
    /// As long as arrivals have lately come sooner than a sleep would cost.
    #[default]
    Adaptive,
    /// Fixed time in microseconds; 0 sleeps at once.
    FixedUs(u32),
}
