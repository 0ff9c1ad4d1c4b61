//! TCP options in their order on the wire.

use super::TcpOption;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const USER_TIMEOUT: u8 = 28;
const FAST_OPEN: u8 = 34;

/// The options' bytes, padded to a multiple of 4.
pub fn emit(options: &[TcpOption]) -> Vec<u8> {
    let mut out = Vec::new();
    for option in options {
        match option {
            TcpOption::End => out.push(END),
            TcpOption::Nop => out.push(NOP),
            TcpOption::Mss(mss) => push(&mut out, MSS, &mss.to_be_bytes()),
            TcpOption::WindowScale(shift) => push(&mut out, WINDOW_SCALE, &[*shift]),
            TcpOption::SackPermitted => push(&mut out, SACK_PERMITTED, &[]),
            TcpOption::Sack(blocks) => {
                let edges = blocks.iter().flat_map(|(left, right)| [*left, *right]);
                let bytes: Vec<u8> = edges.flat_map(u32::to_be_bytes).collect();
                push(&mut out, SACK, &bytes);
            }
            TcpOption::Timestamps { value, echo } => {
                let bytes = [value.to_be_bytes(), echo.to_be_bytes()].concat();
                push(&mut out, TIMESTAMPS, &bytes);
            }
            TcpOption::UserTimeout(field) => push(&mut out, USER_TIMEOUT, &field.to_be_bytes()),
            TcpOption::FastOpen(cookie) => push(&mut out, FAST_OPEN, cookie),
            // Nothing was given out yet: a request.
            TcpOption::OurCookie => push(&mut out, FAST_OPEN, &[]),
            TcpOption::Unknown(kind, bytes) => push(&mut out, *kind, bytes),
        }
    }
    out.resize(out.len().next_multiple_of(4), END);
    out
}

fn push(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    out.push(bytes.len() as u8 + 2);
    out.extend_from_slice(bytes);
}

/// Parses the output of [`emit`]; `None` if lengths do not add up.
pub fn parse(mut bytes: &[u8]) -> Option<Vec<TcpOption>> {
    let mut options = Vec::new();
    loop {
        match *bytes {
            [] => return Some(options),
            [END, ..] => {
                // Padding is no option; a script that wants it writes `eol`.
                return Some(options);
            }
            [NOP, ref rest @ ..] => {
                options.push(TcpOption::Nop);
                bytes = rest;
            }
            [kind, len, ..] => {
                let data = bytes.get(2..usize::from(len))?;
                options.push(one(kind, data)?);
                bytes = &bytes[usize::from(len)..];
            }
            [_] => return None,
        }
    }
}

fn one(kind: u8, data: &[u8]) -> Option<TcpOption> {
    let word = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
    Some(match (kind, data.len()) {
        (MSS, 2) => TcpOption::Mss(u16::from_be_bytes([data[0], data[1]])),
        (WINDOW_SCALE, 1) => TcpOption::WindowScale(data[0]),
        (SACK_PERMITTED, 0) => TcpOption::SackPermitted,
        (SACK, len) if len % 8 == 0 => {
            let blocks = (0..len / 8).map(|n| Some((word(n * 8)?, word(n * 8 + 4)?)));
            TcpOption::Sack(blocks.collect::<Option<_>>()?)
        }
        (TIMESTAMPS, 8) => TcpOption::Timestamps {
            value: word(0)?,
            echo: word(4)?,
        },
        (USER_TIMEOUT, 2) => TcpOption::UserTimeout(u16::from_be_bytes([data[0], data[1]])),
        (FAST_OPEN, _) => TcpOption::FastOpen(data.to_vec()),
        _ => TcpOption::Unknown(kind, data.to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_options_round_trip_in_their_order() {
        let options = vec![
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 7, echo: 9 },
            TcpOption::Nop,
            TcpOption::WindowScale(7),
            TcpOption::Sack(vec![(1, 2), (3, 4)]),
            TcpOption::UserTimeout(0x8001),
            TcpOption::FastOpen(vec![1, 2, 3, 4]),
        ];
        let bytes = emit(&options);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(parse(&bytes), Some(options));
        assert_eq!(parse(&[2, 0, 0, 0]), None);
    }
}
