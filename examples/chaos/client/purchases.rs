//! Buying: under a new key, sent again until it is answered, come back to while it is open.

use std::time::Duration;

use futures_util::future::join_all;
use rand::RngExt;
use tokio::time::{Instant, sleep};

use super::{Client, MOST_OPEN, RETRY_PAUSE, is_try_again};
use crate::http::Answer;
use crate::purchase::Purchase;
use crate::refund::Completed;
use crate::service::Service;
use crate::told::Told;

impl Client {
    pub(super) async fn buy(&mut self) {
        let key = format!("{}-{}", self.number, self.open.len() + self.ended.len() + 1);
        let mut told = Told::new(Purchase::draw(&mut self.random, key), self.restored);
        match self.random.random_range(0..100) {
            0..70 => self.post(&mut told, None).await,
            70..80 => {
                let seconds = self.random.random_range(1..3);
                self.post(&mut told, Some(seconds)).await;
            }
            _ => self.post_at_once(&mut told).await,
        }
        if self.random.random_bool(0.05) {
            self.post_other(&mut told).await;
        }
        if self.random.random_bool(0.06) {
            self.cancel(&mut told).await;
        }
        self.keep(told);
    }

    pub(super) async fn come_back(&mut self, index: usize) {
        let mut told = self.open.swap_remove(index);
        let wait = (self.open.len() + 1 >= MOST_OPEN).then_some(1);
        match self.random.random_range(0..100) {
            0..45 => self.post(&mut told, wait).await,
            45..90 => self.show(&mut told, wait).await,
            90..95 => self.cancel(&mut told).await,
            _ => self.post_other(&mut told).await,
        }
        if let Some(url) = told.action.clone() {
            self.authenticate(url).await;
        }
        self.keep(told);
    }

    /// Some customers do, some fail to, some come when their time is over, some never.
    async fn authenticate(&mut self, url: String) {
        match self.random.random_range(0..10) {
            0..4 => self.http.visit(&url).await,
            4..6 => {
                let failing = url.replace("result=success", "result=fail");
                self.http.visit(&failing).await;
            }
            6 => {
                let after = Duration::from_millis(self.random.random_range(9_000..15_000));
                self.late.push_back((Instant::now() + after, url));
            }
            _ => {}
        }
        while let Some((_, url)) = self.late.pop_front_if(|(at, _)| *at <= Instant::now()) {
            self.http.visit(&url).await;
        }
    }

    fn keep(&mut self, told: Told) {
        if told.terminal.is_some() {
            if let Some(id) = told.id.as_deref().filter(|_| told.has_completed())
                && self.random.random_bool(0.8)
            {
                let completed = Completed::new(id, &told.purchase);
                self.regretted.push_back(completed);
            }
            self.ended.push(told);
        } else {
            self.open.push(told);
        }
    }

    /// Until it is answered.
    pub(super) async fn post(&mut self, told: &mut Told, wait: Option<u64>) {
        let body = told.purchase.body();
        loop {
            if let Some(at) = self.any_service() {
                let answer = self.http.charge(at, &told.purchase.key, &body, wait).await;
                self.shun(at, answer.is_err());
                if self.heard(told, vec![answer]) {
                    return;
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// To every service at once, twice to the first: one of them may make the charge.
    async fn post_at_once(&mut self, told: &mut Told) {
        let body = told.purchase.body();
        let (http, key) = (&self.http, &told.purchase.key);
        let first = self.services.iter().take(1);
        let at = first
            .chain(self.services.iter())
            .filter_map(Service::address);
        let answers = join_all(at.map(|at| http.charge(at, key, &body, None))).await;
        if !self.heard(told, answers) {
            self.post(told, None).await;
        }
    }

    /// The key is taken: nothing but a refusal may come. Not where the books may have forgotten what took it: there no
    /// client may be so careless.
    async fn post_other(&mut self, told: &mut Told) {
        if told.restored {
            return;
        }
        let body = told.purchase.other_body();
        loop {
            if let Some(at) = self.any_service() {
                let answer = self.http.charge(at, &told.purchase.key, &body, None).await;
                self.shun(at, answer.is_err());
                match answer {
                    Ok(answer)
                        if answer.status == 422
                            && answer.body["code"] == "idempotency_key_reused"
                            && answer.body["charge_id"].as_str() == told.id.as_deref() =>
                    {
                        self.chronicle.count("another body refused");
                        return;
                    }
                    Ok(answer) if is_try_again(&answer) => {}
                    Ok(answer) => self.unexpected(told, "another body", &answer),
                    Err(_) => {}
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn show(&mut self, told: &mut Told, wait: Option<u64>) {
        let (Some(at), Some(id)) = (self.any_service(), told.id.clone()) else {
            return;
        };
        let answer = self.http.get(at, &format!("charges/{id}"), wait).await;
        self.shun(at, answer.is_err());
        match answer {
            Ok(answer) if answer.status == 200 => {
                told.hear(&self.chronicle, &[(200, &answer.body)]);
            }
            Ok(answer) if is_try_again(&answer) => {}
            // Sent again, it comes back.
            Ok(answer) if told.restored && answer.status == 404 => self.post(told, wait).await,
            Ok(answer) => self.unexpected(told, "a read", &answer),
            Err(_) => {}
        }
    }

    /// Once; whether it came through shows in the charge.
    async fn cancel(&mut self, told: &mut Told) {
        let (Some(at), Some(id)) = (self.any_service(), told.id.clone()) else {
            return;
        };
        let answer = self.http.cancel(at, &id).await;
        self.shun(at, answer.is_err());
        match answer {
            Ok(answer) if answer.status == 200 || answer.status == 202 => {
                self.chronicle.count("cancels taken");
                // Of a cancel, 202 does not say that a charge was made.
                told.hear(&self.chronicle, &[(200, &answer.body)]);
            }
            Ok(answer) if answer.status == 409 => self.chronicle.count("cancels too late"),
            Ok(answer) if is_try_again(&answer) => {}
            Ok(answer) if told.restored && answer.status == 404 => {}
            Ok(answer) => self.unexpected(told, "a cancel", &answer),
            Err(_) => {}
        }
    }

    /// Whether any of these answers to a charge was one.
    fn heard(&self, told: &mut Told, answers: Vec<Result<Answer, reqwest::Error>>) -> bool {
        let mut charges = Vec::new();
        for answer in answers {
            match answer {
                Ok(answer) if matches!(answer.status, 200 | 202) => {
                    if answer.is_replay != (answer.status == 200) {
                        self.unexpected(told, "a charge", &answer);
                    }
                    let name = if answer.status == 202 {
                        "accepted"
                    } else {
                        "replayed"
                    };
                    self.chronicle.count(name);
                    charges.push(answer);
                }
                Ok(answer) if is_try_again(&answer) => {
                    let code = answer.body["code"].as_str().unwrap_or_default();
                    self.chronicle.count(format!("answer 503 {code}"));
                }
                Ok(answer) => self.unexpected(told, "a charge", &answer),
                Err(_) => self.chronicle.count("no answer"),
            }
        }
        let heard: Vec<_> = charges
            .iter()
            .map(|answer| (answer.status, &answer.body))
            .collect();
        told.hear(&self.chronicle, &heard);
        !heard.is_empty()
    }

    fn unexpected(&self, told: &Told, to: &str, answer: &Answer) {
        let what = format!("{:?}: {to} was answered with {answer:?}", told.purchase);
        let promise = "answers are those of the contract";
        self.chronicle.breach(promise, told.id.as_deref(), what);
    }
}
