//! Reasons for which a command fails.

use slipstack_config::ConfigError;

/// Reason why a command refuses: one sentence for the user.
pub struct Failure(String);

impl Failure {
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure(sentence.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure(error.to_string())
    }
}
