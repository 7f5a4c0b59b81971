//! The whole world in one value, and the bounds of what may go wrong in it.
//!
//! One client key, one charge: charges share nothing but statements, and a statement treats each row by itself.

use crate::books::Books;
use crate::provider::{ObjectNo, Provider, Verdict};
use crate::worker::Run;

pub(crate) const WORKERS: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The client was told that its request is accepted.
    pub(crate) accepted: bool,
    /// The client was told that its payment failed: it looks at every moment.
    pub(crate) told_failed: bool,
    pub(crate) books: Books,
    /// What a restore brings back.
    pub(crate) backup: Books,
    /// The database was restored, and workers run in recovery mode since.
    pub(crate) restored: bool,
    pub(crate) provider: Provider,
    /// A run each, with what it keeps in memory. A run that nobody moves is a paused one.
    pub(crate) workers: [Option<Run>; WORKERS],
    pub(crate) left: Bounds,
}

/// How often each thing may still happen. What is not counted here may happen at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    /// Calls whose request or answer is lost, that are answered with an error (which the provider keeps under the key), or
    /// statements whose reply is lost after the commit.
    pub(crate) faults: u8,
    /// Requests that land at any later time, or never, after their sender gave up.
    pub(crate) late: u8,
    pub(crate) crashes: u8,
    /// Leases that run out under a living worker.
    pub(crate) pauses: u8,
    /// Refusals, declines and customers who must act.
    pub(crate) verdicts: u8,
    /// The client asks for a cancel.
    pub(crate) cancels: u8,
    /// A key window passes.
    pub(crate) days: u8,
    pub(crate) restores: u8,
    /// The database goes back a little, and nobody notices.
    pub(crate) failovers: u8,
    /// Outbox rows that vanish, for the reconciler to make again.
    pub(crate) lost_jobs: u8,
}

/// What keeps the protocol safe, and can be switched off to show that the checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A run executes its object only if the statement that stores it went through.
    OnlyTheStoredIsExecuted,
    /// The object's id is committed before it is executed.
    StoredBeforeExecute,
    /// An object is canceled before its charge is called failed.
    CancelBeforeFailed,
    /// After a restore, a job without an object looks for one at the provider before it makes one, however young it seems.
    LookFirstAfterRestore,
    /// A look that finds several objects cancels all but the one it adopts, before it adopts it.
    OthersCanceledBeforeAdopting,
    /// Failed is written only under a lease that has not run out, whether or not it was taken back.
    FailedWithinTheLease,
}

/// All guards but one, or all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guards {
    pub(crate) without: Option<Guard>,
}

impl Guards {
    pub(crate) fn have(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The client sends its request, for the first time or again.
    Submit,
    AskForCancel,
    Claim(usize),
    /// The worker's next statement or call.
    Step(usize, Course),
    Crash(usize),
    LeaseRunsOut,
    TakeBack,
    JobVanishes,
    ReconcilerMakesJob,
    /// A request whose sender gave up reaches the provider after all.
    LateLands(usize, Verdict),
    CustomerActs(ObjectNo, bool),
    /// The published time for the customer is over.
    CustomersTimeIsOver,
    /// Longer than the key window. The provider forgets its keys, or keeps them longer than it promised.
    DayPasses {
        keys_forgotten: bool,
    },
    BackUp,
    /// The books go back to the backup, and workers run in recovery mode from now on. The runs of before die, or go on
    /// and notice nothing.
    Restore {
        processes_die: bool,
    },
    /// A replica that lags takes over: the books go back to the backup, and everyone goes on.
    FailOver,
}

/// How a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    Well(Verdict),
    /// Done, and the answer is lost.
    AnswerLost(Verdict),
    /// The connection was refused, or the provider throttles: surely nothing was done.
    NotSent,
    RequestLost,
    /// The sender gives up on a request that is still on its way.
    Late,
    /// A 500 that is kept under the key; nothing was done.
    ErrorBefore,
    /// Done, and a 500 is kept under the key.
    ErrorAfter(Verdict),
    /// The statement was committed and its reply lost: the batch runs again.
    ReplyLost,
}

impl World {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            accepted: false,
            told_failed: false,
            books: Books::default(),
            backup: Books::default(),
            restored: false,
            provider: Provider::default(),
            workers: [None; WORKERS],
            left: bounds,
        }
    }

    /// The smallest lease token that nobody remembers. Tokens are only ever compared, so a forgotten one is as good as new.
    pub(crate) fn fresh_token(&self) -> u8 {
        self.unused(|run| run.token, Books::token)
    }

    pub(crate) fn fresh_job(&self) -> u8 {
        self.unused(|run| run.job, |books| books.job.map(|job| job.id))
    }

    fn unused(&self, of_run: fn(&Run) -> u8, of_books: fn(&Books) -> Option<u8>) -> u8 {
        let taken = |number: u8| {
            self.workers
                .iter()
                .flatten()
                .any(|run| of_run(run) == number)
                || of_books(&self.books) == Some(number)
                || of_books(&self.backup) == Some(number)
        };
        (0..=u8::MAX).find(|number| !taken(*number)).unwrap()
    }

    /// The clock passes the end of the lease, and a backup doesn't turn the clock back.
    pub(crate) fn lease_runs_out(&mut self) {
        if self.backup.token() == self.books.token() {
            self.backup.expire_lease();
        }
        self.books.expire_lease();
    }

    /// Whether a living run holds the lease.
    pub(crate) fn holder_lives(&self) -> bool {
        self.workers
            .iter()
            .flatten()
            .any(|run| Some(run.token) == self.books.token())
    }
}
