//! The model: what may happen next in a world, and what must hold in each.

use std::collections::HashSet;
use std::sync::Mutex;

use stateright::{Model, Property};

use crate::books::{Books, Shown};
use crate::ends::{calm, ended_truly, fingerprint};
use crate::provider::{Fault, Request, Status, Verdict};
use crate::state::{Action, Bounds, Course, Guard, Guards, WORKERS, World};
use crate::worker::{Heard, Next, Protocol, Run};

pub(crate) const ONE_CHARGE: &str = "a key has one charge at most";
pub(crate) const NOT_MOVED: &str = "no failed charge has moved money";
pub(crate) const NOT_MOVABLE: &str = "no failed charge can still move money";
pub(crate) const REALLY_MOVED: &str = "a succeeded charge has moved money";
pub(crate) const TRUE_END: &str = "an accepted request can reach a true end";
pub(crate) const TOLD: &str = "who was told failed is not charged after a failover";
/// What must happen in some world, or the model does nothing.
pub(crate) const SUCCEEDS: &str = "a charge succeeds";
pub(crate) const FAILS: &str = "a charge fails";
/// What must hold in every world.
pub(crate) const PROMISES: [&str; 6] = [
    ONE_CHARGE,
    NOT_MOVED,
    TOLD,
    NOT_MOVABLE,
    REALLY_MOVED,
    TRUE_END,
];

pub(crate) struct Payonce {
    bounds: Bounds,
    protocol: Protocol,
    /// Fingerprints of the worlds from which a true end was found: a continuation that meets one is done.
    ends_well: Mutex<HashSet<u64>>,
}

impl Payonce {
    pub(crate) fn new(bounds: Bounds, guards: Guards) -> Self {
        Self {
            bounds,
            protocol: Protocol::new(guards),
            ends_well: Mutex::default(),
        }
    }

    /// The books go back to what they were.
    fn losses(world: &World, actions: &mut Vec<Action>) {
        let left = &world.left;
        if left.restores + left.failovers > 0 && world.accepted {
            if world.backup.charge.is_none() && world.books.charge.is_some() {
                actions.push(Action::BackUp);
            }
            if left.restores > 0 {
                actions
                    .extend([true, false].map(|processes_die| Action::Restore { processes_die }));
            }
            if left.failovers > 0 {
                actions.push(Action::FailOver);
            }
        }
    }

    fn steps(world: &World, at: usize, run: &Run, actions: &mut Vec<Action>) {
        let mut courses = vec![];
        match run.next {
            Next::Finish(_) | Next::Wait(_) | Next::Discard => {
                courses.push(Course::Well(Verdict::Approved));
            }
            Next::Store { .. } => {
                courses.push(Course::Well(Verdict::Approved));
                if world.left.faults > 0 {
                    courses.push(Course::ReplyLost);
                }
            }
            Next::Find | Next::Read(_) => {
                courses.push(Course::Well(Verdict::Approved));
                if world.left.faults > 0 {
                    courses.extend([Course::NotSent, Course::RequestLost]);
                }
            }
            Next::CancelOther(_) | Next::Prepare | Next::Execute(_) | Next::Cancel(_) => {
                let request = Protocol::request(run).unwrap();
                let fresh = !world.provider.has_kept(request);
                let keyed = !matches!(request, Request::Cancel { .. });
                for verdict in verdicts(world, request) {
                    courses.push(Course::Well(verdict));
                    if world.left.faults > 0 {
                        courses.push(Course::AnswerLost(verdict));
                        if keyed && fresh {
                            courses.push(Course::ErrorAfter(verdict));
                        }
                    }
                }
                if world.left.faults > 0 {
                    courses.extend([Course::NotSent, Course::RequestLost]);
                    if keyed && fresh {
                        courses.push(Course::ErrorBefore);
                    }
                }
                if world.left.late > 0 {
                    courses.push(Course::Late);
                }
            }
        }
        actions.extend(courses.into_iter().map(|course| Action::Step(at, course)));
    }

    fn step(&self, world: &mut World, at: usize, course: Course) {
        let Some(run) = world.workers[at] else {
            return;
        };
        let request = Protocol::request(&run);
        world.workers[at] = match (request, course) {
            (Some(request), _) => Some(self.call(world, run, request, course)),
            (None, Course::ReplyLost) => {
                world.left.faults -= 1;
                Some(self.protocol.write_unheard(run, &mut world.books))
            }
            (None, course) if matches!(run.next, Next::Find | Next::Read(_)) => match course {
                Course::NotSent => {
                    world.left.faults -= 1;
                    Some(self.protocol.hear(run, Heard::NotSent))
                }
                Course::RequestLost => {
                    world.left.faults -= 1;
                    Some(self.protocol.hear(run, Heard::Nothing))
                }
                _ => Some(self.protocol.look(run, &world.provider)),
            },
            (None, _) => self.protocol.write(run, &mut world.books),
        };
    }

    fn call(&self, world: &mut World, run: Run, request: Request, course: Course) -> Run {
        let provider = &mut world.provider;
        let (verdict, heard) = match course {
            Course::Well(verdict) => {
                let reply = provider.land(request, verdict, Fault::None);
                (verdict, Heard::Reply(reply))
            }
            Course::AnswerLost(verdict) => {
                provider.land(request, verdict, Fault::None);
                (verdict, Heard::Nothing)
            }
            Course::ErrorBefore => {
                let reply = provider.land(request, Verdict::Approved, Fault::ErrorBefore);
                (Verdict::Approved, Heard::Reply(reply))
            }
            Course::ErrorAfter(verdict) => {
                let reply = provider.land(request, verdict, Fault::ErrorAfter);
                (verdict, Heard::Reply(reply))
            }
            Course::NotSent => (Verdict::Approved, Heard::NotSent),
            Course::RequestLost | Course::ReplyLost => (Verdict::Approved, Heard::Nothing),
            Course::Late => {
                provider.send_late(request);
                (Verdict::Approved, Heard::Nothing)
            }
        };
        match course {
            Course::Well(_) => {}
            Course::Late => world.left.late -= 1,
            _ => world.left.faults -= 1,
        }
        if verdict != Verdict::Approved {
            world.left.verdicts -= 1;
        }
        self.protocol.hear(run, heard)
    }

    /// Goes on from here with no further fault, every paused process awake and every late request landing, and says whether
    /// that leads to an end, and to a true one.
    fn ends_well(&self, world: &World) -> bool {
        let mut world = world.clone();
        let mut passed = Vec::new();
        // Far more than the longest way to an end.
        for _ in 0..200 {
            let fingerprint = fingerprint(&world);
            if self.ends_well.lock().unwrap().contains(&fingerprint) {
                break;
            }
            passed.push(fingerprint);
            let Some(action) = calm(&world) else {
                if !ended_truly(&world) {
                    return false;
                }
                break;
            };
            self.act(&mut world, action);
            if passed.len() == 200 {
                return false;
            }
        }
        self.ends_well.lock().unwrap().extend(passed);
        true
    }

    fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Submit => {
                let job = world.fresh_job();
                world.books.accept(job);
                world.accepted = true;
            }
            Action::AskForCancel => {
                world.left.cancels -= 1;
                let certain = !(world.restored && self.protocol.has(Guard::LookFirstAfterRestore));
                world.books.ask_for_cancel(certain);
            }
            Action::Claim(at) => {
                let token = world.fresh_token();
                world.workers[at] = world
                    .books
                    .claim(token)
                    .map(|(job, row)| self.protocol.begin(job, token, row, world.restored));
            }
            Action::Step(at, course) => self.step(world, at, course),
            Action::Crash(at) => {
                world.left.crashes -= 1;
                world.workers[at] = None;
            }
            Action::LeaseRunsOut => {
                if world.holder_lives() {
                    world.left.pauses -= 1;
                }
                world.lease_runs_out();
            }
            Action::TakeBack => world.books.take_back(),
            Action::JobVanishes => {
                world.left.lost_jobs -= 1;
                world.books.job = None;
            }
            Action::ReconcilerMakesJob => {
                // Its threshold is longer than a lease.
                world.backup.expire_lease();
                let job = world.fresh_job();
                world.books.make_job(job);
            }
            Action::LateLands(at, verdict) => {
                let request = world.provider.late.remove(at);
                world.provider.land(request, verdict, Fault::None);
                if verdict != Verdict::Approved {
                    world.left.verdicts -= 1;
                }
            }
            Action::CustomerActs(object, well) => world.provider.customer_acts(object, well),
            Action::CustomersTimeIsOver => world.books.customers_time_is_over(),
            Action::DayPasses { keys_forgotten } => {
                world.left.days -= 1;
                world.books.day_passes();
                world.backup.day_passes();
                if keys_forgotten {
                    world.provider.forget_keys();
                }
            }
            Action::BackUp => world.backup = world.books,
            Action::Restore { processes_die } => {
                world.left.restores -= 1;
                world.books = world.backup;
                world.restored = true;
                if processes_die {
                    world.workers = [None; WORKERS];
                }
            }
            Action::FailOver => {
                world.left.failovers -= 1;
                world.books = world.backup;
            }
        }
    }
}

fn verdicts(world: &World, request: Request) -> impl Iterator<Item = Verdict> {
    let open = world.left.verdicts > 0 && world.provider.is_open(request);
    let action = open && matches!(request, Request::Execute { .. });
    [
        Some(Verdict::Approved),
        open.then_some(Verdict::Refused),
        action.then_some(Verdict::Action),
    ]
    .into_iter()
    .flatten()
}

fn says(world: &World, this: fn(Shown) -> bool) -> bool {
    world.books.charge.is_some_and(|row| this(row.state))
}

fn says_failed(world: &World) -> bool {
    says(world, Shown::says_failed)
}

/// Whether a request that was sent, a run that is about to send, or the customer can make some object succeed.
fn can_move(world: &World) -> bool {
    let provider = &world.provider;
    let executes = |request: &Request| {
        matches!(request, Request::Execute { .. }) && provider.is_open(*request)
    };
    provider.late.iter().any(executes)
        || world
            .workers
            .iter()
            .flatten()
            .filter_map(Protocol::request)
            .any(|request| executes(&request))
        || provider.objects.contains(&Status::RequiresAction)
}

impl Model for Payonce {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let left = &world.left;
        if world.books.charge.is_none() {
            actions.push(Action::Submit);
        }
        let open = |state: Shown| !state.is_terminal();
        if left.cancels > 0 && says(world, open) {
            actions.push(Action::AskForCancel);
        }
        for (at, worker) in world.workers.iter().enumerate() {
            if let Some(run) = worker {
                Self::steps(world, at, run, actions);
                if left.crashes > 0 {
                    actions.push(Action::Crash(at));
                }
            }
        }
        match world.books.job {
            Some(job) => {
                match job.lease {
                    // Which of two idle workers claims makes no difference.
                    None => actions.extend(
                        world
                            .workers
                            .iter()
                            .position(Option::is_none)
                            .map(Action::Claim),
                    ),
                    Some(lease) if lease.expired => actions.push(Action::TakeBack),
                    Some(_) if left.pauses > 0 || !world.holder_lives() => {
                        actions.push(Action::LeaseRunsOut);
                    }
                    Some(_) => {}
                }
                if left.lost_jobs > 0 {
                    actions.push(Action::JobVanishes);
                }
            }
            None if world
                .books
                .charge
                .is_some_and(|row| !row.state.is_terminal()) =>
            {
                actions.push(Action::ReconcilerMakesJob);
            }
            None => {}
        }
        for (at, request) in world.provider.late.iter().enumerate() {
            actions.extend(verdicts(world, *request).map(|verdict| Action::LateLands(at, verdict)));
        }
        for (object, status) in (0..).zip(&world.provider.objects) {
            if *status == Status::RequiresAction {
                actions.extend([true, false].map(|well| Action::CustomerActs(object, well)));
            }
        }
        if world.books.customer_has_time() {
            actions.push(Action::CustomersTimeIsOver);
        }
        if left.days > 0 && world.accepted {
            actions
                .extend([true, false].map(|keys_forgotten| Action::DayPasses { keys_forgotten }));
        }
        Self::losses(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, action);
        next.told_failed |= says_failed(&next);
        if next.left.restores + next.left.failovers == 0 {
            next.backup = Books::default();
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_CHARGE, |_, world: &World| {
                world.provider.successes() <= 1
            }),
            Property::always(NOT_MOVED, |_, world: &World| {
                !(says_failed(world) && world.provider.successes() > 0)
            }),
            Property::always(NOT_MOVABLE, |_, world: &World| {
                !(says_failed(world) && can_move(world))
            }),
            Property::always(TOLD, |_, world: &World| {
                !(world.told_failed && !world.restored && world.provider.successes() > 0)
            }),
            Property::always(REALLY_MOVED, |_, world: &World| {
                world.books.charge.is_none_or(|row| {
                    row.state != Shown::Succeeded
                        || row.object.is_some_and(|object| {
                            world.provider.status(object) == Status::Succeeded
                        })
                })
            }),
            Property::sometimes(SUCCEEDS, |_, world: &World| {
                says(world, |state| state == Shown::Succeeded)
            }),
            Property::sometimes(FAILS, |_, world: &World| says(world, Shown::says_failed)),
            Property::always(TRUE_END, |model: &Self, world: &World| {
                model.ends_well(world)
            }),
        ]
    }
}
