//! The part of a walk that goes through the provider's refunds: what was refunded outside payonce is counted, and ours that
//! stand otherwise than we say are handed to their jobs.

use std::sync::Arc;

use super::sweep::{SweepError, Sweeper, Walk};
use crate::db;
use crate::domain::ids::ProviderRefundId;
use crate::domain::outcome::Answer;
use crate::domain::refund::outcome::RefundObject;
use crate::provider::{Provider, RefundPage, RefundsOf};
use crate::refund_completion::count_external;

impl<P: Provider> Sweeper<P> {
    /// The refunds' part. Nobody waits for it as jobs wait for the walk of objects: every refund's job reads its charge's
    /// list for itself. So what the provider does not answer here is left to the next sweep.
    pub(super) async fn refunds(&mut self, walk: &mut Walk) -> Result<(), SweepError> {
        match self.their_refunds(walk).await {
            Err(
                error @ (SweepError::Refused(_) | SweepError::Provider(_) | SweepError::TooLong),
            ) => {
                tracing::warn!(code = "refunds_unswept", account = self.account.name, %error, "a sweep did not see all refunds; the next one goes through them again");
                Ok(())
            }
            walked => walked,
        }
    }

    /// Every refund that the provider made since the walk's beginning, newest first.
    async fn their_refunds(&mut self, walk: &mut Walk) -> Result<(), SweepError> {
        let mut after: Option<ProviderRefundId> = None;
        for _ in 0..self.parts.limits.pages {
            let (provider, from) = (Arc::clone(&self.provider), walk.taken.from);
            let page = || {
                let (provider, after) = (Arc::clone(&provider), after.clone());
                async move {
                    let of = RefundsOf::AccountSince(from);
                    let page = provider.list_refunds(of, after.as_ref()).await;
                    page.map_err(|answer: Box<Answer<RefundObject>>| *answer)
                }
            };
            let RefundPage { refunds, next } = self.persist(walk, page).await?;
            self.compare_refunds(walk, &refunds).await?;
            match next {
                None => return Ok(()),
                next => after = next,
            }
        }
        Err(SweepError::TooLong)
    }

    async fn compare_refunds(
        &mut self,
        walk: &mut Walk,
        refunds: &[RefundObject],
    ) -> Result<(), SweepError> {
        if refunds.is_empty() {
            return Ok(());
        }
        let (provider, rules) = (self.account.provider, self.parts.rules);
        let ids: Vec<&str> = refunds.iter().map(|refund| refund.id.as_str()).collect();
        let statuses: Vec<&str> = refunds
            .iter()
            .map(|refund| refund.status.as_str())
            .collect();
        let stamps: Vec<_> = refunds.iter().map(RefundObject::of_ours).collect();
        let new = self
            .session
            .ask(4, async |connection| {
                let new = count_external(connection, provider, &rules, refunds).await?;
                let differing = db::external_refunds::disagreeing(
                    connection, provider, &ids, &statuses, &stamps,
                )
                .await?;
                if !differing.is_empty() {
                    db::refunds::nudge(connection, &differing).await?;
                }
                Ok(new)
            })
            .await?;
        walk.swept.discrepancies += new as u64;
        Ok(())
    }
}
