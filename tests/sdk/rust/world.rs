//! Where the services are, and what the stub answers for which id.

pub const API_KEY: &str = "po_dev_key";
pub const LATER_CHARGE: &str = "chg_00000000000000000000000000000001";
pub const LATER_PROBLEM: &str = "chg_00000000000000000000000000000004";
pub const FOREIGN: [(&str, u16); 3] = [
    ("chg_00000000000000000000000000000002", 503),
    ("chg_00000000000000000000000000000003", 404),
    ("chg_00000000000000000000000000000005", 418),
];

pub fn env(name: &str) -> String {
    std::env::var(name).expect(name)
}
