//! Master files: refused with a sentence, or a zone all of whose records can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstack_apps::dns::load_text;

fuzz_target!(|data: &[u8]| {
    match load_text("a.test", data) {
        Ok(zone) => {
            assert!(zone.soa_record().is_some());
            for record in zone.records() {
                assert!(record.owner.ends_with(&zone.apex));
                assert!(record.data.len() <= 65_535);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
