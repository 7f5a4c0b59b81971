//! Asking money back: one refund or several at once, each sent again under its key until it is answered.

use futures_util::future::join_all;
use rand::RngExt;
use tokio::time::sleep;

use super::{Client, RETRY_PAUSE, is_try_again};
use crate::http::Answer;
use crate::refund::{Completed, Refund};
use crate::refund_told::RefundTold;
use crate::service::Service;

/// What came of a request for a refund.
enum Heard {
    Refund,
    /// Nothing was stored, and it is not sent again.
    Refused,
    Nothing,
}

impl Client {
    /// A part, or all that is left, or more at once than the charge has.
    pub(super) async fn ask_back(&mut self, of: &Completed) {
        let shares = match self.random.random_range(0..100) {
            0..30 => vec![None],
            30..65 => vec![Some(self.random.random_range(1..=100))],
            _ => {
                let count = self.random.random_range(2..=4);
                let mut shares: Vec<_> = (0..count)
                    .map(|_| Some(self.random.random_range(35..=100)))
                    .collect();
                if self.random.random_bool(0.3) {
                    shares[0] = None;
                }
                shares
            }
        };
        let several = shares.len() > 1;
        let mut all: Vec<RefundTold> = shares
            .into_iter()
            .map(|share| {
                // After a restore, all that is left is something else than it was.
                let share = share.or(self.restored.then_some(100));
                self.asked_back += 1;
                // As charges' keys are: a charge and a refund under one key are two.
                let key = format!("{}-{}", self.number, self.asked_back);
                let refund = Refund::draw(&mut self.random, of, key, share);
                RefundTold::new(refund, self.restored)
            })
            .collect();
        if several {
            self.ask_all(&mut all).await;
        }
        for mut told in all {
            match self.random.random_range(0..100) {
                0..60 => self.ask(&mut told, None).await,
                60..75 => {
                    let seconds = self.random.random_range(1..3);
                    self.ask(&mut told, Some(seconds)).await;
                }
                _ => self.ask_everywhere(&mut told).await,
            }
            if self.random.random_bool(0.06) {
                self.ask_other(&mut told).await;
            }
            self.keep_refund(told);
        }
    }

    pub(super) async fn come_back_to_refund(&mut self, index: usize) {
        let mut told = self.refunding.swap_remove(index);
        let wait = self.random.random_bool(0.3).then_some(1);
        match self.random.random_range(0..100) {
            0..45 => self.ask(&mut told, wait).await,
            45..95 => self.show_refund(&mut told, wait).await,
            _ => self.ask_other(&mut told).await,
        }
        self.keep_refund(told);
    }

    fn keep_refund(&mut self, told: RefundTold) {
        if told.id.is_none() {
            self.refused.push(told);
        } else if told.is_terminal() {
            self.refunded.push(told);
        } else {
            self.refunding.push(told);
        }
    }

    /// Each once, all at the same time, to any services.
    async fn ask_all(&mut self, all: &mut [RefundTold]) {
        let services: Vec<_> = all.iter().map(|_| self.any_service()).collect();
        let http = &self.http;
        let sent = all.iter().zip(services).map(async |(told, at)| {
            let (charge, key) = (&told.refund.of.charge, &told.refund.key);
            match at {
                Some(at) => vec![
                    http.refund(at, charge, key, &told.refund.body(), None)
                        .await,
                ],
                None => Vec::new(),
            }
        });
        let answers = join_all(sent).await;
        for (told, answers) in all.iter_mut().zip(answers) {
            self.heard_refund(told, answers);
        }
    }

    /// Until it is answered.
    pub(super) async fn ask(&mut self, told: &mut RefundTold, wait: Option<u64>) {
        let body = told.refund.body();
        loop {
            if let Some(at) = self.any_service() {
                let (charge, key) = (&told.refund.of.charge, &told.refund.key);
                let answer = self.http.refund(at, charge, key, &body, wait).await;
                self.shun(at, answer.is_err());
                if !matches!(self.heard_refund(told, vec![answer]), Heard::Nothing) {
                    return;
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// To every service at once, twice to the first: one of them may make the refund.
    async fn ask_everywhere(&mut self, told: &mut RefundTold) {
        let body = told.refund.body();
        let (http, refund) = (&self.http, &told.refund);
        let first = self.services.iter().take(1);
        let at = first
            .chain(self.services.iter())
            .filter_map(Service::address);
        let sent = at.map(|at| http.refund(at, &refund.of.charge, &refund.key, &body, None));
        let answers = join_all(sent).await;
        if matches!(self.heard_refund(told, answers), Heard::Nothing) {
            self.ask(told, None).await;
        }
    }

    /// The key is taken: nothing but a refusal may come. Not where the books may have forgotten what took it.
    async fn ask_other(&mut self, told: &mut RefundTold) {
        if told.id.is_none() || self.restored {
            return;
        }
        let body = told.refund.other_body();
        loop {
            if let Some(at) = self.any_service() {
                let (charge, key) = (&told.refund.of.charge, &told.refund.key);
                let answer = self.http.refund(at, charge, key, &body, None).await;
                self.shun(at, answer.is_err());
                match answer {
                    Ok(answer)
                        if answer.status == 422
                            && answer.body["code"] == "idempotency_key_reused"
                            && answer.body["charge_id"] == **charge =>
                    {
                        self.chronicle.count("another refund under a key refused");
                        return;
                    }
                    Ok(answer) if is_try_again(&answer) => {}
                    Ok(answer) => {
                        self.unexpected_refund(told, "another body", &answer);
                        return;
                    }
                    Err(_) => {}
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn show_refund(&mut self, told: &mut RefundTold, wait: Option<u64>) {
        let (Some(at), Some(id)) = (self.any_service(), told.id.clone()) else {
            return;
        };
        let answer = self.http.get(at, &format!("refunds/{id}"), wait).await;
        self.shun(at, answer.is_err());
        match answer {
            Ok(answer) if answer.status == 200 => {
                told.hear(&self.chronicle, &[(200, &answer.body)]);
            }
            Ok(answer) if is_try_again(&answer) => {}
            // Sent again, it comes back.
            Ok(answer) if self.restored && answer.status == 404 => self.ask(told, wait).await,
            Ok(answer) => self.unexpected_refund(told, "a read", &answer),
            Err(_) => {}
        }
    }

    /// What these answers to one refund, sent at once, say together.
    fn heard_refund(
        &self,
        told: &mut RefundTold,
        answers: Vec<Result<Answer, reqwest::Error>>,
    ) -> Heard {
        let mut refunds = Vec::new();
        let mut heard = Heard::Nothing;
        for answer in answers {
            match answer {
                Ok(answer) if matches!(answer.status, 200 | 202) => {
                    if answer.is_replay != (answer.status == 200) {
                        self.unexpected_refund(told, "a refund", &answer);
                    }
                    let name = if answer.status == 202 {
                        "refunds accepted"
                    } else {
                        "refunds replayed"
                    };
                    self.chronicle.count(name);
                    refunds.push(answer);
                }
                Ok(answer) if is_try_again(&answer) => {
                    let code = answer.body["code"].as_str().unwrap_or_default();
                    self.chronicle.count(format!("answer 503 {code}"));
                }
                // Others have taken what is left; only a refund that was accepted before has its share.
                Ok(answer)
                    if answer.status == 422
                        && answer.body["code"] == "refund_exceeds_charge"
                        && (told.id.is_none() || self.restored) =>
                {
                    self.chronicle.count("refunds beyond the charge refused");
                    heard = Heard::Refused;
                }
                // Its charge is accepted and runs anew.
                Ok(answer) if self.restored && matches!(answer.status, 404 | 409) => {
                    heard = Heard::Refused;
                }
                Ok(answer) => {
                    self.unexpected_refund(told, "a refund", &answer);
                    heard = Heard::Refused;
                }
                Err(_) => self.chronicle.count("no answer"),
            }
        }
        if refunds.is_empty() {
            return heard;
        }
        let answers: Vec<_> = refunds
            .iter()
            .map(|answer| (answer.status, &answer.body))
            .collect();
        told.hear(&self.chronicle, &answers);
        Heard::Refund
    }

    fn unexpected_refund(&self, told: &RefundTold, to: &str, answer: &Answer) {
        let what = format!("{:?}: {to} was answered with {answer:?}", told.refund);
        let promise = "answers are those of the contract";
        self.chronicle.breach(promise, told.id.as_deref(), what);
    }
}
