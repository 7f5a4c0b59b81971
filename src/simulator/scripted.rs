//! Answers that a test dictates, for what no fault stands for: any status, any body, before or after the effect.

use serde::{Deserialize, Serialize};

use super::faults::Phase;
use super::reply::Reply;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scripted {
    pub(super) phase: Phase,
    pub(super) status: u16,
    #[serde(default)]
    body: String,
    #[serde(default)]
    location: Option<String>,
    /// Whether what was asked for is done all the same. Kept under the key is the true answer then.
    #[serde(default)]
    pub(super) effect: bool,
    /// How many requests it answers.
    #[serde(default = "once")]
    times: u32,
}

fn once() -> u32 {
    1
}

impl Scripted {
    pub(super) fn reply(&self) -> Reply {
        let reply = Reply::json(self.status, self.body.clone().into_bytes());
        match &self.location {
            Some(location) => reply.header("location", location.clone()),
            None => reply,
        }
    }
}

/// The answer to the next request of `phase`, if one was dictated.
pub(super) fn take(script: &mut Vec<Scripted>, phase: Phase) -> Option<Scripted> {
    let at = script
        .iter()
        .position(|scripted| scripted.phase == phase && scripted.times > 0)?;
    let taken = script.get_mut(at)?;
    taken.times -= 1;
    let answer = taken.clone();
    if answer.times == 0 {
        script.remove(at);
    }
    Some(answer)
}
