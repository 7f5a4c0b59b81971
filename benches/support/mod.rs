//! The parts of the benchmarks: the books, the two sides that are compared, and what is told of them.

pub(crate) mod agreement;
pub(crate) mod books;
pub(crate) mod cpu;
pub(crate) mod history;
pub(crate) mod http;
pub(crate) mod idle;
pub(crate) mod load;
pub(crate) mod pgbench;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod service;
pub(crate) mod simulator;
pub(crate) mod steps;
