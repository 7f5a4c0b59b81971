//! Lets faults strike at their time, and ends them.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::books::Books;
use crate::chronicle::Chronicle;
use crate::faults::{Fault, OnPostgres, OnService, Side, Weather};
use crate::service::{Order, Service};

pub struct Strikes {
    pub books: Arc<Books>,
    pub services: Arc<Vec<Service>>,
    pub chronicle: Arc<Chronicle>,
}

impl Strikes {
    /// Until `end`, and until the last fault is over.
    pub async fn run(&self, seed: u64, end: Instant) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut under_way = JoinSet::new();
        loop {
            let (pause, fault) = Fault::draw(&mut random, self.services.len());
            if Instant::now() + pause >= end {
                break;
            }
            sleep(pause).await;
            self.chronicle.tell(&fault.to_string());
            self.chronicle.count(format!("fault {}", fault.kind()));
            match fault {
                Fault::Postgres(fault) => self.postgres(fault, &mut under_way),
                Fault::Service(service, fault) => self.service(service, fault, &mut under_way),
            }
            while under_way.try_join_next().is_some() {}
        }
        sleep(end.saturating_duration_since(Instant::now())).await;
        under_way.join_all().await;
        for service in self.services.iter() {
            service.calm();
        }
    }

    fn postgres(&self, fault: OnPostgres, under_way: &mut JoinSet<()>) {
        let (books, chronicle) = (self.books.clone(), self.chronicle.clone());
        under_way.spawn(async move {
            let began = Instant::now();
            let done = match fault {
                OnPostgres::Restart => books.restart().await,
                OnPostgres::Crash => books.crash().await,
                OnPostgres::KillBackend => books.kill_backend().await,
            };
            let took = began.elapsed().as_secs_f64();
            chronicle.tell(&match done {
                Ok(()) => format!("Postgres: {fault:?} is over after {took:.2} s"),
                Err(error) => format!("Postgres: {fault:?} failed: {error:#}"),
            });
        });
    }

    fn service(&self, number: usize, fault: OnService, under_way: &mut JoinSet<()>) {
        let services = self.services.clone();
        match fault {
            OnService::Kill { down } => services[number].order(Order::Kill(down)),
            OnService::Stop { span, killed } => {
                services[number].order(Order::Stop { span, killed });
            }
            OnService::Terminate { down } => services[number].order(Order::Terminate(down)),
            OnService::Network(side, weather, span) => {
                under_way.spawn(async move {
                    let service = &services[number];
                    let network = match side {
                        Side::Database => &service.database.network,
                        Side::Provider => &service.provider.network,
                    };
                    match weather {
                        Weather::Refused => network.refuse(),
                        Weather::Silent => network.swallow(),
                        Weather::Delayed(delay) => network.delay_replies(delay),
                    }
                    sleep(span).await;
                    match weather {
                        Weather::Refused | Weather::Silent => network.recover(),
                        Weather::Delayed(_) => network.delay_replies(Duration::ZERO),
                    }
                });
            }
            OnService::Statement(text, fault, span) => {
                under_way.spawn(async move {
                    let armed = services[number].database.arm(text, fault);
                    sleep(span).await;
                    armed.release();
                });
            }
            OnService::Request(end, fault, span) => {
                under_way.spawn(async move {
                    services[number].provider.interfere(end, fault);
                    sleep(span).await;
                    services[number].provider.release();
                });
            }
        }
    }

    /// The books are copied now, and lost and put back after `span`, while clients go on.
    pub async fn restore(&self, span: Duration) -> anyhow::Result<()> {
        self.chronicle.tell("the books are copied");
        self.books.back_up().await?;
        sleep(span).await;
        let mut back = Vec::new();
        for service in self.services.iter() {
            let (gone, down) = oneshot::channel();
            let (back_up, up) = oneshot::channel();
            service.order(Order::Down { gone, up });
            down.await?;
            back.push(back_up);
        }
        self.chronicle
            .tell("the books are lost, and the copy takes their place");
        self.books.restore().await?;
        drop(back);
        Ok(())
    }
}
