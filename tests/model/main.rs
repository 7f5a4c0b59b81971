//! The protocol as a model, checked exhaustively within stated bounds: a client, intake, two workers, the reconciler and a
//! provider with a key window and lost, late and replayed answers; a crash or a pause at any step; a restore of the
//! database. What an answer means and where a charge may go is decided by `payonce::domain` itself.
//!
//! Left out: other charges (they share statements and nothing else), a run's deadline and the delays of jobs (both allow
//! more here than there), answers that park a job, objects that stay in `processing`, discrepancies. A client's cancel
//! together with a failover or a restore is left out too: a charge without a stored object is called canceled at once, and
//! a commit that was lost may have stored one and executed it.
//!
//! `PAYONCE_TEST_FULL=1` checks wider bounds; `--nocapture` shows the figures and the counterexamples.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that can't go on fails, and a model is worth its figures alone"
)]

mod books;
mod ends;
mod protocol;
mod provider;
mod state;
mod worker;

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

use protocol::{FAILS, NOT_MOVED, ONE_CHARGE, PROMISES, Payonce, SUCCEEDS};
use state::{Action, Bounds, Guard, Guards, World};

/// Nothing goes wrong.
const CALM: Bounds = Bounds {
    faults: 0,
    late: 0,
    crashes: 0,
    pauses: 0,
    verdicts: 0,
    cancels: 0,
    days: 0,
    restores: 0,
    failovers: 0,
    lost_jobs: 0,
};

/// The wider of two bounds is for `PAYONCE_TEST_FULL=1`.
fn bounds(usual: Bounds, full: Bounds) -> Bounds {
    if wide() { full } else { usual }
}

fn wide() -> bool {
    std::env::var_os("PAYONCE_TEST_FULL").is_some()
}

/// Walks every world within the bounds.
fn holds(bounds: Bounds) {
    let began = Instant::now();
    let checker = Payonce::new(bounds, Guards { without: None })
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "all promises hold in {} worlds ({} steps, depth {}, {:.1} s) within {bounds:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64(),
    );
    for promise in PROMISES {
        if let Some(path) = checker.discovery(promise) {
            tell(path);
            panic!("found a world where this does not hold: {promise}");
        }
    }
    checker.assert_any_discovery(SUCCEEDS);
    if bounds.verdicts > 0 {
        checker.assert_any_discovery(FAILS);
    }
    assert!(checker.is_done());
}

/// Without the guard, the shortest way to a world where the promise is broken; with it, there is none in the same bounds.
fn is_needed(guard: Guard, promise: &'static str, bounds: Bounds) {
    let without = Guards {
        without: Some(guard),
    };
    let path = (1..60)
        .find_map(|depth| {
            Payonce::new(bounds, without)
                .checker()
                .finish_when(HasDiscoveries::AnyOf([promise].into()))
                .target_max_depth(depth)
                .spawn_bfs()
                .join()
                .discovery(promise)
        })
        .unwrap_or_else(|| panic!("no counterexample without {guard:?}"));
    println!("without {guard:?} this is broken: {promise}");
    tell(path);
    holds(bounds);
}

fn tell(path: Path<World, Action>) {
    let path = path.into_vec();
    for (steps, two) in path.windows(2).enumerate() {
        let [(before, Some(action)), (after, _)] = two else {
            continue;
        };
        let step = match action {
            Action::Step(worker, course) => {
                format!(
                    "worker {worker}: {:?}, {course:?}",
                    before.workers[*worker].unwrap().next
                )
            }
            other => format!("{other:?}"),
        };
        let charge = after.books.charge.map(|row| (row.state, row.object));
        println!("  {:2}. {step}", steps + 1);
        println!(
            "      -> books {charge:?}, provider {:?}",
            after.provider.objects
        );
    }
}

#[test]
fn the_promises_hold_whatever_is_lost_late_repeated_crashed_or_paused() {
    let usual = Bounds {
        faults: 1,
        late: 1,
        crashes: 1,
        pauses: 1,
        verdicts: 1,
        ..CALM
    };
    let full = Bounds { faults: 2, ..usual };
    holds(bounds(usual, full));
}

#[test]
fn the_promises_hold_when_the_client_cancels_at_any_moment() {
    let usual = Bounds {
        late: 1,
        pauses: 1,
        verdicts: 1,
        cancels: 1,
        ..CALM
    };
    let full = Bounds { faults: 1, ..usual };
    holds(bounds(usual, full));
}

#[test]
fn the_promises_hold_when_the_provider_forgets_its_keys() {
    let usual = Bounds {
        faults: 1,
        pauses: 1,
        verdicts: 1,
        days: 1,
        ..CALM
    };
    let full = Bounds {
        late: 1,
        crashes: 1,
        ..usual
    };
    holds(bounds(usual, full));
}

#[test]
fn the_promises_hold_when_a_job_vanishes_and_the_reconciler_makes_it_again() {
    let usual = Bounds {
        faults: 1,
        pauses: 1,
        verdicts: 1,
        lost_jobs: 1,
        ..CALM
    };
    holds(bounds(usual, Bounds { late: 1, ..usual }));
}

/// Within the key window, and nobody looks first.
#[test]
fn the_promises_hold_when_a_failover_forgets_what_was_committed() {
    let usual = Bounds {
        pauses: 1,
        verdicts: 1,
        failovers: 1,
        ..CALM
    };
    let full = Bounds {
        faults: 1,
        late: 1,
        ..usual
    };
    holds(bounds(usual, full));
}

/// At any time later, in recovery mode.
#[test]
fn the_promises_hold_after_a_restore() {
    let usual = Bounds {
        crashes: 1,
        pauses: 1,
        days: 1,
        restores: 1,
        ..CALM
    };
    let full = Bounds { faults: 1, ..usual };
    holds(bounds(usual, full));
    holds(Bounds {
        cancels: 1,
        days: 1,
        restores: 1,
        ..CALM
    });
    if wide() {
        holds(Bounds {
            pauses: 1,
            verdicts: 1,
            days: 1,
            restores: 1,
            ..CALM
        });
    }
}

#[test]
fn executing_what_is_not_stored_charges_twice() {
    let bounds = Bounds {
        pauses: 1,
        days: 1,
        ..CALM
    };
    is_needed(Guard::OnlyTheStoredIsExecuted, ONE_CHARGE, bounds);
}

#[test]
fn executing_before_storing_charges_twice() {
    let bounds = Bounds {
        pauses: 1,
        days: 1,
        ..CALM
    };
    is_needed(Guard::StoredBeforeExecute, ONE_CHARGE, bounds);
}

#[test]
fn failing_without_canceling_is_overtaken_by_the_customer() {
    let bounds = Bounds {
        verdicts: 1,
        ..CALM
    };
    is_needed(Guard::CancelBeforeFailed, NOT_MOVED, bounds);
}

#[test]
fn preparing_without_looking_after_a_restore_charges_twice() {
    let bounds = Bounds {
        days: 1,
        restores: 1,
        ..CALM
    };
    is_needed(Guard::LookFirstAfterRestore, ONE_CHARGE, bounds);
}

#[test]
fn canceling_without_looking_after_a_restore_calls_failed_what_was_paid() {
    let bounds = Bounds {
        cancels: 1,
        restores: 1,
        ..CALM
    };
    is_needed(Guard::LookFirstAfterRestore, NOT_MOVED, bounds);
}

#[test]
fn adopting_one_of_two_objects_leaves_the_other_to_a_run_from_before_the_restore() {
    let bounds = Bounds {
        pauses: 1,
        days: 1,
        restores: 1,
        ..CALM
    };
    is_needed(Guard::OthersCanceledBeforeAdopting, ONE_CHARGE, bounds);
}

#[test]
fn failing_under_a_lease_that_ran_out_is_overtaken_by_a_run_from_before_the_restore() {
    let bounds = Bounds {
        verdicts: 1,
        days: 1,
        restores: 1,
        ..CALM
    };
    is_needed(Guard::FailedWithinTheLease, NOT_MOVED, bounds);
}
