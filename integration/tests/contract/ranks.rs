//! Processes that wait for each other inside CUDA calls.

use std::thread;
use std::time::{Duration, Instant};

use crate::by_pid::ByPid;
use anyhow::{Context, Result, ensure};
use stasis_gpu::cuda::job::CudaJob;
use stasis_gpu::cuda::process_set::initial_state::InitialState;
use stasis_gpu::cuda::process_set::query_states;
use stasis_gpu::cuda::{CudaError, CudaState, GpuMap};
use stasis_integration::needs;
use stasis_linux::ProcessRef;

use crate::workload::Workload;
use crate::{MOMENT, driver, lock};

/// The timeout of one attempt, which has to fail soon: one locked rank stops the others.
const TRY: Duration = Duration::from_millis(200);
/// The deadline's default in the settings.
const DEADLINE: Duration = Duration::from_secs(10);
/// The number of locks of one job.
const LOCKS: usize = 10;

#[test]
fn one_locked_rank_keeps_the_other_from_being_locked() -> Result<()> {
    let ranks = Workload::ranks(2, &[])?;
    answers_ok(&ranks.ask()?, 2)?;
    let [first, second] = two(&ranks)?;
    lock(second)?;
    assert_eq!(locked_at_rest(first), Err(CudaError::NotReady));
    assert_eq!(driver().state(first), Ok(CudaState::Running));
    driver().unlock(second)?;
    answers_ok(&ranks.ask()?, 2)
}

#[test]
fn all_ranks_together_are_locked_after_a_few_tries() -> Result<()> {
    needs!(TwoGpus);
    let ranks = Workload::ranks(2, &[])?;
    answers_ok(&ranks.ask()?, 2)?;
    let pids = two(&ranks)?;
    for _ in 0..2 {
        lock_all(&pids)?;
        for pid in pids {
            driver().checkpoint(pid)?;
        }
        for pid in pids {
            driver().restore(pid, &GpuMap::identity())?;
        }
        for pid in pids {
            driver().unlock(pid)?;
        }
        answers_ok(&ranks.ask()?, 2)?;
    }
    Ok(())
}

/// A rank that seldom looks at its results always has submitted work that waits for the others:
/// locking all at the same time is then never enough.
#[test]
fn ranks_of_which_two_run_ahead_are_locked_by_letting_the_others_catch_up() -> Result<()> {
    needs!(TwoGpus);
    are_locked_by_steps(&Workload::ranks(2, &[])?, 2)?;
    are_locked_by_steps(&Workload::ranks(3, &["ahead=15"])?, 3)
}

/// Kernels of many ranks that wait for each other do not run on one GPU of the real driver.
#[test]
fn four_and_eight_ranks_are_locked_by_steps() -> Result<()> {
    needs!(StandIn);
    for count in [4, 8] {
        are_locked_by_steps(&Workload::ranks(count, &["ahead=3"])?, count.into())?;
    }
    Ok(())
}

/// Locks the ranks again and again.
fn are_locked_by_steps(ranks: &Workload, count: u64) -> Result<()> {
    answers_ok(&ranks.ask()?, count)?;
    let pids = ranks.children()?;
    for _ in 0..LOCKS {
        let processes = || {
            pids.iter()
                .filter_map(|pid| ProcessRef::open(*pid).unwrap())
        };
        let began = Instant::now();
        let job = CudaJob::lock(driver(), DEADLINE, InitialState::default(), || {
            query_states(driver(), processes().collect())
        });
        let job = job.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        // Shown with --nocapture, for docs/internals/benchmarks.md.
        println!(
            "{count} ranks locked in {:.1} ms",
            1e3 * began.elapsed().as_secs_f64()
        );
        assert_eq!(job.members().len() as u64, count);
        assert!(job.roll_back().is_empty());
        answers_ok(&ranks.ask()?, count)?;
    }
    Ok(())
}

/// Locks a rank again and again until the lock fails, and the rank waits in a kernel that cannot
/// end: a busy machine may be slow to run it that far.
fn locked_at_rest(rank: i32) -> Result<(), CudaError> {
    for _ in 0..20 {
        thread::sleep(MOMENT);
        driver().lock(rank, TRY)?;
        driver().unlock(rank)?;
    }
    Ok(())
}

fn two(ranks: &Workload) -> Result<[i32; 2]> {
    let children = ranks.children()?;
    children.try_into().ok().context("not two ranks")
}

/// Locks both at the same time with short attempts, between which both are unlocked.
fn lock_all(pids: &[i32; 2]) -> Result<()> {
    for turn in 1..=50 {
        let answers = thread::scope(|scope| {
            pids.map(|pid| scope.spawn(move || driver().lock(pid, TRY)))
                .map(|lock| lock.join().unwrap())
        });
        if answers.iter().all(Result::is_ok) {
            return Ok(());
        }
        for (pid, answer) in pids.iter().zip(answers) {
            match answer {
                Ok(()) => driver().unlock(*pid)?,
                Err(error) => assert_eq!(error, CudaError::NotReady),
            }
        }
        thread::sleep(Duration::from_millis(1 + turn * 7 % 30));
    }
    anyhow::bail!("the ranks could not be locked in 50 tries")
}

/// Checks the answer "ok RANKS MEETINGS CHECKSUM".
fn answers_ok(answer: &str, ranks: u64) -> Result<()> {
    ensure!(answer.starts_with(&format!("ok {ranks} ")), "{answer}");
    Ok(())
}
