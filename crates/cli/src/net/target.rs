//! The stack that a command applies to.

use std::cell::RefCell;
use std::collections::HashMap;

use slipstack_channel::control::net::{Answer, Change, Client, NetworkState, Query};
use slipstack_config::Settings;

use crate::counters::{self, Counted};
use crate::failure::Failure;

/// The running stack that a command applies to.
pub struct Target {
    pub client: Client,
    settings: Settings,
    /// The one that was named, for commands that are given to each engine in turn.
    engine: u32,
    /// Changes that are not sent yet; `None`: each is sent at once.
    gathered: Option<RefCell<Gathered>>,
}

/// Refusals of an addition or a removal that has been made already.
const DONE: [&str; 5] = [
    "File exists",
    "No such process",
    "No such file or directory",
    "Cannot assign requested address",
    "Cannot find device",
];

fn is_done(failure: &Failure) -> bool {
    let text = failure.to_string();
    DONE.iter().any(|known| text.starts_with(known))
}

#[derive(Default)]
struct Gathered {
    changes: Vec<Change>,
    /// The stack's network at the last query.
    network: Option<NetworkState>,
}

impl Target {
    /// The keeper of this namespace, or of the device that was named.
    pub fn find(settings: &Settings, engine: u32) -> Result<Target, Failure> {
        let path = slipstack_attach::admin::control_socket(settings)
            .map_err(|error| Failure::new(error.to_string()))?;
        let client = Client::connect(&path).map_err(|error| Failure::new(error.to_string()))?;
        Ok(Target {
            client,
            settings: settings.clone(),
            engine,
            gathered: None,
        })
    }

    /// Returns a target that keeps addresses and changes of routes back until
    /// [`Target::send_gathered`], or until something else is changed.
    pub fn gathering(self) -> Target {
        Target {
            gathered: Some(RefCell::default()),
            ..self
        }
    }

    pub fn send_gathered(&self) -> Result<(), Failure> {
        let Some(gathered) = &self.gathered else {
            return Ok(());
        };
        let Gathered { changes, .. } = gathered.take();
        match changes.is_empty() {
            true => Ok(()),
            false => self.send(changes),
        }
    }

    /// Returns the counters of the interfaces by their names, if they are wanted.
    pub fn counted(
        &self,
        state: &NetworkState,
        is_wanted: bool,
    ) -> Result<HashMap<String, Counted>, Failure> {
        match is_wanted {
            true => counters::of_interfaces(&self.settings, state),
            false => Ok(HashMap::new()),
        }
    }

    pub fn ask(&self, query: Query) -> Result<Answer, Failure> {
        let answer = self.client.ask(query);
        answer.map_err(|error| Failure::new(error.to_string()))
    }

    pub fn network(&self) -> Result<NetworkState, Failure> {
        let Some(gathered) = &self.gathered else {
            return self.ask_network();
        };
        let mut gathered = gathered.borrow_mut();
        if gathered.network.is_none() {
            gathered.network = Some(self.ask_network()?);
        }
        Ok(gathered.network.clone().unwrap_or_default())
    }

    fn ask_network(&self) -> Result<NetworkState, Failure> {
        match self.ask(Query::Network)? {
            Answer::Network(state) => Ok(state),
            _ => Err(Failure::new("the keeper's answer is not understood")),
        }
    }

    /// Applies the changes, all or none. All engines of a device have one network: a change for the
    /// first holds for the others, for which scripts repeat it.
    pub fn change(&self, changes: Vec<Change>) -> Result<(), Failure> {
        let may_wait = |change: &Change| {
            matches!(
                change,
                Change::AddAddress { .. } | Change::AddRoute { .. } | Change::DelRoute(_)
            )
        };
        if let Some(gathered) = &self.gathered
            && changes.iter().all(may_wait)
        {
            gathered.borrow_mut().changes.extend(changes);
            return Ok(());
        }
        self.send_gathered()?;
        self.send(changes)
    }

    fn send(&self, changes: Vec<Change>) -> Result<(), Failure> {
        match self.ask(Query::Set(changes)) {
            Err(failure) if self.is_for_next_engine() && is_done(&failure) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Returns whether the command names an engine behind the first, for which scripts repeat it.
    pub fn is_for_next_engine(&self) -> bool {
        self.engine > 0
    }
}
