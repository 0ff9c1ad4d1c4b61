//! Calls that take or give a `struct msghdr`: `{msg_name(...)=..., msg_iov(1)=[{..., 1000}],
//! msg_flags=0, msg_control=[…]}`.

use std::io::{IoSlice, IoSliceMut};

use slipstack_posix::Process;

use super::calls::{Args, Job, Out, field_of, number, option_bytes};
use crate::script::{Call, Expr};

/// Room for control messages, if a script uses them.
const CONTROL_ROOM: usize = 256;
/// `struct cmsghdr`: length, level, type.
const HEADER_LEN: usize = 16;

/// The control data of a message.
pub struct Message {
    flags: i32,
    control: Vec<u8>,
}

fn header<'a>(args: &'a Args<'_>) -> Result<&'a [(String, Expr)], String> {
    match args.need(1)? {
        Expr::Struct(fields) => Ok(fields),
        other => Err(format!("expected {{msg_iov(…)=…}}, not {other:?}")),
    }
}

/// The lengths of the buffers: `[{..., 1000}, {..., 20}]`.
fn lengths(fields: &[(String, Expr)]) -> Result<Vec<usize>, String> {
    let Some(Expr::List(items)) = field_of(fields, "msg_iov") else {
        return Err("msg_iov is no list".to_owned());
    };
    let len = |item: &Expr| match item {
        Expr::List(parts) => match parts.as_slice() {
            [_, len] => number(len).map(|len| len as usize),
            _ => Err("expected {..., LENGTH}".to_owned()),
        },
        _ => Err("expected {..., LENGTH}".to_owned()),
    };
    items.iter().map(len).collect()
}

pub fn receive(args: &Args<'_>) -> Result<Job, String> {
    let fields = header(args)?;
    let (fd, lens, flags) = (args.fd(0)?, lengths(fields)?, args.int_or(2, 0)?);
    let room = field_of(fields, "msg_control").map_or(0, |_| CONTROL_ROOM);
    Ok(Box::new(move |process: &Process| {
        let mut buffers: Vec<_> = lens.into_iter().map(|len| vec![0; len]).collect();
        let mut slices: Vec<_> = buffers.iter_mut().map(|it| IoSliceMut::new(it)).collect();
        let mut control = vec![0; room];
        match process.recvmsg(fd, &mut slices, &mut control, flags) {
            Ok(received) => {
                control.truncate(received.control_len);
                let flags = received.flags;
                let message = Message { flags, control };
                (Ok(received.len as i64), Out::Message(message))
            }
            Err(divert) => (Err(divert), Out::Nothing),
        }
    }))
}

pub fn send(args: &Args<'_>) -> Result<Job, String> {
    let (fd, lens, flags) = (args.fd(0)?, lengths(header(args)?)?, args.int_or(2, 0)?);
    Ok(super::calls::simple(move |process| {
        let buffers: Vec<_> = lens.into_iter().map(|len| vec![0; len]).collect();
        let slices: Vec<_> = buffers.iter().map(|it| IoSlice::new(it)).collect();
        process
            .sendmsg(fd, &slices, None, &[], flags)
            .map(|sent| sent as i64)
    }))
}

/// Compares flags and control messages, if the script specifies them.
pub fn check(call: &Call, found: &Message) -> Result<(), String> {
    let Some(Expr::Struct(fields)) = call.args.get(1) else {
        return Ok(());
    };
    if let Some(flags) = field_of(fields, "msg_flags").filter(|it| **it != Expr::Any) {
        let flags = number(flags)?;
        if flags != i64::from(found.flags) {
            let live = found.flags;
            return Err(format!("msg_flags are {live:#x}, expected {flags:#x}"));
        }
    }
    let wanted = match field_of(fields, "msg_control") {
        Some(Expr::List(wanted)) => wanted.as_slice(),
        _ => return Ok(()),
    };
    let live = messages(&found.control)?;
    if live.len() != wanted.len() {
        return Err(format!(
            "{} control messages came, expected {}",
            live.len(),
            wanted.len()
        ));
    }
    wanted
        .iter()
        .zip(&live)
        .try_for_each(|(wanted, live)| check_one(wanted, live))
}

type Live<'a> = (i64, i64, &'a [u8]);

fn check_one(wanted: &Expr, live: &Live<'_>) -> Result<(), String> {
    let Expr::Struct(fields) = wanted else {
        return Err("expected {cmsg_level=…, cmsg_type=…, cmsg_data=…}".to_owned());
    };
    let field = |name| field_of(fields, name).ok_or_else(|| format!("no {name}"));
    let head = (number(field("cmsg_level")?)?, number(field("cmsg_type")?)?);
    if head != (live.0, live.1) {
        return Err(format!(
            "a control message of level and type {:?}, expected {head:?}",
            (live.0, live.1)
        ));
    }
    let data = match field("cmsg_data")? {
        Expr::Any => return Ok(()),
        Expr::Struct(error) if field_of(error, "ee_errno").is_some() => extended_error(error)?,
        data => option_bytes(data)?,
    };
    match live.2.starts_with(&data) {
        true => Ok(()),
        false => Err(format!("cmsg_data is {:?}, expected {data:?}", live.2)),
    }
}

/// Encodes `struct sock_extended_err`; fields that are not named are 0.
fn extended_error(fields: &[(String, Expr)]) -> Result<Vec<u8>, String> {
    let value = |name| field_of(fields, name).map_or(Ok(0), number);
    let mut bytes = (value("ee_errno")? as u32).to_ne_bytes().to_vec();
    for name in ["ee_origin", "ee_type", "ee_code"] {
        bytes.push(value(name)? as u8);
    }
    bytes.push(0);
    for name in ["ee_info", "ee_data"] {
        bytes.extend((value(name)? as u32).to_ne_bytes());
    }
    Ok(bytes)
}

/// Parses a buffer of control messages.
fn messages(mut bytes: &[u8]) -> Result<Vec<Live<'_>>, String> {
    let mut found = Vec::new();
    while let Some((head, _)) = bytes.split_first_chunk::<HEADER_LEN>() {
        let word =
            |at: usize| i32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let [a, b, c, d, e, f, g, h, ..] = *head;
        let len = u64::from_ne_bytes([a, b, c, d, e, f, g, h]) as usize;
        let data = bytes.get(HEADER_LEN..len).ok_or("cmsg_len is wrong")?;
        found.push((i64::from(word(8)), i64::from(word(12)), data));
        bytes = bytes.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
    Ok(found)
}
