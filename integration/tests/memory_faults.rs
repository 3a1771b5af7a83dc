//! Faults in CRIU's plugin wherever it does something, and CRIU killed in the middle: no container loses memory, nothing is left behind, the
//! error says what it was and how things are, and the next operation succeeds.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_integration::deadline::until_none;
use stasis_integration::descendant::descendant;
use stasis_integration::holder::{Holder, Inventory};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::message::says;
use stasis_integration::victim::outside;
use stasis_memory_store::Index;

const KINDS: [&str; 3] = ["error", "panic", "kill"];
const RUNS_ON: &str = "the container runs on as before";
/// Of a container that CRIU refuses when all its memory has been looked at: a deleted file that is larger than it takes along.
const GHOST: &str = "head -c 2000000 /dev/zero >/ghost; exec 9</ghost; rm /ghost;";

#[test]
fn of_processes_on_hybrid_cgroups() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    lab.set("runc", "bulk_memory.containers = \"all\"\n")?;
    let command = "exec /bin/heaps 10000 40 random plain half-zero exec";
    let heaps = Subject::start(&lab, "heaps", command, 10000)?;
    heaps.dumps_fail()?;
    heaps.dumps_succeed()?;
    heaps.restores_fail()?;
    heaps.holder.end()?;
    both_ways_fail(&lab)?;
    guards_fail(&lab)
}

#[test]
fn of_a_gpu_container_on_cgroups_v2() -> Result<()> {
    let lab = Lab::start(Suite::Trixie, Cgroups::V2, "crun")?;
    let _containerd = lab.containerd()?;
    lab.set("crun", "bulk_memory.tier = \"disk\"\n")?;
    let gpu = Subject::start(&lab, "gpu", "exec /bin/memcheck 96", 10000)?;
    gpu.dumps_fail()?;
    gpu.dumps_succeed()?;
    gpu.restores_fail()
}

#[test]
fn criu_is_killed_from_outside() -> Result<()> {
    let seed = match std::env::var("STASIS_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => fastrand::u64(..1 << 32),
    };
    eprintln!("STASIS_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let lab = Lab::start(Suite::Sid, Cgroups::V2, "runc")?;
    let _containerd = lab.containerd()?;
    let gpu = Subject::start(&lab, "gpu", "exec /bin/memcheck 192", 10000)?;
    gpu.dumps_are_killed(&mut random)?;
    gpu.restores_are_killed(&mut random)
}

/// A container on which everything fails sooner or later.
struct Subject<'l> {
    lab: &'l Lab,
    holder: Holder<'l>,
    /// Of its image.
    chunks: usize,
}

impl<'l> Subject<'l> {
    fn start(lab: &'l Lab, id: &str, command: &str, port: u16) -> Result<Self> {
        let holder = Holder::start(lab, id, command, port)?;
        holder.bundle.checkpoint("good", &["--leave-running"])?;
        holder.goes_on()?;
        let index = Index::read(&holder.bundle.image_path("good"))?.context("no index")?;
        let chunks = index.areas().map(|area| area.chunks.len()).sum();
        // More than are emptied in one go.
        ensure!(chunks > 16, "only {chunks} chunks");
        Ok(Self {
            lab,
            holder,
            chunks,
        })
    }

    fn dumps_fail(&self) -> Result<()> {
        let (middle, last) = (self.chunks / 2, self.chunks);
        let copies = [1, middle, last].map(|number| format!("copy:{number}"));
        let others = ["take:1", "empty:1", "empty:2", "finish:1"].map(str::to_owned);
        let mut options = [&[][..], &["--leave-running"]].into_iter().cycle();
        for kind in KINDS {
            for point in copies.iter().chain(&others) {
                let fault = format!("{point}:{kind}");
                let options = options.next().unwrap_or_default();
                self.dump_fails(&fault, options).context(fault)?;
            }
        }
        // Those that pass these points in a dump that is otherwise well.
        self.dump_fails("end:1:kill", &[])?;
        self.dump_fails("end:1:kill", &["--leave-running"])?;
        for number in [1, middle, last] {
            self.dump_fails(&format!("fill:{number}:kill"), &["--leave-running"])?;
        }
        self.dump_fails("finish:1:error,fill:1:error", &[])
    }

    fn dump_fails(&self, fault: &str, options: &[&str]) -> Result<()> {
        let before = self.lab.inventory()?;
        self.holder.order(fault)?;
        let said = self.holder.bundle.checkpoint_fails("failed", options)?;
        self.holder.order("")?;
        says(&said, &[RUNS_ON, "its log is kept"]);
        match fault.rsplit(':').next() {
            Some("error") => says(&said, &["bulk memory: a fault for a test"]),
            Some("panic") => says(&said, &["panicked, which is a fault in stasis"]),
            _ => {}
        }
        self.holder.nothing_left_of_dump("failed")?;
        self.holder.goes_on()?;
        self.is_as(&before)?;
        self.holder
            .bundle
            .checkpoint("good", &["--leave-running"])?;
        self.holder.goes_on()
    }

    fn is_as(&self, before: &Inventory) -> Result<()> {
        until_none(|| {
            let now = self.lab.inventory()?;
            Ok(difference(before, &now))
        })
    }

    /// CRIU does not ask how its end went: the image is complete, and a container that goes on gets its memory all the same.
    fn dumps_succeed(&self) -> Result<()> {
        let mut points = vec!["end:1".to_owned()];
        points.extend([1, self.chunks].map(|number| format!("fill:{number}")));
        for kind in ["error", "panic"] {
            for point in &points {
                self.holder.order(&format!("{point}:{kind}"))?;
                let options = ["--leave-running"];
                self.holder.bundle.checkpoint("good", &options)?;
                let missing = self.holder.missing()?;
                ensure!(missing.is_empty(), "{point}: {missing:?} lack memory");
                let notes = self.lab.operation("checkpoint")?["notes"].to_string();
                says(&notes, &["bulk memory, after the dump"]);
                self.holder.goes_on()?;
                self.lab.no_criu()?;
            }
            self.holder.order(&format!("end:1:{kind}"))?;
            self.holder.bundle.checkpoint("good", &[])?;
            self.lab.no_criu()?;
            self.holder.order("")?;
            self.holder.bundle.restore("good")?;
            self.holder.goes_on()?;
        }
        Ok(())
    }

    fn restores_fail(&self) -> Result<()> {
        self.holder.bundle.checkpoint("good", &[])?;
        let next = self.holder.next();
        let mut points = vec!["giveback:1".to_owned()];
        let numbers = [1, self.chunks / 2, self.chunks];
        points.extend(numbers.map(|number| format!("fill:{number}")));
        let before = self.lab.inventory()?;
        for kind in KINDS {
            for point in &points {
                let fault = format!("{point}:{kind}");
                self.restore_fails(&fault, &before)
                    .with_context(|| fault.clone())?;
                self.holder.is_back_at(next);
                self.holder.bundle.restore("good")?;
                self.holder.goes_on()?;
                self.holder.end()?;
            }
        }
        self.holder.is_back_at(next);
        self.holder.bundle.restore("good")?;
        self.holder.goes_on()
    }

    fn restore_fails(&self, fault: &str, before: &Inventory) -> Result<()> {
        self.holder.order(fault)?;
        let said = self.holder.bundle.restore_fails("good")?;
        self.holder.order("")?;
        says(&said, &["what had been restored was ended"]);
        match fault.rsplit(':').next() {
            Some("error") => says(&said, &["bulk memory: a fault for a test"]),
            Some("panic") => says(&said, &["panicked, which is a fault in stasis"]),
            _ => {}
        }
        self.is_gone(before)
    }

    fn is_gone(&self, before: &Inventory) -> Result<()> {
        let left = self.holder.processes()?;
        ensure!(left.is_empty(), "{left:?} are left");
        self.lab.no_criu()?;
        if self.lab.low_level == "crun" {
            // It leaves its cgroup, with nothing in it, whatever fails in CRIU.
            let cgroup = format!("/sys/fs/cgroup/{}", self.holder.bundle.id);
            self.lab.command("rmdir").arg(cgroup).output()?;
        }
        self.is_as(before)
    }

    /// While memory is taken. Later CRIU is inside of the processes, which do not survive that, with and without a plugin.
    fn dumps_are_killed(&self, random: &mut Rng) -> Result<()> {
        let took = self.copied_in("checkpoint")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut killed = 0;
        while killed < 8 {
            ensure!(
                Instant::now() < deadline,
                "CRIU was hit {killed} times only"
            );
            let before = self.lab.inventory()?;
            let options = [&[][..], &["--leave-running"]][random.usize(..2)];
            let task = self.holder.bundle.pid()?;
            let dump = self.holder.bundle.begin_checkpoint("killed", options)?;
            let at = Duration::from_secs_f64(took * random.f64());
            let hit = self.kill_while_memory_is_taken(task, at)?;
            let output = dump.wait_with_output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            if hit {
                killed += 1;
                ensure!(!output.status.success(), "killed, and it succeeded");
                says(&said, &[RUNS_ON]);
                self.holder.nothing_left_of_dump("killed")?;
                self.holder.goes_on().context(format!("killed at {at:?}"))?;
                self.is_as(&before)?;
            } else {
                ensure!(output.status.success(), "{said}");
                if options.is_empty() {
                    self.holder.bundle.restore("killed")?;
                }
                self.holder.goes_on()?;
            }
        }
        Ok(())
    }

    /// Whether it was still the time for it.
    fn kill_while_memory_is_taken(&self, task: i64, at: Duration) -> Result<bool> {
        self.wait_for("memory-progress")?;
        let status = fs::read_to_string(self.lab.host.path(format!("/proc/{task}/status")))?;
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        let tracer = tracer.context("no TracerPid")?.trim().parse()?;
        // It may have let go already.
        let Ok(criu) = outside(self.lab, tracer) else {
            return Ok(false);
        };
        sleep(at);
        // What has ended meanwhile is not stopped, and need not be.
        let _ = kill(criu, Signal::SIGSTOP);
        until_none(|| Ok(runs(criu).then(|| "it is not stopped".to_owned())))?;
        let over = self.record().join("memory-report.json").exists();
        let signal = if over {
            Signal::SIGCONT
        } else {
            Signal::SIGKILL
        };
        Ok(kill(criu, signal).is_ok() && !over)
    }

    /// While memory is given back. Before that CRIU leaves children that runc waits for in vain, with and without a plugin.
    fn restores_are_killed(&self, random: &mut Rng) -> Result<()> {
        self.holder.bundle.checkpoint("good", &[])?;
        let next = self.holder.next();
        let before = self.lab.inventory()?;
        self.holder.bundle.restore("good")?;
        self.holder.goes_on()?;
        self.holder.end()?;
        let took = self.copied_in("restore")?;
        let mut killed = 0;
        for _ in 0..10 {
            let mut restore = self.holder.bundle.begin_restore("good")?;
            self.wait_for("memory-progress")?;
            let criu = descendant(&restore, "criu")?;
            let at = Duration::from_secs_f64(took * random.f64());
            sleep(at);
            if let Some(criu) = criu {
                // It may have ended.
                let _ = kill(criu, Signal::SIGKILL);
            }
            if restore.wait()?.success() {
                self.holder.is_back_at(next);
                self.holder.goes_on()?;
                self.holder.end()?;
                continue;
            }
            killed += 1;
            let state = self.holder.bundle.status()?;
            ensure!(state.is_empty(), "killed after {at:?}: {state}");
            self.is_gone(&before)
                .with_context(|| format!("killed after {at:?}"))?;
        }
        ensure!(killed > 0, "CRIU was never hit");
        self.holder.is_back_at(next);
        self.holder.bundle.restore("good")?;
        self.holder.goes_on()
    }

    /// Waits for a file of the operation that is under way.
    fn wait_for(&self, file: &str) -> Result<()> {
        until_none(|| Ok((!self.record().join(file).exists()).then(|| format!("no {file}"))))
    }

    fn record(&self) -> PathBuf {
        let records = "/run/stasis/containers/%run%bundles";
        self.lab.host.path(records).join(&self.holder.bundle.id)
    }

    fn copied_in(&self, operation: &str) -> Result<f64> {
        let line = self.lab.operation(operation)?;
        let seconds = line["bulk_memory"]["copy_seconds"].as_f64();
        seconds.with_context(|| format!("no copy_seconds: {line}"))
    }
}

/// What is more or less than before.
fn difference(before: &Inventory, now: &Inventory) -> Option<String> {
    let lines = |of: &Inventory| -> BTreeSet<String> {
        let all = of.iter().flat_map(|(kind, lines)| {
            // The same line may be there more than once.
            let numbered = lines.iter().enumerate().map(move |(number, line)| {
                let before = lines[..number].iter().filter(|each| *each == line).count();
                format!("{kind}: {line} {before}")
            });
            numbered.collect::<Vec<_>>()
        });
        all.collect()
    };
    let (before, now) = (lines(before), lines(now));
    let changed: Vec<_> = before.symmetric_difference(&now).cloned().collect();
    (!changed.is_empty()).then(|| changed.join("\n"))
}

/// Neither stopped nor ended.
fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('T' | 'Z' | 'X'))
}

/// CRIU fails by itself, and the way back, too.
fn both_ways_fail(lab: &Lab) -> Result<()> {
    let command = format!("{GHOST} exec /bin/heaps 10001 24 random plain heap");
    let holder = Holder::start(lab, "ghost", &command, 10001)?;
    let before = lab.inventory()?;
    let faults = [
        "",
        "fill:1:error",
        "fill:3:panic",
        "fill:5:kill",
        "end:1:error",
        "end:1:panic",
        "end:1:kill",
    ];
    for fault in faults {
        holder.order(fault)?;
        let said = holder.bundle.checkpoint_fails("ghost", &[])?;
        says(&said, &[RUNS_ON]);
        if !fault.ends_with("kill") {
            says(&said, &["Can't dump ghost file"]);
        }
        if fault.ends_with("error") {
            says(&said, &["bulk memory: a fault for a test"]);
        }
        holder.nothing_left_of_dump("ghost").context(fault)?;
        holder.goes_on().context(fault)?;
    }
    assert_eq!(difference(&before, &lab.inventory()?), None);
    holder.end()
}

/// Nobody gives memory back: that is said, nothing finds zeros in its place, and there is an end to it.
fn guards_fail(lab: &Lab) -> Result<()> {
    let command = "exec /bin/heaps 10002 24 random plain heap";
    let holder = Holder::start(lab, "lost", command, 10002)?;
    for kind in ["error", "panic"] {
        holder.bundle.checkpoint("good", &["--leave-running"])?;
        holder.goes_on()?;
        let next = holder.next();
        holder.order(&format!("finish:1:kill,guard:1:{kind}"))?;
        let said = holder.bundle.checkpoint_fails("lost", &[])?;
        says(&said, &["memory could not be given back: ", "kill it"]);
        holder.order("")?;
        ensure!(!holder.missing()?.is_empty(), "{kind}: it lacks nothing");
        let answer = lab.ask(10002)?;
        ensure!(answer.is_none(), "{kind}: {answer:?}");
        let said = holder.bundle.checkpoint_fails("again", &[])?;
        says(&said, &["is still missing", "end the container"]);
        holder.end()?;
        lab.no_criu()?;

        holder.is_back_at(next - 1);
        holder.bundle.restore("good")?;
        holder.goes_on()?;
        holder.order(&format!("end:1:error,guard:1:{kind}"))?;
        let options = ["--leave-running"];
        let said = holder.bundle.checkpoint_fails("good", &options)?;
        says(&said, &["could not be given back: ", "restore the image"]);
        holder.order("")?;
        holder.end()?;
        lab.no_criu()?;
        holder.bundle.restore("good")?;
        holder.goes_on()?;
    }
    holder.end()
}
