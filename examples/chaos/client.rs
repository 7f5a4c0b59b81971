//! A client in a closed loop: buys under a new key, sends again until it has an answer, comes back to what is open.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::chronicle::Chronicle;
use crate::http::{Answer, Http};
use crate::options::Options;
use crate::purchase::Purchase;
use crate::service::Service;
use crate::told::Told;

/// How many open charges one client has before it waits for them.
const MOST_OPEN: usize = 40;
/// How long a service that gave no answer is not asked first.
const SHUNNED: Duration = Duration::from_secs(1);
/// Before the same request is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

pub struct Client {
    number: u32,
    http: Http,
    services: Arc<Vec<Service>>,
    chronicle: Arc<Chronicle>,
    random: StdRng,
    /// The books will be restored.
    restored: bool,
    /// Who gave no answer, and until when it is not asked first.
    shunned: Option<(SocketAddr, Instant)>,
    /// Customers that are on their way, and when they come.
    late: VecDeque<(Instant, String)>,
    open: Vec<Told>,
    ended: Vec<Told>,
}

impl Client {
    pub fn new(
        number: u32,
        options: &Options,
        http: Http,
        services: Arc<Vec<Service>>,
        chronicle: Arc<Chronicle>,
    ) -> Self {
        let seed = options
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(number.into());
        Self {
            number,
            http,
            services,
            chronicle,
            random: StdRng::seed_from_u64(seed),
            restored: options.restore,
            shunned: None,
            late: VecDeque::new(),
            open: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Until `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Self {
        while !stop.is_cancelled() {
            if self.open.len() < MOST_OPEN && self.random.random_bool(0.6) {
                self.buy().await;
            } else if !self.open.is_empty() {
                let index = self.random.random_range(0..self.open.len());
                self.come_back(index).await;
            }
            sleep(Duration::from_millis(self.random.random_range(0..15))).await;
        }
        self
    }

    /// Sends every request once more, as its client would that wants to know what came of it.
    pub async fn ask_again(mut self) -> Self {
        self.ended.append(&mut self.open);
        let mut all = std::mem::take(&mut self.ended);
        for told in &mut all {
            self.post(told, None).await;
        }
        self.ended = all;
        self
    }

    /// Everything that it was told.
    pub fn told(self) -> Vec<Told> {
        self.ended
    }

    async fn buy(&mut self) {
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

    async fn come_back(&mut self, index: usize) {
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
            self.ended.push(told);
        } else {
            self.open.push(told);
        }
    }

    /// Until it is answered.
    async fn post(&mut self, told: &mut Told, wait: Option<u64>) {
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
        let answer = self.http.show(at, &id, wait).await;
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

    fn shun(&mut self, at: SocketAddr, is_silent: bool) {
        if is_silent {
            self.shunned = Some((at, Instant::now() + SHUNNED));
        }
    }

    /// One by chance; rather not the one that gave no answer a moment ago.
    fn any_service(&mut self) -> Option<SocketAddr> {
        let index = self.random.random_range(0..self.services.len());
        let address = self.services[index].address();
        match self.shunned {
            Some((shunned, until)) if Some(shunned) == address && Instant::now() < until => {
                self.services[(index + 1) % self.services.len()].address()
            }
            _ => address,
        }
    }
}

/// What a client sends again as it is.
fn is_try_again(answer: &Answer) -> bool {
    answer.status == 503 && answer.body["retry"] == "same_request"
}
