//! Servers and load generators that run inside the engine.

pub mod demo;
pub mod dns;
pub mod echo;
pub mod faulty;
pub mod http;
pub mod load;
pub mod proxy;
pub mod tls;
