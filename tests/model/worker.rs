//! One run of a job, as `worker/executor.rs` drives it, a statement or a call a step. What an answer means, and where a
//! charge may go, is asked of `domain` itself.
//!
//! The deadline of a run is left out, which allows more: a paused run may send whatever it was about to send, and more,
//! long after its lease ran out.

use payonce::domain::outcome::strays::{self, Among};
use payonce::domain::outcome::{
    self, Answer, Asked, Certainty, Context, Object, ObjectStatus, Phase, Reason, Step, Unclear,
};

use crate::books::{Books, Finished, Hold, Row, Shown, failure, id_of, number_of, stored};
use crate::provider::{ObjectNo, Provider, Reply, Request, Said, Status};
use crate::state::{Guard, Guards};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) job: u8,
    pub(crate) token: u8,
    /// The charge as this run knows it; its version is what the guards name.
    pub(crate) progress: Row,
    canceling: Option<Why>,
    /// A sweep has found no object, or none that is left.
    looked: bool,
    pub(crate) next: Next,
}

/// `domain`'s reason for a cancel without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Why {
    Failed,
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    Find,
    /// A stray object that does not go on, while nothing is stored.
    CancelOther(ObjectNo),
    Prepare,
    Store {
        object: ObjectNo,
        then: Then,
        repeated: bool,
    },
    Execute(ObjectNo),
    Read(ObjectNo),
    Cancel(ObjectNo),
    Finish(Row),
    Wait(Option<Row>),
    Discard,
}

/// What the stored object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    Execute,
    /// It was found and not made by this run.
    Read,
}

/// What came back from a call, or didn't.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heard {
    Reply(Reply),
    NotSent,
    Nothing,
}

pub(crate) struct Protocol {
    guards: Guards,
    asked: Asked,
}

impl Protocol {
    pub(crate) fn new(guards: Guards) -> Self {
        Self {
            guards,
            asked: Asked {
                amount: 1,
                currency: "usd".to_owned(),
                stamp: "chg".to_owned(),
            },
        }
    }

    pub(crate) fn has(&self, guard: Guard) -> bool {
        self.guards.have(guard)
    }

    /// The executor's `run` and `first_call`.
    pub(crate) fn begin(&self, job: u8, token: u8, row: Row, restored: bool) -> Run {
        let mut run = Run {
            job,
            token,
            progress: row,
            canceling: None,
            looked: false,
            next: Next::Discard,
        };
        if row.state.is_terminal() {
            return run;
        }
        run.next = match row.object {
            Some(object) => Next::Read(object),
            None if row.old || (restored && self.guards.have(Guard::LookFirstAfterRestore)) => {
                Next::Find
            }
            None => cancel_or_prepare(&run),
        };
        run
    }

    /// What a step would send to change something at the provider.
    pub(crate) fn request(run: &Run) -> Option<Request> {
        match run.next {
            Next::Prepare => Some(Request::Prepare {
                key: run.progress.prepares,
            }),
            Next::Execute(object) => Some(Request::Execute {
                key: run.progress.attempts,
                object,
            }),
            Next::Cancel(object) | Next::CancelOther(object) => Some(Request::Cancel { object }),
            Next::Find
            | Next::Store { .. }
            | Next::Read(_)
            | Next::Finish(_)
            | Next::Wait(_)
            | Next::Discard => None,
        }
    }

    /// The answer to a look or a read, which change nothing.
    pub(crate) fn look(&self, mut run: Run, provider: &Provider) -> Run {
        if let Next::Read(object) = run.next {
            let said = Said::Object(object, provider.status(object));
            let replayed = false;
            return self.hear(run, Heard::Reply(Reply { said, replayed }));
        }
        run.next = self.found(&run, provider);
        run.looked = run.next == Next::Prepare;
        run
    }

    /// A sweep's walk, and what the executor's `settle_strays` makes of what it finds.
    fn found(&self, run: &Run, provider: &Provider) -> Next {
        let number = |object: usize| ObjectNo::try_from(object).unwrap();
        // The worst order: the newest of equals goes on, while an older run holds an older one.
        let mut strays: Vec<Object> = (0..provider.objects.len())
            .rev()
            .map(|object| self.object(number(object), provider.objects[object]))
            .collect();
        loop {
            return match strays::among(&strays, None, &self.asked) {
                Among::None => cancel_or_prepare(run),
                Among::Adopt(id) => Next::Store {
                    object: number_of(&id),
                    then: Then::Read,
                    repeated: false,
                },
                Among::Cancel(id) if self.guards.have(Guard::OthersCanceledBeforeAdopting) => {
                    Next::CancelOther(number_of(&id))
                }
                Among::Cancel(id) => {
                    strays.retain(|object| object.id != id);
                    continue;
                }
                Among::Dispute(_) => panic!("nothing is stored"),
            };
        }
    }

    /// The executor's `decide` and `take`, up to the next step.
    pub(crate) fn hear(&self, mut run: Run, heard: Heard) -> Run {
        let phase = match run.next {
            Next::CancelOther(_) => {
                let canceled = matches!(
                    heard,
                    Heard::Reply(Reply {
                        said: Said::Object(_, Status::Canceled),
                        ..
                    })
                );
                // Anything else is no answer: the next run looks again.
                run.next = if canceled {
                    Next::Find
                } else {
                    Next::Wait(None)
                };
                return run;
            }
            Next::Find | Next::Prepare => Phase::Prepare,
            Next::Execute(_) => Phase::Execute,
            Next::Read(_) => Phase::Read,
            Next::Cancel(_)
            | Next::Store { .. }
            | Next::Finish(_)
            | Next::Wait(_)
            | Next::Discard => Phase::Cancel,
        };
        let canceling = run.canceling.map(|why| match why {
            Why::Failed => Reason::Failed(failure()),
            Why::Client => Reason::Client,
        });
        let context = Context {
            asked: &self.asked,
            canceling: canceling.as_ref(),
            cancel_requested: run.progress.cancel_requested,
            looked: run.looked,
            action_expired: run.progress.state == Shown::RequiresAction { expired: true },
        };
        let step = outcome::decide(phase, self.answer(heard), context);
        self.take(&mut run, phase, step);
        run
    }

    fn take(&self, run: &mut Run, phase: Phase, step: Step) {
        run.next = match step {
            Step::Execute(id) if self.guards.have(Guard::StoredBeforeExecute) => Next::Store {
                object: number_of(&id),
                then: Then::Execute,
                repeated: false,
            },
            Step::Execute(id) => {
                let object = number_of(&id);
                run.progress.object = Some(object);
                run.progress.attempts += 1;
                Next::Execute(object)
            }
            Step::Read => run.progress.object.map_or(Next::Prepare, Next::Read),
            Step::Look => Next::Find,
            Step::Cancel(reason) => match run.progress.object {
                Some(_) if !self.guards.have(Guard::CancelBeforeFailed) => Next::Finish(Row {
                    state: Shown::Failed,
                    ..run.progress
                }),
                Some(object) => {
                    run.canceling = Some(match reason {
                        Reason::Failed(_) => Why::Failed,
                        Reason::Client => Why::Client,
                    });
                    Next::Cancel(object)
                }
                None => Next::Prepare,
            },
            Step::Succeed(id) => {
                finish(run, run.progress.progress().succeed(stored(number_of(&id))))
            }
            Step::Fail(failure, proof) => finish(run, run.progress.progress().fail(failure, proof)),
            Step::Canceled(proof) => finish(run, run.progress.progress().cancel(proof)),
            Step::Wait {
                certainty,
                pace: _,
                new_prepare_key,
            } => Next::Wait(wait(run.progress, phase, &certainty, new_prepare_key)),
            Step::Park { alert, .. } => panic!("nothing here is to be parked: {alert:?}"),
        };
    }

    fn answer(&self, heard: Heard) -> Answer {
        let Reply { said, replayed } = match heard {
            Heard::Reply(reply) => reply,
            Heard::NotSent => return Answer::NotSent,
            Heard::Nothing => {
                return Answer::Unclear {
                    reason: Unclear::Timeout,
                    replayed: false,
                };
            }
        };
        let unclear = |reason| Answer::Unclear { reason, replayed };
        match said {
            Said::Object(number, status) => Answer::Object {
                object: self.object(number, status),
                replayed,
            },
            Said::Refused => Answer::Refused {
                failure: failure(),
                replayed,
            },
            Said::Error => unclear(Unclear::ServerError),
            Said::UnexpectedState => unclear(Unclear::UnexpectedState),
            Said::OtherRequest => unclear(Unclear::IdempotencyError),
        }
    }

    fn object(&self, number: ObjectNo, status: Status) -> Object {
        Object {
            id: id_of(number),
            status: match status {
                Status::RequiresConfirmation => ObjectStatus::RequiresConfirmation,
                Status::RequiresPaymentMethod => ObjectStatus::RequiresPaymentMethod,
                Status::RequiresAction => ObjectStatus::RequiresAction,
                Status::Succeeded => ObjectStatus::Succeeded,
                Status::Canceled => ObjectStatus::Canceled,
            },
            amount: self.asked.amount,
            amount_received: if status == Status::Succeeded {
                self.asked.amount
            } else {
                0
            },
            currency: self.asked.currency.clone(),
            stamp: Some(self.asked.stamp.clone()),
            failure: None,
            next_url: (status == Status::RequiresAction).then(String::new),
        }
    }

    /// A run's statement. `None` when the run is over.
    pub(crate) fn write(&self, mut run: Run, books: &mut Books) -> Option<Run> {
        let hold = Hold {
            job: run.job,
            token: run.token,
            version: run.progress.version,
        };
        match run.next {
            Next::Store {
                object,
                then,
                repeated,
            } => {
                let progress = run.progress.progress();
                let after = match then {
                    Then::Execute => progress.start_execute(stored(object)),
                    Then::Read => progress.adopt(stored(object)),
                };
                let started = after.is_ok()
                    && books.start_execute(hold, object, then == Then::Execute, repeated);
                run.next = match then {
                    Then::Execute
                        if started || !self.guards.have(Guard::OnlyTheStoredIsExecuted) =>
                    {
                        Next::Execute(object)
                    }
                    Then::Read if started => Next::Read(object),
                    // Nothing may be sent: the job is given back, if it is still ours.
                    Then::Execute | Then::Read => Next::Wait(None),
                };
                if let Ok(after) = after
                    && started
                {
                    run.progress = Row::of(&after, run.progress);
                }
                Some(run)
            }
            Next::Finish(last) => {
                match books.finish(hold, last, self.guards.have(Guard::FailedWithinTheLease)) {
                    Finished::Ended => None,
                    Finished::LeaseLost => {
                        run.next = Next::Wait(None);
                        Some(run)
                    }
                }
            }
            Next::Wait(change) => {
                let written = books.wait(hold, change);
                run.next = Next::Wait(None);
                (!written && change.is_some()).then_some(run)
            }
            Next::Discard => {
                books.discard(run.job);
                None
            }
            Next::Find
            | Next::CancelOther(_)
            | Next::Prepare
            | Next::Execute(_)
            | Next::Read(_)
            | Next::Cancel(_) => Some(run),
        }
    }

    /// The statement committed and its reply was lost. Only the store is not the same when it is run again.
    pub(crate) fn write_unheard(&self, mut run: Run, books: &mut Books) -> Run {
        let written = run;
        let _ = self.write(written, books);
        if let Next::Store { repeated, .. } = &mut run.next {
            *repeated = true;
        }
        run
    }
}

/// No object is left that could be this charge's.
fn cancel_or_prepare(run: &Run) -> Next {
    match outcome::nothing_was_executed(&run.progress.progress()) {
        Some(proof) if run.progress.cancel_requested => {
            finish(run, run.progress.progress().cancel(proof))
        }
        Some(_) | None => Next::Prepare,
    }
}

fn finish<E>(run: &Run, last: Result<payonce::domain::charge::Progress, E>) -> Next {
    last.map_or(Next::Discard, |last| {
        Next::Finish(Row::of(&last, run.progress))
    })
}

/// The executor's `wait`: what the charge shows while its job waits, if that is a change.
fn wait(before: Row, phase: Phase, certainty: &Certainty, new_prepare_key: bool) -> Option<Row> {
    let state = certainty.state_after(&before.state.state());
    let mut progress = before.progress();
    if new_prepare_key {
        progress.prepares += 1;
        progress.version += 1;
    }
    if phase == Phase::Execute && *certainty == Certainty::AsBefore {
        progress.attempts -= 1;
        progress.version += 1;
    }
    let progress = progress.wait(state).unwrap_or_else(|_| before.progress());
    let after = Row::of(&progress, before);
    (after != before).then_some(after)
}
