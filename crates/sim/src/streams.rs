//! The byte rings of one connection, as a program and the stack share them, with their checks.

use std::collections::BTreeMap;

/// Returns eight bytes of the stream of a key: any two positions a few bytes apart differ with high
/// probability, so that a shifted, repeated or foreign byte is noticed.
fn word_at(key: u64, index: u64) -> u64 {
    let word = (index ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ (word >> 32)
}

pub fn bytes_at(key: u64, offset: u64, len: usize) -> Vec<u8> {
    let skipped = (offset % 8) as usize;
    let words = (skipped + len).div_ceil(8) as u64;
    let mut bytes = Vec::with_capacity(words as usize * 8);
    for index in offset / 8..offset / 8 + words {
        bytes.extend_from_slice(&word_at(key, index).to_le_bytes());
    }
    bytes.drain(..skipped);
    bytes.truncate(len);
    bytes
}

/// The two directions of a connection.
#[derive(Debug, Default)]
pub struct Streams {
    /// Written by the program: [acked, written) is in the ring, with some bytes before it.
    sent: Vec<u8>,
    /// Offset of the first byte of `sent`.
    base: u64,
    acked: u64,
    /// Stored by the stack and not read yet, by offset; may overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    available: u64,
    read: u64,
}

impl Streams {
    pub fn written(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// End of the readable bytes.
    pub fn available(&self) -> u64 {
        self.available
    }

    pub fn read_upto(&self) -> u64 {
        self.read
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    /// Bytes for a segment; an error if they are not (any more) there.
    pub fn gather(&self, offset: u64, len: u32) -> Result<&[u8], String> {
        let end = offset + u64::from(len);
        if offset < self.acked || end > self.written() {
            return Err(format!(
                "segment [{offset}, {end}) outside of the send ring [{}, {})",
                self.acked,
                self.written()
            ));
        }
        let from = (offset - self.base) as usize;
        Ok(&self.sent[from..from + len as usize])
    }

    pub fn on_acked(&mut self, upto: u64) -> Result<(), String> {
        if upto < self.acked || upto > self.written() {
            return Err(format!(
                "acked {upto}, after {} of {}",
                self.acked,
                self.written()
            ));
        }
        self.acked = upto;
        // Rarely: moving the rest of a large ring at every ACK would dominate a simulation's time.
        let gone = (upto - self.base) as usize;
        if gone * 2 >= self.sent.len() {
            self.sent.drain(..gone);
            self.base = upto;
        }
        Ok(())
    }

    /// Returns the end of the data stored without a gap.
    pub fn contiguous(&self) -> u64 {
        let mut end = self.read;
        for (&start, bytes) in &self.pieces {
            if start > end {
                break;
            }
            end = end.max(start + bytes.len() as u64);
        }
        end
    }

    pub fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        if offset < self.available {
            return Err(format!(
                "stored at {offset}, but {} is handed out",
                self.available
            ));
        }
        let piece = self.pieces.entry(offset).or_default();
        if piece.len() < bytes.len() {
            *piece = bytes.to_vec();
        }
        Ok(())
    }

    pub fn on_received(&mut self, upto: u64) -> Result<(), String> {
        let contiguous = self.contiguous();
        if upto < self.available || upto > contiguous {
            return Err(format!(
                "received {upto}, after {}, stored without gap {contiguous}",
                self.available
            ));
        }
        self.available = upto;
        Ok(())
    }

    /// Takes up to `len` bytes and compares each with the peer's stream.
    pub fn read(&mut self, len: u64, key: u64) -> Result<u64, String> {
        let end = self.available.min(self.read + len);
        while self.read < end {
            let Some((&start, bytes)) = self.pieces.range(..=self.read).next_back() else {
                return Err(format!("no bytes at {}", self.read));
            };
            let stop = start + bytes.len() as u64;
            if stop <= self.read {
                self.pieces.remove(&start);
                continue;
            }
            let upto = stop.min(end);
            let is = &bytes[(self.read - start) as usize..(upto - start) as usize];
            let should = bytes_at(key, self.read, is.len());
            if is != should
                && let Some(i) = is.iter().zip(&should).position(|(a, b)| a != b)
            {
                let at = self.read + i as u64;
                return Err(format!(
                    "byte {at} is {:#04x}, sent was {:#04x}",
                    is[i], should[i]
                ));
            }
            self.read = upto;
        }
        self.forget_what_is_read();
        Ok(self.read)
    }

    /// Drops bytes received out of order; the peer has to send them again.
    pub fn forget_ahead(&mut self) {
        self.pieces.split_off(&self.available);
        for (start, bytes) in &mut self.pieces {
            bytes.truncate((self.available - start) as usize);
        }
    }

    fn forget_what_is_read(&mut self) {
        while let Some((&start, bytes)) = self.pieces.first_key_value() {
            if start + bytes.len() as u64 > self.read {
                break;
            }
            self.pieces.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_are_read_once_and_compared() {
        let mut streams = Streams::default();
        streams.store(10, &bytes_at(7, 10, 10)).unwrap();
        assert!(streams.on_received(20).is_err(), "there is a gap");
        streams.store(0, &bytes_at(7, 0, 12)).unwrap();
        streams.on_received(20).unwrap();
        assert_eq!(streams.read(100, 7), Ok(20));
        assert!(streams.store(5, b"x").is_err(), "read already");
        streams.store(20, b"wrong").unwrap();
        streams.on_received(25).unwrap();
        assert!(streams.read(100, 7).is_err());
    }

    #[test]
    fn the_send_ring_serves_written_unacknowledged_bytes() {
        let mut streams = Streams::default();
        streams.write(b"0123456789");
        streams.on_acked(4).unwrap();
        assert_eq!(streams.gather(4, 3), Ok(&b"456"[..]));
        assert!(streams.gather(3, 3).is_err());
        assert!(streams.gather(8, 3).is_err());
        assert!(streams.on_acked(11).is_err());
    }
}
