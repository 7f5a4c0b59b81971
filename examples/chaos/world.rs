//! One run from its start to the verdict.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use payonce::shutdown::Signals;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::bank::Bank;
use crate::books::Books;
use crate::chronicle::{Chronicle, line};
use crate::client::Client;
use crate::events::{self, Endpoints};
use crate::evidence::Evidence;
use crate::http::{self, Http};
use crate::options::Options;
use crate::provider::Provider;
use crate::service::Service;
use crate::staff::Staff;
use crate::strike::Strikes;
use crate::{checks, drain, refund_checks, report};

/// How long a service may take to start.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How often it is told how far a run is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Whether every promise was kept.
pub async fn run(options: &Options) -> anyhow::Result<bool> {
    let directory = options.directory();
    std::fs::create_dir_all(&directory)?;
    line(&format!("{options:?} in {}", directory.display()));
    let interrupted = CancellationToken::new();
    tokio::spawn(Signals::register()?.watch(interrupted.clone()));
    let kept = interrupted
        .run_until_cancelled(Box::pin(whole(options, &directory)))
        .await
        .context("interrupted")??;
    if kept {
        std::fs::remove_dir_all(&directory)?;
    } else {
        line(&format!("books and logs are in {}", directory.display()));
    }
    Ok(kept)
}

async fn whole(options: &Options, directory: &Path) -> anyhow::Result<bool> {
    let began = Instant::now();
    let world = World::start(options, directory).await?;
    let clients = world.open_shop(options);
    world.strike(options).await?;
    let clients = world.drain(options, clients).await?;
    let mut connection = world.books.connect().await?;
    checks::sessions(&mut connection, &world.chronicle).await?;
    world.chronicle.tell("every request is sent again");
    let (mut charges, mut refunds) = (Vec::new(), Vec::new());
    for told in drain::ask_again(clients)
        .await?
        .into_iter()
        .map(Client::told)
    {
        charges.extend(told.charges);
        refunds.extend(told.refunds);
    }
    let evidence = Evidence::gather(&mut connection, &world.provider).await?;
    let chronicle = &world.chronicle;
    checks::all(&evidence, &charges, options.restore, chronicle);
    let took_back = world.bank.took_back.lock().unwrap().clone();
    refund_checks::all(&evidence, &refunds, &took_back, options.restore, chronicle);
    let mut kinds = BTreeMap::new();
    if !options.restore {
        // What was told before the restore is not in the books that came back.
        let events = events::read(&world.http, &world.services).await?;
        events::check(&evidence, &events, &world.endpoints.good.got(), chronicle);
        kinds = events::kinds(&events);
    }
    world.closing.cancel();
    let mut calls = 0;
    for service in world.services.iter() {
        service.end().await;
        calls += service.provider.exchanges().len();
    }
    let faults = world.provider.faults().await?;
    report::figures(&world.chronicle, &evidence, &faults, &kinds, calls);
    let breaches = world.chronicle.breaches();
    report::breaches(
        &mut connection,
        &breaches,
        &evidence,
        &world.services,
        &charges,
    )
    .await?;
    drop(connection);
    world.books.stop().await?;
    Ok(report::verdict(
        &world.chronicle,
        options.seed,
        began.elapsed(),
    ))
}

/// Everything but the clients and the faults.
pub struct World {
    pub chronicle: Arc<Chronicle>,
    books: Arc<Books>,
    provider: Arc<Provider>,
    pub services: Arc<Vec<Service>>,
    pub staff: Arc<Staff>,
    bank: Arc<Bank>,
    http: Http,
    pub endpoints: Endpoints,
    /// Ends the clients' buying, and the bank's whims.
    pub closed: CancellationToken,
    /// Ends the staff's work and the bank's.
    closing: CancellationToken,
}

impl World {
    async fn start(options: &Options, directory: &Path) -> anyhow::Result<Self> {
        let chronicle = Arc::new(Chronicle::new());
        let client = http::client()?;
        let (books, token) = Books::start(directory).await?;
        let (books, provider) = (
            Arc::new(books),
            Arc::new(Provider::start(client.clone()).await?),
        );
        let services = (0..options.services as usize).map(|number| {
            Service::start(
                number,
                &books.url,
                provider.address,
                directory,
                chronicle.clone(),
            )
        });
        let services = Arc::new(join_all(services).await);
        let ready = join_all(services.iter().map(Service::ready));
        timeout(START_LIMIT, ready)
            .await
            .context("the services do not start")?;
        let staff = Arc::new(Staff {
            books: books.clone(),
            provider: provider.clone(),
            chronicle: chronicle.clone(),
        });
        let bank = Arc::new(Bank {
            books: books.clone(),
            provider: provider.clone(),
            chronicle: chronicle.clone(),
            seed: options.seed,
            took_back: Mutex::default(),
        });
        let http = Http::new(client, token);
        let endpoints = Endpoints::make(options.seed, &http, &services, &chronicle).await?;
        let (closed, closing) = (CancellationToken::new(), CancellationToken::new());
        for service in services.iter() {
            let deliveries = deliver(provider.clone(), service.addresses(), options.seed);
            tokio::spawn(closing.clone().run_until_cancelled_owned(deliveries));
        }
        let (working, until) = (staff.clone(), closing.clone());
        tokio::spawn(async move { working.run(until).await });
        // A restore would put it back where it was, and only the recovery can know what was begun elsewhere.
        if !options.restore {
            let (moving, until) = (staff.clone(), closed.clone());
            tokio::spawn(async move { moving.move_about(until).await });
        }
        let (working, until) = (bank.clone(), closing.clone());
        let at_ease = closed.clone();
        tokio::spawn(async move { working.run(at_ease, until).await });
        Ok(Self {
            chronicle,
            books,
            provider,
            services,
            staff,
            bank,
            http,
            endpoints,
            closed,
            closing,
        })
    }

    fn open_shop(&self, options: &Options) -> Vec<JoinHandle<Client>> {
        let client = |number: u32| {
            let (services, chronicle) = (self.services.clone(), self.chronicle.clone());
            let client = Client::new(number, options, self.http.clone(), services, chronicle);
            tokio::spawn(client.run(self.closed.clone()))
        };
        (0..options.clients).map(client).collect()
    }

    /// For as long as the run is asked to be.
    async fn strike(&self, options: &Options) -> anyhow::Result<()> {
        // A key that is forgotten can't make up for books that are.
        self.provider.rage(options.seed, !options.restore).await?;
        let strikes = Strikes {
            books: self.books.clone(),
            services: self.services.clone(),
            chronicle: self.chronicle.clone(),
        };
        let restoring = async {
            if options.restore {
                sleep(options.length() / 3).await;
                strikes.restore(options.length() / 3).await?;
            }
            anyhow::Ok(())
        };
        let end = Instant::now() + options.length();
        let progress = async {
            while Instant::now() + PROGRESS < end {
                sleep(PROGRESS).await;
                let charges = self.chronicle.figure("accepted");
                let refunds = self.chronicle.figure("refunds accepted");
                self.chronicle.tell(&format!(
                    "{charges} charges and {refunds} refunds were accepted so far"
                ));
            }
        };
        let ((), (), restored) = tokio::join!(strikes.run(options.seed, end), progress, restoring);
        restored?;
        self.provider.calm().await
    }
}

/// The provider's deliveries go to whoever started last.
async fn deliver(
    provider: Arc<Provider>,
    mut address: watch::Receiver<Option<SocketAddr>>,
    mut seed: u64,
) -> anyhow::Result<()> {
    loop {
        let api = *address.borrow_and_update();
        if let Some(api) = api {
            provider.deliver_to(api, seed).await?;
            seed += 1;
        }
        address.changed().await?;
    }
}
