//! One run from its start to the verdict.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::{join_all, try_join_all};
use payonce::shutdown::Signals;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::books::Books;
use crate::chronicle::{Chronicle, line};
use crate::client::Client;
use crate::evidence::Evidence;
use crate::http::{self, Http};
use crate::options::Options;
use crate::provider::Provider;
use crate::service::Service;
use crate::staff::Staff;
use crate::strike::Strikes;
use crate::told::Told;
use crate::{checks, report};

/// How long everything that is open may take to end once the faults have stopped: the customers' time, the longest
/// lease, a backlog.
const DRAIN_LIMIT: Duration = Duration::from_mins(2);
/// How long clients may take to get the answers they wait for then.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);

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
    let told: Vec<Told> = ask_again(clients)
        .await?
        .into_iter()
        .flat_map(Client::told)
        .collect();
    let evidence = Evidence::gather(&mut connection, &world.provider).await?;
    checks::all(&evidence, &told, options.restore, &world.chronicle);
    world.closing.cancel();
    let mut calls = 0;
    for service in world.services.iter() {
        service.end().await;
        calls += service.provider.exchanges().len();
    }
    let faults = world.provider.faults().await?;
    report::figures(&world.chronicle, &evidence, &faults, calls);
    let breaches = world.chronicle.breaches();
    report::breaches(
        &mut connection,
        &breaches,
        &evidence,
        &world.services,
        &told,
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
struct World {
    chronicle: Arc<Chronicle>,
    books: Arc<Books>,
    provider: Arc<Provider>,
    services: Arc<Vec<Service>>,
    staff: Arc<Staff>,
    http: Http,
    /// Ends the clients' buying.
    closed: CancellationToken,
    /// Ends the staff's work.
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
        timeout(ANSWER_LIMIT, ready)
            .await
            .context("the services do not start")?;
        let staff = Arc::new(Staff {
            books: books.clone(),
            provider: provider.clone(),
            chronicle: chronicle.clone(),
            seed: options.seed,
        });
        let closing = CancellationToken::new();
        for service in services.iter() {
            let deliveries = deliver(provider.clone(), service.addresses(), options.seed);
            tokio::spawn(closing.clone().run_until_cancelled_owned(deliveries));
        }
        let (working, until) = (staff.clone(), closing.clone());
        tokio::spawn(async move { working.run(until).await });
        Ok(Self {
            chronicle,
            books,
            provider,
            services,
            staff,
            http: Http::new(client, token),
            closed: CancellationToken::new(),
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
                let accepted = self.chronicle.figure("accepted");
                self.chronicle
                    .tell(&format!("{accepted} charges were accepted so far"));
            }
        };
        let ((), (), restored) = tokio::join!(strikes.run(options.seed, end), progress, restoring);
        restored?;
        self.provider.calm().await
    }

    /// The faults have stopped: everything that was accepted must end.
    async fn drain(
        &self,
        options: &Options,
        clients: Vec<JoinHandle<Client>>,
    ) -> anyhow::Result<Vec<Client>> {
        self.chronicle.tell("the faults have stopped");
        self.closed.cancel();
        let joined = timeout(ANSWER_LIMIT, try_join_all(clients)).await;
        let mut clients = joined.context("clients wait for an answer for ever")??;
        if options.restore {
            // What was accepted after the copy was made is not in it.
            clients = ask_again(clients).await?;
        }
        let began = Instant::now();
        let mut open = self.staff.open().await?;
        while open > 0 && began.elapsed() < DRAIN_LIMIT {
            sleep(Duration::from_millis(200)).await;
            for service in self.services.iter() {
                // What a fault was still waiting for may have come only now.
                service.calm();
            }
            open = self.staff.open().await?;
        }
        let took = began.elapsed().as_secs_f64();
        self.chronicle
            .tell(&format!("{open} charges are open after {took:.1} s"));
        Ok(clients)
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

async fn ask_again(clients: Vec<Client>) -> anyhow::Result<Vec<Client>> {
    let asking = clients
        .into_iter()
        .map(|client| tokio::spawn(client.ask_again()));
    let answered = timeout(ANSWER_LIMIT * 10, try_join_all(asking)).await;
    Ok(answered.context("asking again takes too long")??)
}
