//! What can be waited for.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;

use sqlx::PgConnection;

use crate::db::{self, DbError};
use crate::domain::charge::{Charge, State};
use crate::domain::ids::{ChargeId, RefundId};
use crate::domain::refund::{Refund, RefundState};

pub trait Watched: Clone + Send + Sync + 'static {
    type Id: Copy + Debug + Eq + Hash + Send + Sync;

    /// In the log.
    const NAME: &'static str;

    fn id(&self) -> Self::Id;

    fn version(&self) -> i32;

    /// Whether something is still to come without the customer.
    fn is_on_its_way(&self) -> bool;

    /// Those whose version is another one now.
    fn find_changed(
        connection: &mut PgConnection,
        seen: &[(Self::Id, i32)],
    ) -> impl Future<Output = Result<Vec<Result<Self, DbError>>, DbError>> + Send;
}

impl Watched for Charge {
    type Id = ChargeId;

    const NAME: &'static str = "charge";

    fn id(&self) -> ChargeId {
        self.id
    }

    fn version(&self) -> i32 {
        self.progress.version
    }

    fn is_on_its_way(&self) -> bool {
        match &self.progress.state {
            State::Pending | State::Processing { .. } | State::RequiresReconciliation => true,
            State::RequiresAction(_) => self.cancel_requested,
            State::Succeeded | State::Failed(_) | State::Canceled => false,
        }
    }

    async fn find_changed(
        connection: &mut PgConnection,
        seen: &[(ChargeId, i32)],
    ) -> Result<Vec<Result<Self, DbError>>, DbError> {
        db::charges::find_changed(connection, seen).await
    }
}

impl Watched for Refund {
    type Id = RefundId;

    const NAME: &'static str = "refund";

    fn id(&self) -> RefundId {
        self.id
    }

    fn version(&self) -> i32 {
        self.progress.version
    }

    fn is_on_its_way(&self) -> bool {
        match &self.progress.state {
            RefundState::Pending
            | RefundState::Processing
            | RefundState::RequiresReconciliation => true,
            RefundState::RequiresAction
            | RefundState::Succeeded
            | RefundState::Failed(_)
            | RefundState::Canceled => false,
        }
    }

    async fn find_changed(
        connection: &mut PgConnection,
        seen: &[(RefundId, i32)],
    ) -> Result<Vec<Result<Self, DbError>>, DbError> {
        db::refunds::find_changed(connection, seen).await
    }
}
