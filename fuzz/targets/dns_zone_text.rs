//! Master files: refused with a sentence, or a zone all of whose records can be read.
#![no_main]

use std::panic;

use libfuzzer_sys::fuzz_target;
use slipstack_apps::dns::load_text;
use slipstack_service::is_in_handler;

fuzz_target!(
    init: {
        // The fuzzer's own hook ends the process at any panic. Those of the parser, which the
        // reader catches, are refusals of the file.
        let fatal = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !is_in_handler() {
                fatal(panic);
            }
        }));
    },
    |data: &[u8]| {
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
    }
);
