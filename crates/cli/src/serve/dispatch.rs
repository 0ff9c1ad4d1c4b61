//! The dispatch of a server's datagrams, and reports of its workers.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::ArgMatches;
use slipstack_service::{
    Answerer, Control, Counts, Dispatch, Kept, LARGE_BURST, RING_DATAGRAMS, Shape, Tally, Workers,
};

use crate::failure::Failure;

/// The shape that the options name.
fn shape(matches: &ArgMatches) -> Result<Shape, Failure> {
    let share = matches.get_one::<u8>("share").copied();
    let name = matches.get_one::<String>("shape").map(String::as_str);
    match (name, share) {
        (Some("pipeline"), None) => Ok(Shape::Pipeline),
        (Some("mixed"), None) => Ok(Shape::Mixed(Kept::Quick)),
        (Some("mixed"), Some(percent)) => Ok(Shape::Mixed(Kept::Percent(percent))),
        (_, None) => Ok(Shape::Run),
        (_, Some(_)) => Err(Failure::new(
            "--share is the engine's part beside workers: it needs --shape mixed",
        )),
    }
}

/// Starts the requested workers; `None`: the engine answers.
pub fn start(
    matches: &ArgMatches,
    make: impl FnMut(usize) -> Box<dyn Answerer>,
) -> Result<Option<Dispatch>, Failure> {
    let shape = shape(matches)?;
    let count = *matches.get_one::<usize>("workers").unwrap_or(&0);
    if shape == Shape::Run {
        return Ok(None);
    }
    if count == 0 {
        let name = matches.get_one::<String>("shape");
        return Err(Failure::new(format!(
            "--shape {} needs workers: --workers 1 or more",
            name.map_or("", String::as_str)
        )));
    }
    let ring = matches.get_one::<u32>("ring");
    let ring = ring.map_or(RING_DATAGRAMS, |ring| *ring as usize);
    let workers = Workers::new(count, ring, make)
        .map_err(|error| Failure::new(format!("cannot start {count} workers: {error}")))?;
    Ok(Some(Dispatch {
        workers: Arc::new(workers),
        shape,
    }))
}

/// Returns a line for each engine and worker about its work.
pub fn report(dispatch: &Dispatch, engines: &[Control]) -> String {
    let sum = |figure: fn(&Counts) -> &Tally| -> u64 {
        engines.iter().map(|it| figure(it.counts()).get()).sum()
    };
    let (all, passed) = (sum(|it| &it.datagrams), sum(|it| &it.passed));
    let (full, unsent) = (sum(|it| &it.ring_full), sum(|it| &it.unsent));
    let mut text = format!(
        "engines: {all} datagrams, {} answered by themselves, {passed} passed on, \
         {full} dropped at full rings, {unsent} answers of their own found no room\n",
        all - passed - full
    );
    for (number, counts) in dispatch.workers.counts().enumerate() {
        let datagrams = counts.datagrams.get();
        let large = counts.in_large_bursts.get() * 100;
        let _ = writeln!(
            text,
            "worker {number}: {datagrams} datagrams in {} bursts of up to {}, {} % of them in \
             bursts of {LARGE_BURST} or more; {} answers, {} panics, {} sleeps",
            counts.bursts.get(),
            counts.largest_burst.get(),
            large.checked_div(datagrams).unwrap_or(0),
            counts.answers.get(),
            counts.panics.get(),
            counts.sleeps.get(),
        );
    }
    text
}
