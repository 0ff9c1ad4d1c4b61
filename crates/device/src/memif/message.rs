//! Messages of a memif control connection: 128 bytes each, packed and in the machine's byte order,
//! with at most one descriptor beside them.

use super::options::SECRET_LEN;

pub(super) const LEN: usize = 128;
/// Version 2.0, the only one there is.
pub(super) const VERSION: u16 = 0x0200;
const NAME: &[u8] = b"slipstack";
/// Name of an end that takes frames whose checksum is partial, as their descriptors say.
const NAME_PARTIAL: &[u8] = b"slipstack, partial checksums";
const NAME_LEN: usize = 32;
const FLAG_TO_SERVER: u16 = 1;
const MODE_ETHERNET: u8 = 0;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// Limits that a server states, and whether it takes frames whose checksum is partial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub min_version: u16,
    pub max_version: u16,
    /// Highest numbers of a region and of a ring of each direction.
    pub max_region: u16,
    pub max_to_client: u16,
    pub max_to_server: u16,
    pub max_log2_ring: u8,
    pub takes_partial: bool,
}

/// One ring, as its maker describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddRing {
    pub is_to_server: bool,
    pub index: u16,
    pub region: u16,
    pub offset: u32,
    pub log2_ring: u8,
    pub private_len: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ack,
    Hello(Hello),
    Init {
        version: u16,
        id: u32,
        is_ethernet: bool,
        secret: [u8; SECRET_LEN],
        takes_partial: bool,
    },
    AddRegion {
        index: u16,
        size: u64,
    },
    AddRing(AddRing),
    Connect,
    Connected,
    Disconnect(String),
}

/// Fields of a message, which follow one another without gaps.
struct Fields {
    bytes: [u8; LEN],
    at: usize,
}

impl Fields {
    fn put(&mut self, bytes: &[u8]) -> &mut Fields {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn name(&mut self, text: &[u8]) -> &mut Fields {
        let mut name = [0; NAME_LEN];
        name[..text.len()].copy_from_slice(text);
        self.put(&name)
    }

    fn own_name(&mut self, takes_partial: bool) -> &mut Fields {
        self.name(if takes_partial { NAME_PARTIAL } else { NAME })
    }

    /// Reads the name of an end; returns whether it takes frames whose checksum is partial.
    fn takes_partial(&mut self) -> bool {
        let name: [u8; NAME_LEN] = self.take();
        name.strip_prefix(NAME_PARTIAL)
            .is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        out
    }

    fn u8(&mut self) -> u8 {
        let [value] = self.take();
        value
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }
}

impl Message {
    pub(super) fn to_bytes(&self) -> [u8; LEN] {
        let mut fields = Fields {
            bytes: [0; LEN],
            at: 0,
        };
        let kind = match self {
            Message::Ack => ACK,
            Message::Hello(_) => HELLO,
            Message::Init { .. } => INIT,
            Message::AddRegion { .. } => ADD_REGION,
            Message::AddRing(_) => ADD_RING,
            Message::Connect => CONNECT,
            Message::Connected => CONNECTED,
            Message::Disconnect(_) => DISCONNECT,
        };
        self.put_fields(fields.put(&kind.to_ne_bytes()));
        fields.bytes
    }

    fn put_fields(&self, fields: &mut Fields) {
        match self {
            Message::Ack => {}
            Message::Hello(hello) => {
                fields
                    .own_name(hello.takes_partial)
                    .put(&hello.min_version.to_ne_bytes())
                    .put(&hello.max_version.to_ne_bytes())
                    .put(&hello.max_region.to_ne_bytes())
                    .put(&hello.max_to_client.to_ne_bytes())
                    .put(&hello.max_to_server.to_ne_bytes())
                    .put(&[hello.max_log2_ring]);
            }
            Message::Init {
                version,
                id,
                secret,
                takes_partial,
                ..
            } => {
                fields
                    .put(&version.to_ne_bytes())
                    .put(&id.to_ne_bytes())
                    .put(&[MODE_ETHERNET])
                    .put(secret)
                    .own_name(*takes_partial);
            }
            Message::AddRegion { index, size } => {
                fields.put(&index.to_ne_bytes()).put(&size.to_ne_bytes());
            }
            Message::AddRing(ring) => {
                let flags = if ring.is_to_server { FLAG_TO_SERVER } else { 0 };
                fields
                    .put(&flags.to_ne_bytes())
                    .put(&ring.index.to_ne_bytes())
                    .put(&ring.region.to_ne_bytes())
                    .put(&ring.offset.to_ne_bytes())
                    .put(&[ring.log2_ring])
                    .put(&ring.private_len.to_ne_bytes());
            }
            Message::Connect | Message::Connected => {
                fields.name(NAME);
            }
            Message::Disconnect(why) => {
                let why = why.as_bytes();
                fields.put(&[0; 4]).put(&why[..why.len().min(95)]);
            }
        }
    }

    /// `None`: no message of this version.
    pub(super) fn parse(bytes: [u8; LEN]) -> Option<Message> {
        let mut fields = Fields { bytes, at: 0 };
        Some(match fields.u16() {
            ACK => Message::Ack,
            HELLO => {
                let takes_partial = fields.takes_partial();
                Message::Hello(Hello {
                    min_version: fields.u16(),
                    max_version: fields.u16(),
                    max_region: fields.u16(),
                    max_to_client: fields.u16(),
                    max_to_server: fields.u16(),
                    max_log2_ring: fields.u8(),
                    takes_partial,
                })
            }
            INIT => Message::Init {
                version: fields.u16(),
                id: fields.u32(),
                is_ethernet: fields.u8() == MODE_ETHERNET,
                secret: fields.take(),
                takes_partial: fields.takes_partial(),
            },
            ADD_REGION => Message::AddRegion {
                index: fields.u16(),
                size: u64::from_ne_bytes(fields.take()),
            },
            ADD_RING => Message::AddRing(AddRing {
                is_to_server: fields.u16() & FLAG_TO_SERVER != 0,
                index: fields.u16(),
                region: fields.u16(),
                offset: fields.u32(),
                log2_ring: fields.u8(),
                private_len: fields.u16(),
            }),
            CONNECT => Message::Connect,
            CONNECTED => Message::Connected,
            DISCONNECT => {
                fields.at += 4;
                let text: [u8; 96] = fields.take();
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(96);
                let text = String::from_utf8_lossy(&text[..end]);
                Message::Disconnect(text.chars().filter(|c| !c.is_control()).collect())
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_with_the_protocols_offsets() {
        let ring = AddRing {
            is_to_server: true,
            index: 2,
            region: 3,
            offset: 0x0102_0304,
            log2_ring: 10,
            private_len: 0,
        };
        let bytes = Message::AddRing(ring).to_bytes();
        assert_eq!(bytes[..2], 5u16.to_ne_bytes());
        assert_eq!(bytes[8..12], 0x0102_0304u32.to_ne_bytes());
        assert_eq!(bytes[12], 10);
        let hello = Hello {
            min_version: VERSION,
            max_version: VERSION,
            max_region: 7,
            max_to_client: 1,
            max_to_server: 2,
            max_log2_ring: 14,
            takes_partial: true,
        };
        for message in [
            Message::Ack,
            Message::Hello(hello),
            Message::Init {
                version: VERSION,
                id: 9,
                is_ethernet: true,
                secret: [5; SECRET_LEN],
                takes_partial: false,
            },
            Message::AddRegion {
                index: 1,
                size: 1 << 33,
            },
            Message::AddRing(ring),
            Message::Connect,
            Message::Connected,
            Message::Disconnect("too late".to_owned()),
        ] {
            assert_eq!(Message::parse(message.to_bytes()), Some(message));
        }
        assert_eq!(Message::parse([0xff; LEN]), None);
    }
}
