//! Heads of HTTP requests: any bytes give a request, a status, or the need for more; and a prefix
//! of a request is never another request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstack_apps::http::{Parsed, parse};

fuzz_target!(|data: &[u8]| {
    if let Ok(Parsed::Request(request, len)) = parse(data) {
        assert!(len <= data.len() && data[..len].ends_with(b"\r\n\r\n"));
        assert!(!request.target.is_empty());
        for end in 0..len {
            let earlier = parse(&data[..end]);
            assert!(!matches!(earlier, Ok(Parsed::Request(..))), "complete at {end} of {len}");
        }
    }
});
