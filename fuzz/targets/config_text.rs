//! The three sources of options: a file, the environment, the command line.
//!
//! The input is a TOML text, then after a zero byte lines `NAME=VALUE` for the environment, then
//! after another one `option=value` for the command line.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use slipstack_config::{Layers, OPTIONS, Settings, Source};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut parts = text.splitn(3, '\0');
    let mut part = || parts.next().unwrap_or_default();
    let (file, environment, words) = (part(), part(), part());

    // Files named by the environment are ignored.
    let variable = |name: &str| {
        let is_named = |line: &&str| line.split_once('=').is_some_and(|(key, _)| key == name);
        let line = environment.lines().find(is_named)?;
        (name != "SLIPSTACK_CONFIG").then(|| line[name.len() + 1..].to_owned())
    };
    let mut layers = match Layers::read(variable) {
        Ok(layers) => layers,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Layers::default()
        }
    };
    if let Err(error) = layers.read_toml(file, Path::new("slipstack.toml")) {
        assert!(!error.to_string().is_empty());
    }
    for (option, value) in words.lines().filter_map(|line| line.split_once('=')) {
        let _ = layers.set(option, value.to_owned(), Source::CommandLine);
    }
    for option in OPTIONS {
        if let Some(text) = layers.text(option.name) {
            assert!(option.kind.check(text).is_ok(), "{}: {text}", option.name);
        }
    }
    passes_on(&layers);
});

/// A program that is given these values as its environment understands the same.
fn passes_on(layers: &Layers) {
    let settings = Settings::from_layers(layers);
    let handed = layers.environment();
    let mut again = Layers::default();
    for (name, text) in &handed {
        let option = OPTIONS.iter().find(|option| option.env == *name);
        let option = option.expect("a variable of the table");
        let set = again.set(option.name, text.clone(), Source::Environment(option.env));
        assert!(set.is_ok(), "{name}={text}");
    }
    assert_eq!(Settings::from_layers(&again), settings);
}
