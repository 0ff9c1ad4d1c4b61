//! DNS queries to be sent: one name, or the lines of a file in dnsperf's format.

use std::str::FromStr;

use domain::base::{Name, Rtype};

/// Way in which queries are made.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryOptions {
    /// UDP payload size of the OPT record; `None`: there is none.
    pub edns: Option<u16>,
    /// The DO bit, which needs an OPT record.
    pub is_dnssec_ok: bool,
}

/// Reads lines of a name and a type (`A` if there is none); empty ones and those that begin with
/// `;` or `#` are passed over.
///
/// # Errors
/// A line is wrong, or there is none: one sentence.
pub fn parse_queries(text: &str, options: QueryOptions) -> Result<Vec<Vec<u8>>, String> {
    let mut queries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let mut words = line.split_whitespace();
        let (name, rtype) = (words.next().unwrap_or("."), words.next().unwrap_or("A"));
        let query = query(name, rtype, options);
        queries.push(query.map_err(|error| format!("line {}: {error}", number + 1))?);
    }
    match queries.is_empty() {
        true => Err("there is no query in it: a name and a type on each line".to_owned()),
        false => Ok(queries),
    }
}

/// A query with the id 0.
///
/// # Errors
/// Name or type are none: one sentence.
pub fn query(name: &str, rtype: &str, options: QueryOptions) -> Result<Vec<u8>, String> {
    let known = Name::<Vec<u8>>::from_str(name);
    let known = known.map_err(|error| format!("{name} is no domain name: {error}"))?;
    let rtype = Rtype::from_str(&rtype.to_ascii_uppercase())
        .map_err(|_| format!("{rtype} is no record type"))?;
    let has_opt = options.edns.is_some() || options.is_dnssec_ok;
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(has_opt)];
    bytes.extend_from_slice(known.as_slice());
    bytes.extend_from_slice(&rtype.to_int().to_be_bytes());
    bytes.extend_from_slice(&[0, 1]);
    if has_opt {
        let size = options.edns.unwrap_or(1232).to_be_bytes();
        let flags = if options.is_dnssec_ok { 0x80 } else { 0 };
        bytes.extend_from_slice(&[0, 0, 41, size[0], size[1], 0, 0, flags, 0, 0, 0]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_queries_and_errors_name_their_line() {
        let parse = |text| parse_queries(text, QueryOptions::default());
        let text = "; a comment\nwww.example. A\n\nexample  mx\n.\nx.test TYPE731\n";
        let found = parse(text).unwrap();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0][12..], *b"\x03www\x07example\0\0\x01\0\x01");
        assert_eq!(found[1][12..], *b"\x07example\0\0\x0f\0\x01");
        assert_eq!(found[2][12..], *b"\0\0\x01\0\x01");
        assert_eq!(found[3][12..], *b"\x01x\x04test\0\x02\xdb\0\x01");
        assert!(
            parse("a. A\nb. NOTHING\n")
                .unwrap_err()
                .starts_with("line 2: NOTHING")
        );
        assert!(
            parse("a..b A")
                .unwrap_err()
                .starts_with("line 1: a..b is no")
        );
        assert!(parse("# nothing\n").unwrap_err().contains("no query"));
    }

    #[test]
    fn an_opt_record_gives_size_and_dnssec() {
        let options = QueryOptions {
            edns: Some(4096),
            is_dnssec_ok: true,
        };
        let found = query("x", "A", options).unwrap();
        assert_eq!(found[11], 1);
        assert_eq!(
            found[found.len() - 11..],
            [0, 0, 41, 16, 0, 0, 0, 0x80, 0, 0, 0]
        );
    }
}
