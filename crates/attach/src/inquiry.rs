//! Requests of the command line to every engine of a device.

use std::os::fd::OwnedFd;

use slipstack_channel::control::net::{
    Answer, Call, EngineIdentity, FilterHead, FilterReceived, Inquiry, ProgramIdentity, Query,
};
use slipstack_channel::control::{
    ControlSocket, Refusal, Reply, Request, connect, read_bytes, read_lines, read_text,
};
use slipstack_channel::report::{ReportTable, Row};
use slipstack_config::Settings;

use crate::admin::{chosen, control_socket, instances};
use crate::door::ANSWER_MS;
use crate::error::Error;

/// The answer of one engine.
#[derive(Debug)]
pub struct EngineAnswer {
    /// The device's name.
    pub interface: String,
    pub engine: EngineIdentity,
    /// Lines of JSON; empty if it has not answered.
    pub text: String,
}

/// A program with its sockets by descriptor.
#[derive(Debug)]
pub struct ProgramSockets {
    pub program: ProgramIdentity,
    pub sockets: Vec<(i32, Row)>,
}

/// Asks the engines of every device of this network namespace, or of the one that is named.
///
/// # Errors
/// A keeper's refusal, or no runtime directory.
pub fn inquire(settings: &Settings, inquiry: &Inquiry) -> Result<Vec<EngineAnswer>, Error> {
    let mut answers = Vec::new();
    for directory in chosen(settings)? {
        let Ok(keeper) = connect(&directory.control_socket()) else {
            continue;
        };
        let (answer, files) = call(&keeper, Query::Inquire(inquiry.clone()))?;
        let Answer::Engines(engines) = answer else {
            return Err(Error::Confused);
        };
        let mut files = files.into_iter();
        for engine in engines {
            let file = engine.has_answered.then(|| files.next()).flatten();
            let text = file.map(read_text).transpose();
            answers.push(EngineAnswer {
                interface: directory.interface().to_owned(),
                engine,
                text: text
                    .map_err(Error::io("read an engine's answer"))?
                    .unwrap_or_default(),
            });
        }
    }
    Ok(answers)
}

/// Returns the programs of these devices, with the tables of their sockets.
///
/// # Errors
/// A keeper's refusal, or no runtime directory.
pub fn programs(settings: &Settings) -> Result<Vec<ProgramSockets>, Error> {
    let mut programs = Vec::new();
    for directory in chosen(settings)? {
        if let Ok(keeper) = connect(&directory.control_socket()) {
            add_programs(&keeper, &mut programs)?;
        }
        for (_, socket) in instances(&directory) {
            // One that is just ending has none.
            let _ = add_programs(&socket, &mut programs);
        }
    }
    Ok(programs)
}

/// A device's packet filter; with the prefixes of its tables, or only how many they are.
///
/// # Errors
/// A keeper's refusal, or there is none, or it is not clear which.
pub fn filter(settings: &Settings, has_prefixes: bool) -> Result<FilterReceived, Error> {
    let keeper = connect(&control_socket(settings)?)?;
    let known = has_prefixes.then(Vec::new);
    match call(&keeper, Query::Filter { known })? {
        (Answer::Filter(told), files) => join_filter(told, files).ok_or(Error::Confused),
        _ => Err(Error::Confused),
    }
}

/// The filter out of a message and the two files beside it.
pub(crate) fn join_filter(told: FilterHead, files: Vec<OwnedFd>) -> Option<FilterReceived> {
    let mut files = files.into_iter();
    let rules = read_text(files.next()?).ok()?;
    let prefixes = read_bytes(files.next()?).ok()?;
    told.join(read_lines(&rules)?, &prefixes)
}

fn add_programs(socket: &ControlSocket, programs: &mut Vec<ProgramSockets>) -> Result<(), Error> {
    let mut from = 0;
    loop {
        let (answer, tables) = call(socket, Query::Programs { from })?;
        let Answer::Programs {
            programs: told,
            is_cut,
        } = answer
        else {
            return Err(Error::Confused);
        };
        from += told.len();
        let is_last = !is_cut || told.is_empty();
        for (program, table) in told.into_iter().zip(tables) {
            // A program with an invalid table has no sockets.
            let table = ReportTable::open(table).ok();
            programs.push(ProgramSockets {
                program,
                sockets: table.map(|it| it.rows()).unwrap_or_default(),
            });
        }
        if is_last {
            return Ok(());
        }
    }
}

fn call(socket: &ControlSocket, query: Query) -> Result<(Answer, Vec<OwnedFd>), Error> {
    socket.send(&Request::Net(Call::new(query)), &[])?;
    match socket.receive::<Reply>(ANSWER_MS)? {
        (Reply::Net(answer), files) => match *answer {
            Answer::Denied(denied) => Err(Error::Refused {
                refusal: Refusal::NotPermitted,
                message: denied.why,
            }),
            answer => Ok((answer, files)),
        },
        (Reply::Refused { refusal, message }, _) => Err(Error::Refused { refusal, message }),
        _ => Err(Error::Confused),
    }
}
