//! Profiles: named sets of values that suit a kind of program.

use std::path::{Path, PathBuf};

use crate::error::{ConfigError, read_text};

/// Directory of an operator's own profiles; each replaces the built-in one of its name.
const FOLDER: &str = "/etc/slipstack/profiles";

/// Profiles that are always there.
const BUILT_IN: [(&str, &str); 6] = [
    ("nginx", include_str!("../../../profiles/nginx.toml")),
    ("redis", include_str!("../../../profiles/redis.toml")),
    ("haproxy", include_str!("../../../profiles/haproxy.toml")),
    (
        "memcached",
        include_str!("../../../profiles/memcached.toml"),
    ),
    ("dns", include_str!("../../../profiles/dns.toml")),
    ("bulk", include_str!("../../../profiles/bulk.toml")),
];

/// The text of a profile, and the file that it is of.
pub fn find(name: &str) -> Result<(String, PathBuf), ConfigError> {
    let file = Path::new(FOLDER).join(format!("{name}.toml"));
    if file.is_file() {
        return Ok((read_text(&file)?, file));
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => {
            let file = PathBuf::from(format!("profiles/{name}.toml"));
            Ok(((*text).to_owned(), file))
        }
        None => Err(ConfigError::Combination(format!(
            "there is no profile '{name}': neither {} nor one of {}",
            file.display(),
            BUILT_IN.map(|(known, _)| known).join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Source;
    use crate::layers::Layers;
    use crate::table::Settings;

    #[test]
    fn every_profile_has_valid_values_that_any_other_source_overrides() {
        for (name, text) in BUILT_IN {
            let mut layers = Layers::default();
            layers.read_toml(text, Path::new(name)).unwrap();
            Settings::from_layers(&layers).unwrap();
        }
        let read = |slots: &'static str| {
            let mut layers = Layers::read(|name| match name {
                "SLIPSTACK_PROFILE" => Some("nginx".to_owned()),
                "SLIPSTACK_SLOTS" => Some(slots.to_owned()),
                "SLIPSTACK_CONFIG" => Some("/dev/null".to_owned()),
                _ => None,
            })
            .unwrap();
            layers.take_profile().unwrap();
            (
                layers.text("slots").unwrap().to_owned(),
                layers.source("slots"),
            )
        };
        assert_eq!(
            read("7"),
            ("7".to_owned(), Source::Environment("SLIPSTACK_SLOTS"))
        );
        assert_eq!(read("").1, Source::File("profiles/nginx.toml".into()));
        let unknown = find("nobody").unwrap_err().to_string();
        assert!(unknown.contains("one of nginx, redis"), "{unknown}");
    }
}
