//! Identifiers of the stack's objects: an index into a table and a generation, so that a stale id
//! finds nothing instead of a newer object.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub index: u32,
            pub generation: u32,
        }

        impl $name {
            pub const fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            /// Returns index and generation in one word.
            pub const fn to_bits(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }

            pub const fn from_bits(bits: u64) -> Self {
                Self { index: bits as u32, generation: (bits >> 32) as u32 }
            }
        }
    };
}

id! {
    /// A TCP connection block.
    ConnId
}
id! {
    /// A listening TCP socket.
    ListenerId
}
id! {
    /// A bound UDP socket.
    UdpId
}
