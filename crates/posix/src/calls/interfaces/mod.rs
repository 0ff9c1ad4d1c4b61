//! Requests of programs about interfaces and addresses.

mod listing;
mod routes;
