//! Log sentences for the user who runs the program.

use std::sync::Arc;

use slipstack_channel::LogLevel;
use slipstack_mem::Lock;

use crate::kernel::Kernel;

/// Different messages that one process writes.
const SENTENCES_MAX: usize = 32;

/// The way of a process's messages.
pub(crate) struct Log {
    kernel: Arc<dyn Kernel>,
    level: LogLevel,
    /// Sentences already logged.
    said: Lock<Vec<String>>,
}

impl Log {
    pub(crate) fn new(kernel: Arc<dyn Kernel>, level: LogLevel) -> Log {
        let said = Lock::default();
        Log {
            kernel,
            level,
            said,
        }
    }

    /// Logs a sentence if the level includes it.
    pub(crate) fn say(&self, level: LogLevel, sentence: &str) {
        if self.level >= level {
            self.kernel.warn(sentence);
        }
    }

    pub(crate) fn warn_once(&self, sentence: &str) {
        self.say_once(LogLevel::Warn, sentence);
    }

    /// A fallback is never silent, and never a flood.
    pub(crate) fn say_once(&self, level: LogLevel, sentence: &str) {
        let Some(mut said) = self.said.try_lock() else {
            return;
        };
        if said.len() < SENTENCES_MAX && !said.iter().any(|other| other == sentence) {
            said.push(sentence.to_owned());
            self.say(level, sentence);
        }
    }
}
