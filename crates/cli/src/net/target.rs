//! The stack that a command is about.

use slipstack_channel::control::net::{Answer, Change, Client, NetworkState, Query};
use slipstack_config::Settings;

use crate::failure::Failure;

/// A running stack that is asked.
pub struct Target {
    pub client: Client,
    /// The one that was named, for commands that are given to each engine in turn.
    engine: u32,
}

impl Target {
    /// The keeper of this namespace, or of the device that was named.
    pub fn find(settings: &Settings, engine: u32) -> Result<Target, Failure> {
        let path = slipstack_attach::admin::control_socket(settings)
            .map_err(|error| Failure::new(error.to_string()))?;
        let client = Client::connect(&path).map_err(|error| Failure::new(error.to_string()))?;
        Ok(Target { client, engine })
    }

    pub fn ask(&self, query: Query) -> Result<Answer, Failure> {
        let answer = self.client.ask(query);
        answer.map_err(|error| Failure::new(error.to_string()))
    }

    pub fn network(&self) -> Result<NetworkState, Failure> {
        match self.ask(Query::Network)? {
            Answer::Network(state) => Ok(state),
            _ => Err(Failure::new("the keeper gave an answer that does not fit")),
        }
    }

    /// Makes the changes, all or none. All engines of a device have one network: what was done for the first holds for
    /// the others, for which scripts repeat it.
    pub fn change(&self, changes: Vec<Change>) -> Result<(), Failure> {
        match self.ask(Query::Set(changes)) {
            Err(failure) if self.engine > 0 && failure.to_string().starts_with("File exists") => {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }
}
