//! GPU contents on the stand-in for the driver: by it alone, with code of ours, and, so that the
//! ratio is worth something, how its copying compares with that of a plain C program.
//!
//! Our times include all of our work: the file and its pages, and putting our code in and taking it
//! out. The time of the stand-in's call includes the pages of its own mapping, but not the pages of
//! the device's memory, which stay.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stasis_bench::gpu_contents::{Call, Subject, Times};
use stasis_gpu::cuda::{CudaDriver, Driver, GpuMap};
use stasis_injection::worker_count;
use stasis_integration::host::c_build;
use stasis_linux::ProcessRef;

use crate::figure::{Aim, Figure, Sample};
use crate::memory::warm;
use crate::options;

const ROUNDS: usize = 5;
/// The size of the workload's contents on its GPU, GiB.
const SIZE: u64 = 2;
/// Bytes for a second word, and for what the stand-in adds of its own.
const MORE: u64 = 4 << 20;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The times of all rounds, seconds.
#[derive(Debug, Clone)]
struct Measured {
    driver: Vec<Times>,
    ours: Vec<Times>,
    /// CPU time from here on.
    standin: Vec<Times>,
    plain: Vec<Times>,
    straight: Vec<Times>,
}

/// Measures the driver's checkpoint over that with code of ours.
pub(crate) fn out(screen: &mut dyn Write) -> Result<Figure> {
    Ok(ratio(&measure(screen)?, OUT))
}

/// Measures a restore, likewise.
pub(crate) fn back(screen: &mut dyn Write) -> Result<Figure> {
    Ok(ratio(&measure(screen)?, BACK))
}

fn ratio(measured: &Measured, of: Direction) -> Figure {
    let [driver, ours] = [&measured.driver, &measured.ours].map(|times| sample(times, of));
    let parts = format!("driver {driver} s, ours {ours} s, ratio ");
    let value = driver.median() / ours.median();
    Figure::of(parts, value, Aim::AtLeast(1.6))
}

/// Compares the CPU time of a plain C program that copies the same way with the stand-in's, out and
/// in together; both are printed apart as well. Each is one thread, so its time on a CPU counts,
/// which a busy machine changes least. A device's own transfer would cost none: the time of a
/// program that copies directly, without the buffer, is printed as well.
pub(crate) fn standin_copy(screen: &mut dyn Write) -> Result<Figure> {
    let measured = measure(screen)?;
    let each = [&measured.plain, &measured.straight, &measured.standin];
    for (name, of) in [("out", OUT), ("in", BACK)] {
        let [plain, straight, standin] = each.map(|times| sample(times, of));
        writeln!(
            screen,
            "{name}, on a CPU: plain C {plain} s, straight {straight} s, stand-in {standin} s"
        )?;
    }
    let [plain, straight, standin] = each.map(|times| sample(times, |of| of.out + of.back));
    let parts = format!("plain C {plain} s, straight {straight} s, stand-in {standin} s, ratio ");
    let value = plain.median() / standin.median();
    Ok(Figure::of(parts, value, Aim::AtLeast(0.8)))
}

type Direction = fn(&Times) -> f64;
const OUT: Direction = |times| times.out;
const BACK: Direction = |times| times.back;

fn sample(times: &[Times], of: Direction) -> Sample {
    Sample::new(times.iter().map(of).collect())
}

/// Measures once: all cases take their figures from the same rounds.
fn measure(screen: &mut dyn Write) -> Result<Measured> {
    static KNOWN: OnceLock<Result<Measured, String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| in_turns(screen).map_err(|error| format!("{error:#}")));
    known.clone().map_err(anyhow::Error::msg)
}

fn in_turns(screen: &mut dyn Write) -> Result<Measured> {
    let mib = SIZE * options::get().mib_per_gib;
    let library = c_build::build()?.join("lib64/libcuda.so.1");
    let driver = CudaDriver::open(Some(&library))?;
    let workload = Workload::start(mib)?;
    let process = ProcessRef::open(workload.child.id().try_into()?)?.context("it has ended")?;
    workload.is_intact(0)?;
    // The thread of the process that does the driver's work.
    let thread = driver.restore_thread(&process)?;
    let on_cpu = Cell::new(Times {
        out: 0.0,
        back: 0.0,
    });
    let subject = Subject {
        bytes: (mib << 20) + MORE,
        workers: worker_count(&process),
        driver: &|call| {
            let before = seconds_on_cpu(thread)?;
            drive(&driver, &process, call)?;
            let last = seconds_on_cpu(thread)? - before;
            let times = on_cpu.get();
            on_cpu.set(match call {
                Call::Checkpoint => Times { out: last, ..times },
                Call::Restore => Times {
                    back: last,
                    ..times
                },
                Call::Lock | Call::Unlock => times,
            });
            Ok(())
        },
        before: &warm,
        process: process.clone(),
    };
    let mut measured = Measured {
        driver: Vec::new(),
        ours: Vec::new(),
        standin: Vec::new(),
        plain: Vec::new(),
        straight: Vec::new(),
    };
    for round in 0..ROUNDS {
        writeln!(screen, "GPU contents of {mib} MiB, round {}", round + 1)?;
        measured.driver.push(subject.by_driver(screen)?);
        let Times { out, back } = on_cpu.get();
        writeln!(
            screen,
            "  stand-in out and in, on a CPU: {out:.3} s, {back:.3} s"
        )?;
        measured.standin.push(on_cpu.get());
        workload.is_intact(2 * round + 1)?;
        measured.ours.push(subject.by_us(screen)?);
        workload.is_intact(2 * round + 2)?;
        measured.plain.push(plain(screen, mib, &[])?);
        measured.straight.push(plain(screen, mib, &["straight"])?);
    }
    Ok(measured)
}

/// Returns the seconds that a thread has spent on a CPU so far: proc_pid_schedstat(5).
fn seconds_on_cpu(thread: i32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat"))?;
    let nanoseconds = text.split(' ').next().context("no number")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

fn drive(driver: &CudaDriver, process: &ProcessRef, call: Call) -> Result<()> {
    Ok(match call {
        Call::Lock => driver.lock(process, PATIENCE),
        Call::Checkpoint => driver.checkpoint(process),
        Call::Restore => driver.restore(process, &GpuMap::identity()),
        Call::Unlock => driver.unlock(process),
    }?)
}

/// Moves as much memory by a plain C program; returns seconds on a CPU.
fn plain(screen: &mut dyn Write, mib: u64, options: &[&str]) -> Result<Times> {
    let program = c_build::build()?.join("bin/copy");
    let mut command = Command::new(program);
    command.arg(mib.to_string()).args(options);
    warm()?;
    let mut copy = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(copy.stdout.take().context("no output")?).lines();
    let mut seconds = || -> Result<f64> { Ok(lines.next().context("it has ended")??.parse()?) };
    let out = seconds()?;
    warm()?;
    copy.stdin.take().context("no input")?.write_all(b"\n")?;
    let back = seconds()?;
    ensure!(copy.wait()?.success(), "copy fails");
    let options = options.join(" ");
    writeln!(
        screen,
        "  plain C {options} out and in, on a CPU: {out:.3} s, {back:.3} s"
    )?;
    Ok(Times { out, back })
}

/// A process with GPU contents, killed when dropped.
struct Workload {
    child: Child,
    port: u16,
}

impl Workload {
    fn start(mib: u64) -> Result<Self> {
        // Below the kernel's ephemeral ports, and different for each process that measures.
        let port = u16::try_from(12_100 + std::process::id() % 1000)?;
        let mut command = c_build::on_standin("memcheck", 1)?;
        command.args([mib.to_string(), port.to_string()]);
        // A device has its memory; the kernel would clear it in the time of a restore.
        command.env("STASIS_STANDIN_OWN_MEMORY", "1");
        let child = command.stdin(Stdio::null()).spawn()?;
        Ok(Self { child, port })
    }

    /// Has the workload verify every word; `turn` is the number of earlier verifications.
    fn is_intact(&self, turn: usize) -> Result<()> {
        let answer = self.ask()?;
        ensure!(answer == format!("ok {turn}"), "it says {answer:?}");
        Ok(())
    }

    fn ask(&self) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, self.port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut answer = [0; 256];
        while Instant::now() < deadline {
            // Refused until the workload has bound the port: so no packet is counted twice.
            if let Ok(size) = socket.send(b"x").and_then(|_| socket.recv(&mut answer)) {
                return Ok(String::from_utf8_lossy(&answer[..size]).trim().to_owned());
            }
            sleep(Duration::from_millis(20));
        }
        bail!("the workload does not answer")
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
