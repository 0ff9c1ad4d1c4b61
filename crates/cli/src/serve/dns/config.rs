//! The table `[dns]` of the configuration file.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use slipstack_apps::dns::{
    Algorithm, Keys, Peer, Policy, Rate, Rule, TsigKey, decode_base64, parse_name,
};

use crate::failure::Failure;

/// As other name servers have it.
const SLIP: u32 = 2;
/// Port of name servers.
const PORT: u16 = 53;

/// `[dns]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct File {
    pub nsid: Option<String>,
    pub identity: Option<String>,
    /// Answer to `version.server`; empty: none.
    pub version: Option<String>,
    /// 32 hex digits, for servers that share an address.
    cookie_secret: Option<String>,
    /// Equal responses to a network in a second, on each engine.
    rate_limit: u32,
    /// Every so many-th response beyond that is a truncated one.
    slip: Option<u32>,
    key: HashMap<String, KeyTable>,
    zone: Vec<ZoneTable>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    algorithm: String,
    /// In base 64.
    secret: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ZoneTable {
    name: String,
    file: Option<PathBuf>,
    /// `ADDRESS[:PORT][ key:NAME]`.
    #[serde(default)]
    primary: Vec<String>,
    #[serde(default)]
    notify: Vec<String>,
    /// `ADDRESS[/PREFIX][ key:NAME]` or `key:NAME`.
    #[serde(default)]
    allow_transfer: Vec<String>,
    #[serde(default)]
    catalog: bool,
}

impl File {
    /// Reads the table of a file; one without it is empty.
    pub fn read(path: &Path) -> Result<File, Failure> {
        let cannot =
            |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| cannot(&error))?;
        if slipstack_config::ini::is_fstack(path, &text) {
            return Ok(File::default());
        }
        let mut table: toml::Table = text.parse().map_err(|error| cannot(&error))?;
        let Some(dns) = table.remove("dns") else {
            return Ok(File::default());
        };
        dns.try_into()
            .map_err(|error| cannot(&format!("[dns]: {error}")))
    }

    pub fn cookie_secret(&self) -> Result<Option<[u8; 16]>, Failure> {
        let Some(text) = &self.cookie_secret else {
            return Ok(None);
        };
        let value = u128::from_str_radix(text, 16).ok();
        let value = value.filter(|_| text.len() == 32);
        value
            .map(|value| Some(value.to_be_bytes()))
            .ok_or_else(|| Failure::new("[dns] cookie-secret: 32 hex digits are wanted".to_owned()))
    }

    pub fn rate(&self) -> Rate {
        Rate {
            per_second: self.rate_limit,
            slip: self.slip.unwrap_or(SLIP),
        }
    }

    /// The keys, by name.
    pub fn keys(&self) -> Result<Keys, Failure> {
        let one = |(text, table): (&String, &KeyTable)| {
            let wrong = |what: String| Failure::new(format!("[dns.key.{text}] {what}"));
            let name = parse_name(text).map_err(|error| wrong(error.to_string()))?;
            let known = Algorithm::ALL.into_iter();
            let algorithm = known.into_iter().find(|it| it.text() == table.algorithm);
            let algorithm = algorithm.ok_or_else(|| {
                let all = Algorithm::ALL.map(Algorithm::text).join(", ");
                wrong(format!("algorithm: one of {all} is wanted"))
            })?;
            let secret = decode_base64(&table.secret);
            let secret = secret.filter(|secret| !secret.is_empty());
            let secret = secret.ok_or_else(|| wrong("secret: base 64 is wanted".to_owned()))?;
            let key = TsigKey {
                name: name.clone(),
                algorithm,
                secret,
            };
            Ok((name, Arc::new(key)))
        };
        self.key.iter().map(one).collect()
    }

    /// The zones, with their apexes.
    pub fn policies(&self, keys: &Keys) -> Result<Vec<(Vec<u8>, Policy)>, Failure> {
        self.zone.iter().map(|zone| zone.policy(keys)).collect()
    }
}

impl ZoneTable {
    fn policy(&self, keys: &Keys) -> Result<(Vec<u8>, Policy), Failure> {
        let wrong = |what: String| Failure::new(format!("[dns] zone {}: {what}", self.name));
        let apex = parse_name(&self.name).map_err(|error| wrong(error.to_string()))?;
        if self.file.is_none() && self.primary.is_empty() {
            return Err(wrong(
                "it needs a file, or a primary to come from".to_owned(),
            ));
        }
        let peers = |field: &str, texts: &[String]| {
            let peers = texts.iter().map(|text| peer(text, keys));
            let peers: Result<Vec<Peer>, String> = peers.collect();
            peers.map_err(|what| wrong(format!("{field}: {what}")))
        };
        let rules = self.allow_transfer.iter().map(|text| rule(text, keys));
        let rules: Result<Vec<Rule>, String> = rules.collect();
        let policy = Policy {
            origin: self.name.clone(),
            file: self.file.clone(),
            primaries: peers("primary", &self.primary)?,
            notify: peers("notify", &self.notify)?,
            allow_transfer: rules.map_err(|what| wrong(format!("allow-transfer: {what}")))?,
            is_catalog: self.catalog,
            member_of: None,
        };
        Ok((apex, policy))
    }
}

/// Splits `ADDRESS key:NAME` into the address and the key.
fn with_key<'a>(text: &'a str, keys: &Keys) -> Result<(&'a str, Option<Vec<u8>>), String> {
    let Some((before, key)) = text.split_once("key:") else {
        return Ok((text.trim(), None));
    };
    let name = parse_name(key.trim()).map_err(|error| error.to_string())?;
    match keys.contains_key(&name) {
        true => Ok((before.trim(), Some(name))),
        false => Err(format!("there is no key {key}; name it in [dns.key.{key}]")),
    }
}

fn peer(text: &str, keys: &Keys) -> Result<Peer, String> {
    let (addr, key) = with_key(text, keys)?;
    let with_port = addr.parse::<SocketAddr>().ok();
    let alone = addr.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    let addr = with_port.or(alone.ok());
    let addr = addr.ok_or_else(|| format!("'{text}' is not ADDRESS[:PORT][ key:NAME]"))?;
    Ok(Peer { addr, key })
}

fn rule(text: &str, keys: &Keys) -> Result<Rule, String> {
    let (network, key) = with_key(text, keys)?;
    if network.is_empty() && key.is_some() {
        return Ok(Rule { network: None, key });
    }
    let (ip, prefix) = network.split_once('/').unwrap_or((network, ""));
    let wrong = || format!("'{text}' is neither ADDRESS[/PREFIX][ key:NAME] nor key:NAME");
    let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        "" => longest,
        text => text.parse().map_err(|_| wrong())?,
    };
    if prefix > longest {
        return Err(wrong());
    }
    Ok(Rule {
        network: Some((ip, prefix)),
        key,
    })
}
