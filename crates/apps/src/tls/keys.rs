//! Certificates and their keys: read from files, chosen by the client's server name (SNI), and
//! reloaded while connections go on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

/// The one protocol of a web server (RFC 7301).
pub const HTTP11: &[u8] = b"http/1.1";

/// A chain's file and its key's.
type Files = (PathBuf, PathBuf);

/// Certificates of a server, shared by its engines.
#[derive(Debug)]
pub struct Keys {
    files: Vec<Files>,
    protocols: Vec<Vec<u8>>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Keys {
    /// Reads each chain (PEM, the server's own certificate first) and its key. Clients negotiate
    /// one of the `protocols`; without any, ALPN is not used.
    ///
    /// # Errors
    /// A sentence that names the file and the defect.
    pub fn load(files: Vec<Files>, protocols: &[&[u8]]) -> Result<Keys, String> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        let config = RwLock::new(config(&files, &protocols)?);
        Ok(Keys {
            files,
            protocols,
            config,
        })
    }

    /// Reads the files again, for later connections. Earlier tickets become invalid.
    ///
    /// # Errors
    /// As [`Keys::load`]; the previous keys stay in use.
    pub fn reload(&self) -> Result<(), String> {
        let config = config(&self.files, &self.protocols)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn config(files: &[Files], protocols: &[Vec<u8>]) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let pairs = files.iter().map(|files| read(files, &provider));
    let pairs = pairs.collect::<Result<Vec<_>, String>>()?;
    let words = |error: rustls::Error| format!("TLS cannot be served: {error}");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(words)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ByName(pairs)));
    config.alpn_protocols = protocols.to_vec();
    config.ticketer = ring::Ticketer::new().map_err(words)?;
    Ok(Arc::new(config))
}

fn read((chain, key): &Files, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, String> {
    let cannot = |file: &Path, why: &dyn std::fmt::Display| {
        format!("{} cannot be used: {why}", file.display())
    };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| cannot(chain, &error))?;
    if certificates.is_empty() {
        return Err(cannot(chain, &"it has no certificate in PEM"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| cannot(key, &error))?;
    let pair = CertifiedKey::from_der(certificates, secret, provider);
    let pair = pair.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            cannot(key, &format!("it is not the key of {}", chain.display()))
        }
        error => cannot(key, &error),
    })?;
    Ok(Arc::new(pair))
}

/// Pairs in the order in which they were given.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    /// Returns the first pair that holds for the name and can sign as the client wants, or the
    /// first that can sign.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let signs = |pair: &&Arc<CertifiedKey>| {
            let scheme = pair.key.choose_scheme(hello.signature_schemes());
            scheme.is_some()
        };
        let name = hello.server_name();
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let is_named = |pair: &&Arc<CertifiedKey>| match &name {
            Some(name) => holds_for(pair, name),
            None => false,
        };
        let named = self.0.iter().filter(is_named).find(signs);
        named.or_else(|| self.0.iter().find(signs)).cloned()
    }
}

fn holds_for(pair: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = pair.cert.first().map(ParsedCertificate::try_from);
    matches!(parsed, Some(Ok(parsed)) if verify_server_name(&parsed, name).is_ok())
}
