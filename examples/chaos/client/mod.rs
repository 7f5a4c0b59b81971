//! A client in a closed loop: buys under a new key, asks some of it back, sends again until it has an answer, comes back to
//! what is open.

mod purchases;
mod refunds;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::chronicle::Chronicle;
use crate::http::{Answer, Http};
use crate::options::Options;
use crate::refund::Completed;
use crate::refund_told::RefundTold;
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
    /// Charges to ask money of back.
    regretted: VecDeque<Completed>,
    /// How many refunds it has asked for.
    asked_back: usize,
    refunding: Vec<RefundTold>,
    refunded: Vec<RefundTold>,
    /// Refunds that were refused. A request that nobody answered may have been accepted later all the same.
    refused: Vec<RefundTold>,
}

/// What one client was told of all that it asked for.
pub struct AllTold {
    pub charges: Vec<Told>,
    pub refunds: Vec<RefundTold>,
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
            regretted: VecDeque::new(),
            asked_back: 0,
            refunding: Vec::new(),
            refunded: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Until `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Self {
        while !stop.is_cancelled() {
            if self.random.random_bool(0.7)
                && let Some(completed) = self.regretted.pop_front()
            {
                self.ask_back(&completed).await;
            } else if !self.refunding.is_empty() && self.random.random_bool(0.2) {
                let index = self.random.random_range(0..self.refunding.len());
                self.come_back_to_refund(index).await;
            } else if self.open.len() < MOST_OPEN && self.random.random_bool(0.6) {
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
        self.refunded.append(&mut self.refunding);
        let mut all = std::mem::take(&mut self.refunded);
        for told in &mut all {
            self.ask(told, None).await;
        }
        self.refunded = all;
        self
    }

    /// Everything that it was told.
    pub fn told(mut self) -> AllTold {
        self.refunded.append(&mut self.refused);
        AllTold {
            charges: self.ended,
            refunds: self.refunded,
        }
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
