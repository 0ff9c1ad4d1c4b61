//! Builds a zone from a transfer's records, on a thread of its own, because large zones take long.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::catalog;
use super::mailbox::ZoneMessage;
use super::name;
use super::responder::Common;
use super::transfer::Incoming;
use super::zone::{RecordRef, Zone};

/// Makes the zone and puts it in force; the mailbox gets the outcome.
pub fn start(common: &Common, incoming: Incoming, log: fn(&str)) {
    let apex = incoming.apex().to_vec();
    let mailbox = common.mailbox.clone();
    let common = common.clone();
    let thread = std::thread::Builder::new().name("install".to_owned());
    let spawned = thread.spawn(move || {
        let apex = incoming.apex().to_vec();
        let outcome = incoming.finish().map_err(|error| error.to_string());
        let serial = outcome.map(|zone| install(&common, zone, log));
        common.mailbox.post(ZoneMessage::Installed(apex, serial));
    });
    if let Err(error) = spawned {
        let why = format!("no thread: {error}");
        mailbox.post(ZoneMessage::Installed(apex, Err(why)));
    }
}

/// Puts a zone in force, and its copy into its file. Returns its serial number.
fn install(common: &Common, zone: Zone, log: fn(&str)) -> u32 {
    let (apex, serial) = (zone.apex.to_vec(), zone.soa.serial);
    let zones = common.store.current();
    let file = zones
        .at(&apex)
        .and_then(|served| served.policy.file.clone());
    if let Some(file) = file
        && let Err(error) = write(&zone, &file)
    {
        log(&format!(
            "zone {}: its copy {} cannot be written: {error}",
            name::text(&apex),
            file.display()
        ));
    }
    common.store.change(|zones| {
        zones.replace(&apex, Some(zone.into()));
        if let Err(why) = catalog::follow(zones, &apex) {
            log(&format!("catalog {}: {why}", name::text(&apex)));
        }
    });
    serial
}

/// Writes a zone as a master file, in the form that every type has (RFC 3597 5). The file is
/// replaced as a whole.
fn write(zone: &Zone, path: &Path) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut out = BufWriter::new(File::create(&new)?);
    for record in zone.soa_record().into_iter().chain(zone.records()) {
        put(&mut out, &record)?;
    }
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

fn put(out: &mut impl Write, record: &RecordRef<'_>) -> io::Result<()> {
    let RecordRef {
        owner,
        rtype,
        ttl,
        data,
    } = record;
    let name = name::text(owner);
    write!(out, "{name} {ttl} IN TYPE{rtype} \\# {} ", data.len())?;
    for byte in *data {
        write!(out, "{byte:02x}")?;
    }
    writeln!(out)
}
