//! The rows of one charge, and the statements that change them with the guards of `src/db`. A statement happens at once or
//! not at all.

use payonce::domain::charge::{Advice, Failure, NextAction, Progress, State, StoredObject};
use payonce::domain::ids::ProviderChargeId;

use crate::provider::ObjectNo;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Books {
    pub(crate) charge: Option<Row>,
    pub(crate) job: Option<Job>,
}

/// The charge. What it says goes through `domain` and back: see [`Row::progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) version: u8,
    pub(crate) state: Shown,
    pub(crate) attempts: u8,
    pub(crate) prepares: u8,
    pub(crate) object: Option<ObjectNo>,
    /// Made longer ago than the provider's key window less the margin.
    pub(crate) old: bool,
    pub(crate) cancel_requested: bool,
}

/// `domain`'s state without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shown {
    Pending,
    Processing { sent: bool },
    RequiresAction { expired: bool },
    RequiresReconciliation,
    Succeeded,
    Failed,
    Canceled,
}

impl Shown {
    pub(crate) fn is_terminal(self) -> bool {
        self.state().is_terminal()
    }

    pub(crate) fn says_failed(self) -> bool {
        matches!(self, Self::Failed | Self::Canceled)
    }

    pub(crate) fn state(self) -> State {
        match self {
            Self::Pending => State::Pending,
            Self::Processing { sent } => State::Processing { sent },
            Self::RequiresAction { expired: _ } => State::RequiresAction(NextAction {
                url: String::new(),
                expires_at: None,
            }),
            Self::RequiresReconciliation => State::RequiresReconciliation,
            Self::Succeeded => State::Succeeded,
            Self::Failed => State::Failed(failure()),
            Self::Canceled => State::Canceled,
        }
    }

    fn of(state: &State, before: Self) -> Self {
        match state {
            State::Pending => Self::Pending,
            State::Processing { sent } => Self::Processing { sent: *sent },
            // The expiry is set when the action is first seen and kept as long as it is shown.
            State::RequiresAction(_) => Self::RequiresAction {
                expired: before == Self::RequiresAction { expired: true },
            },
            State::RequiresReconciliation => Self::RequiresReconciliation,
            State::Succeeded => Self::Succeeded,
            State::Failed(_) => Self::Failed,
            State::Canceled => Self::Canceled,
        }
    }
}

pub(crate) fn failure() -> Failure {
    Failure {
        code: String::new(),
        message: String::new(),
        provider_code: None,
        advice: Advice::TryAgainLater,
    }
}

pub(crate) fn id_of(object: ObjectNo) -> ProviderChargeId {
    ProviderChargeId::parse(&format!("pi_{object}")).unwrap()
}

pub(crate) fn number_of(id: &ProviderChargeId) -> ObjectNo {
    id.as_str().strip_prefix("pi_").unwrap().parse().unwrap()
}

pub(crate) fn stored(object: ObjectNo) -> StoredObject {
    StoredObject {
        id: id_of(object),
        account: String::new(),
    }
}

impl Row {
    fn new() -> Self {
        Self::of(
            &Progress::new(),
            Self {
                version: 0,
                state: Shown::Pending,
                attempts: 0,
                prepares: 0,
                object: None,
                old: false,
                cancel_requested: false,
            },
        )
    }

    pub(crate) fn progress(self) -> Progress {
        Progress {
            version: self.version.into(),
            state: self.state.state(),
            attempts: self.attempts.into(),
            prepares: self.prepares.into(),
            object: self.object.map(stored),
        }
    }

    pub(crate) fn of(progress: &Progress, before: Self) -> Self {
        Self {
            version: progress.version.try_into().unwrap(),
            state: Shown::of(&progress.state, before.state),
            attempts: progress.attempts.try_into().unwrap(),
            prepares: progress.prepares.try_into().unwrap(),
            object: progress.object.as_ref().map(|object| number_of(&object.id)),
            old: before.old,
            cancel_requested: before.cancel_requested,
        }
    }
}

/// The outbox row. Delays are left out: a job that is ready may be claimed at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) id: u8,
    pub(crate) lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) token: u8,
    pub(crate) expired: bool,
}

/// What every guard names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) job: u8,
    pub(crate) token: u8,
    pub(crate) version: u8,
}

/// What became of a final transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Applied, or nothing is left to do.
    Ended,
    LeaseLost,
}

impl Books {
    pub(crate) fn token(&self) -> Option<u8> {
        Some(self.job?.lease?.token)
    }

    fn held(&self, hold: Hold) -> Option<Lease> {
        let job = self.job.filter(|job| job.id == hold.job)?;
        job.lease.filter(|lease| lease.token == hold.token)
    }

    fn open(&mut self) -> Option<&mut Row> {
        self.charge.as_mut().filter(|row| !row.state.is_terminal())
    }

    /// `insert_batch.sql`: nothing happens if the charge exists.
    pub(crate) fn accept(&mut self, job: u8) -> bool {
        if self.charge.is_some() {
            return false;
        }
        self.charge = Some(Row::new());
        self.job = Some(Job {
            id: job,
            lease: None,
        });
        true
    }

    /// `claim.sql`
    pub(crate) fn claim(&mut self, token: u8) -> Option<(u8, Row)> {
        let job = self.job.as_mut().filter(|job| job.lease.is_none())?;
        job.lease = Some(Lease {
            token,
            expired: false,
        });
        Some((job.id, self.charge?))
    }

    /// `start_execute` in `attempt.rs`; after a lost reply, `already_started` first.
    pub(crate) fn start_execute(
        &mut self,
        hold: Hold,
        object: ObjectNo,
        executes: bool,
        repeated: bool,
    ) -> bool {
        if self.held(hold).is_none_or(|lease| lease.expired) {
            return false;
        }
        let Some(row) = self.open() else {
            return false;
        };
        if repeated
            && row.version == hold.version + 1
            && row.state == (Shown::Processing { sent: true })
            && row.object == Some(object)
        {
            return true;
        }
        let free = row.object.is_none_or(|stored| stored == object);
        if row.version != hold.version || !free {
            return false;
        }
        *row = Row {
            version: row.version + 1,
            state: Shown::Processing { sent: true },
            attempts: row.attempts + u8::from(executes),
            object: Some(object),
            ..*row
        };
        true
    }

    /// `finish.sql`, and what `completion.rs` does about a row that it did not change. `within_lease`: whether
    /// anything but a success is refused to a lease that ran out and was not taken back yet.
    pub(crate) fn finish(&mut self, hold: Hold, last: Row, within_lease: bool) -> Finished {
        let leased = self
            .held(hold)
            .is_some_and(|lease| !(within_lease && lease.expired));
        let succeeded = last.state == Shown::Succeeded;
        if let Some(row) = self.open()
            && if succeeded {
                row.object.is_none() || row.object == last.object
            } else {
                leased && row.version == hold.version
            }
        {
            *row = Row {
                version: row.version + 1,
                state: last.state,
                object: row.object.or(last.object),
                ..*row
            };
            self.delete_job(hold.job);
            return Finished::Ended;
        }
        let Some(row) = self.charge else {
            return Finished::LeaseLost;
        };
        let disputed = succeeded && row.object != last.object;
        if row.state.is_terminal() {
            self.delete_job(hold.job);
            Finished::Ended
        } else if disputed {
            Finished::Ended
        } else {
            Finished::LeaseLost
        }
    }

    /// `discard`: only of a charge that is terminal.
    pub(crate) fn discard(&mut self, job: u8) {
        if self.charge.is_some_and(|row| row.state.is_terminal()) {
            self.delete_job(job);
        }
    }

    fn delete_job(&mut self, id: u8) {
        self.job = self.job.filter(|job| job.id != id);
    }

    /// `wait.sql`. Neither the stored object nor the account is among what it writes. Returns whether it wrote anything.
    pub(crate) fn wait(&mut self, hold: Hold, change: Option<Row>) -> bool {
        if self.held(hold).is_none() {
            return false;
        }
        if let Some(change) = change {
            let Some(row) = self.open().filter(|row| row.version == hold.version) else {
                return false;
            };
            *row = Row {
                version: row.version + 1,
                state: change.state,
                attempts: change.attempts,
                prepares: change.prepares,
                ..*row
            };
        }
        if let Some(job) = &mut self.job {
            job.lease = None;
        }
        true
    }

    /// A client asks for a cancel: `before_execute` in `cancel.rs`, and `request` where that did nothing. `certain`: no
    /// recovery is under way.
    pub(crate) fn ask_for_cancel(&mut self, certain: bool) {
        let held = self.job.is_none_or(|job| job.lease.is_some());
        let Some(row) = self.open() else {
            return;
        };
        let begun = !matches!(
            row.state,
            Shown::Pending | Shown::Processing { sent: false }
        );
        row.cancel_requested = true;
        row.version += 1;
        if certain && !row.old && !held && !begun && row.object.is_none() {
            row.state = Shown::Canceled;
            self.job = None;
        }
    }

    /// `make_job` in `reconcile.rs`
    pub(crate) fn make_job(&mut self, job: u8) {
        if self.job.is_none()
            && let Some(row) = self.open()
        {
            row.version += 1;
            self.job = Some(Job {
                id: job,
                lease: None,
            });
        }
    }

    pub(crate) fn expire_lease(&mut self) {
        if let Some(lease) = self.job.as_mut().and_then(|job| job.lease.as_mut()) {
            lease.expired = true;
        }
    }

    /// `take_back_expired` in `claim.rs`
    pub(crate) fn take_back(&mut self) {
        if let Some(job) = &mut self.job
            && job.lease.is_some_and(|lease| lease.expired)
        {
            job.lease = None;
        }
    }

    pub(crate) fn customer_has_time(&self) -> bool {
        self.charge
            .is_some_and(|row| row.state == Shown::RequiresAction { expired: false })
    }

    pub(crate) fn customers_time_is_over(&mut self) {
        if let Some(row) = &mut self.charge {
            row.state = Shown::RequiresAction { expired: true };
        }
    }

    pub(crate) fn day_passes(&mut self) {
        self.expire_lease();
        if let Some(row) = &mut self.charge {
            row.old = true;
        }
    }
}
