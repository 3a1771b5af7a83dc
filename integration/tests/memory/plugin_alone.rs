//! CRIU's plugin without stasis around it: under CRIU alone, that of Debian 13 and a newer one, and
//! under a stock runc. Without a request it takes nothing; with one all memory comes back.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::c_build;
use stasis_integration::host::installed::{PLUGIN, StasisHost};
use stasis_memory_store::{After, CudaPids, DumpRequest, ImageId, REQUEST_VARIABLE, Take, Tier};

const WORKLOAD: &str = "/usr/local/bin/heaps";
const PLACE: &str = "/run/alone";
/// A request for all large areas.
const REQUEST: &str = "/run/memory-request.json";
/// What makes CRIU look for plugins that an image needs.
const DEFAULT_PLUGINS: &str = "/usr/lib/criu";

#[test]
fn under_criu_alone() -> Result<()> {
    let stasis = StasisHost::of(HostKind::trixie_v2()?)?;
    stasis
        .host
        .install(&c_build::build()?.join("bin/heaps"), WORKLOAD)?;
    for (criu, version) in [("/opt/criu-trixie/criu", "4.1"), ("/usr/sbin/criu", "4.")] {
        let stdout = stasis.host.run_for_text(&[criu, "--version"])?;
        assert_contains(&stdout, &[&format!("Version: {version}")]);
        Alone {
            stasis: &stasis,
            criu,
        }
        .all()
        .with_context(|| stdout.clone())?;
    }
    Ok(())
}

/// A program without sockets, which CRIU 4.1 cannot dump on newer kernels.
struct Alone<'l> {
    stasis: &'l StasisHost,
    criu: &'l str,
}

impl Alone<'_> {
    fn all(&self) -> Result<()> {
        let pid = self.start()?;
        let first = self.counts()?;
        let dump = ["dump", "-t", &pid, "--leave-running", "-o", "log"];
        self.stasis.host.run(&["rm", "-f", REQUEST])?;
        self.criu("by-criu", "", &dump)?;
        ensure!(!self.has_moved("by-criu")?, "nobody asked for that");
        let first = self.counts_on_from(first)?;

        request(self.stasis)?;
        self.criu("leave", "", &dump)?;
        ensure!(self.has_moved("leave")?, "its memory is with CRIU");
        let second = self.counts_on_from(first)?;

        for fault in [
            "copy:5:kill",
            "finish:1:kill",
            "fill:3:kill",
            "copy:5:error",
        ] {
            let message = self.criu("killed", fault, &dump);
            ensure!(message.is_err(), "{fault}: it succeeded");
            self.stasis.no_criu()?;
            self.counts_on_from(second).context(fault)?;
        }
        self.criu("end", "", &["dump", "-t", &pid, "-o", "log"])?;
        self.is_gone(&pid).context("after the dump")?;
        let last = self.answer()?;
        let restore = ["restore", "-d", "-o", "log"];
        for fault in ["fill:3:kill", "giveback:1:error"] {
            let message = self.criu("end", fault, &restore);
            ensure!(message.is_err(), "{fault}: it succeeded");
            self.stasis.no_criu()?;
            self.is_gone(&pid).context(fault)?;
            ensure!(self.answer()? == last, "{fault}: it has run");
        }
        self.criu("end", "", &restore)?;
        self.counts_on_from(last)?;
        self.stasis.host.run(&["kill", "-KILL", &pid])?;
        self.is_gone(&pid)
    }

    fn start(&self) -> Result<String> {
        let script = format!(
            "rm -rf {PLACE}; mkdir {PLACE}; cd {PLACE}
             setsid {WORKLOAD} 0 24 random plain heap <&- >&- 2>&- 10<&- 11<&- & echo $!"
        );
        self.stasis.host.run_for_text(&["bash", "-c", &script])
    }

    fn criu(&self, image: &str, fault: &str, arguments: &[&str]) -> Result<()> {
        let image = format!("{PLACE}/{image}");
        self.stasis.host.run(&["mkdir", "-p", &image])?;
        let fault = format!("STASIS_MEMORY_FAULT={fault}");
        let asked = self.stasis.host.path(REQUEST).exists() && arguments[0] == "dump";
        let request = format!("{REQUEST_VARIABLE}={REQUEST}");
        let mut command = vec!["env", &fault];
        command.extend(asked.then_some(request.as_str()));
        command.push(self.criu);
        let plugins = ["-L", "/usr/local/lib/stasis", "-D", &image, "-v4"];
        let output = self
            .stasis
            .command(command[0])
            .args(&command[1..])
            .args(arguments)
            .args(plugins)
            .output()?;
        let log = fs::read(self.stasis.host.path(&image).join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let end = log.len().saturating_sub(1500);
        let end = log.get(end..).unwrap_or_default();
        ensure!(output.status.success(), "{} {end}", output.status);
        Ok(())
    }

    fn has_moved(&self, image: &str) -> Result<bool> {
        let names = names_in(&self.stasis.host.path(PLACE).join(image))?;
        Ok(names.iter().any(|name| name == "stasis-memory.index"))
    }

    fn answer(&self) -> Result<u64> {
        let answer = fs::read_to_string(self.stasis.host.path(PLACE).join("answer"))?;
        let words: Vec<&str> = answer.split_whitespace().collect();
        let ["ok", _, _, _, turn, _] = words[..] else {
            anyhow::bail!("its memory is not as it was: {answer}");
        };
        Ok(turn.parse()?)
    }

    fn counts(&self) -> Result<u64> {
        wait_until_clear(|| Ok(self.answer().is_err().then(|| "no answer".to_owned())))?;
        self.answer()
    }

    /// All memory has been verified more than once since.
    fn counts_on_from(&self, before: u64) -> Result<u64> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let begun = self.back()?.max(before);
        loop {
            let now = self.back()?;
            if now > begun + 2 {
                return Ok(now);
            }
            ensure!(Instant::now() < deadline, "it stays at {now}");
            sleep(Duration::from_millis(10));
        }
    }

    /// Its answer, once it has its memory back. It is not frozen until then, being in CRIU's own
    /// cgroup, and sees what it waits for in its flags.
    fn back(&self) -> Result<u64> {
        let mut answer = self.answer();
        wait_until_clear(|| {
            let waits = matches!(&answer, Err(error) if error.to_string().contains(" um "));
            if waits {
                answer = self.answer();
            }
            Ok(waits.then(|| "it waits for memory".to_owned()))
        })?;
        answer
    }

    /// It has ended, and its pid is free for a restore: a process that CRIU has killed has it until
    /// the host's first process reaps it.
    fn is_gone(&self, pid: &str) -> Result<()> {
        let process = self.stasis.host.path(format!("/proc/{pid}"));
        wait_until_clear(|| Ok(process.exists().then(|| "it is there".to_owned())))
    }
}

/// Has whoever names this request to CRIU move all large areas.
fn request(stasis: &StasisHost) -> Result<()> {
    let request = DumpRequest {
        image_id: ImageId::new(7),
        tier: Tier::Portable,
        directory: None,
        earlier: None,
        threads: 2,
        compression: None,
        after: After::GoOn,
        take: Take::Heaps,
        minimum_mib: 16,
        cuda: CudaPids::default(),
        progress: None,
        report: None,
    };
    stasis
        .host
        .write(REQUEST, &serde_json::to_string(&request)?)
}

/// A stock runc, and CRIU set up by the environment.
#[test]
fn under_a_stock_runc() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    let _containerd = stasis.containerd()?;
    let low_level = "/usr/local/bin/runc-with-plugin";
    let plugins = PLUGIN.rsplit_once('/').context("/")?.0;
    stasis.host.write(
        low_level,
        &format!(
            "#!/bin/sh\nCRIU_LIBS_DIR={plugins} {REQUEST_VARIABLE}={REQUEST} exec runc \"$@\"\n"
        ),
    )?;
    stasis.host.run(&["chmod", "755", low_level])?;
    request(&stasis)?;
    let command = "exec /bin/heaps 10000 24 random plain heap";
    let mut holder = MemoryContainer::start(&stasis, "heaps", command, 10000)?;
    holder.bundle = holder.bundle.through(low_level);
    holder.bundle.checkpoint("image", &["--leave-running"])?;
    holder.goes_on()?;
    holder.bundle.checkpoint("image", &[])?;
    stasis.no_criu()?;
    let next = holder.next();
    let names = names_in(&holder.bundle.image_path("image"))?;
    ensure!(
        names.iter().any(|name| name.ends_with(".pack")),
        "{names:?}"
    );

    // With plugins of its own, or none, CRIU misses ours.
    stasis.host.run(&["mkdir", "-p", DEFAULT_PLUGINS])?;
    holder.bundle = holder.bundle.through("runc");
    holder.bundle.restore_fails("image")?;
    let log = format!("{}/work/restore.log", holder.bundle.directory());
    let log = fs::read_to_string(stasis.host.path(log))?;
    assert_contains(&log, &["stasis_memory"]);
    ensure!(holder.processes()?.is_empty(), "something is left");

    holder.bundle = holder.bundle.through(low_level);
    holder.bundle.restore("image")?;
    holder.is_back_at(next);
    holder.goes_on()?;

    // It is one of ours, too.
    holder.bundle.checkpoint("image", &[])?;
    holder.bundle = holder
        .bundle
        .through(stasis_integration::host::installed::RUNTIME);
    holder.bundle.restore("image")?;
    holder.goes_on()
}
