//! How a world goes on once nothing goes wrong any more, and what a true end is.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::provider::{Status, Verdict};
use crate::state::{Action, Bounds, Course, World};

/// The next thing that happens when nothing goes wrong any more.
pub(crate) fn calm(world: &World) -> Option<Action> {
    let well = Course::Well(Verdict::Approved);
    if !world.provider.late.is_empty() {
        return Some(Action::LateLands(0, Verdict::Approved));
    }
    if let Some(at) = world.workers.iter().position(Option::is_some) {
        return Some(Action::Step(at, well));
    }
    if world.books.charge.is_none() {
        return world.accepted.then_some(Action::Submit);
    }
    if let Some(waiting) = world
        .provider
        .objects
        .iter()
        .position(|status| *status == Status::RequiresAction)
    {
        return Some(Action::CustomerActs(waiting.try_into().unwrap(), true));
    }
    match world.books.job {
        Some(job) => Some(match job.lease {
            None => Action::Claim(0),
            Some(lease) if lease.expired => Action::TakeBack,
            Some(_) => Action::LeaseRunsOut,
        }),
        None => (!world.books.charge?.state.is_terminal()).then_some(Action::ReconcilerMakesJob),
    }
}

pub(crate) fn ended_truly(world: &World) -> bool {
    let moved = world.provider.successes() > 0;
    world
        .books
        .charge
        .is_none_or(|row| row.state.is_terminal() && row.state.says_failed() != moved)
}

/// Of all but what may still go wrong, which a calm world doesn't look at.
pub(crate) fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    let calm = World {
        left: Bounds::default(),
        told_failed: false,
        ..world.clone()
    };
    calm.hash(&mut hasher);
    hasher.finish()
}
