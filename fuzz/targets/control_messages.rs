//! Control messages as a hostile client or server would send them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstack_channel::control::{Reply, Request};

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Request>(data) {
        let text = serde_json::to_vec(&request).expect("a request has a text");
        assert_eq!(
            serde_json::from_slice::<Request>(&text).expect("its own text"),
            request
        );
    }
    let _ = serde_json::from_slice::<Reply>(data);
});
