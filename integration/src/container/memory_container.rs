//! Containers that hold memory and verify it, and the remains of their checkpoints.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::check::wait::wait_until_clear;
use crate::container::bundle::Bundle;
use crate::container::contents::{DISK, MEMORY};
use crate::host::installed::{RUNTIME, StasisHost};

/// A runtime with a fault in CRIU's plugin, which a file orders.
const FAULTY_RUNTIME: &str = "/usr/local/bin/faulty-runtime";
const FAULT: &str = "/run/memory-fault";

/// A container that verifies all its memory when it is asked, and counts how often it was.
#[derive(Debug)]
pub struct MemoryContainer<'l> {
    stasis: &'l StasisHost,
    /// The container.
    pub bundle: Bundle<'l>,
    port: u16,
    /// The count of its next answer.
    next: Cell<u64>,
}

/// The processes, mounts, cgroups and files of a host, by kind.
pub type Inventory = BTreeMap<&'static str, Vec<String>>;

impl<'l> MemoryContainer<'l> {
    /// Starts a container: a command of the workload `memcheck` or `plain` that answers at `port`.
    /// It goes through a runtime whose faults [`MemoryContainer::inject`] orders.
    pub fn start(stasis: &'l StasisHost, id: &str, command: &str, port: u16) -> Result<Self> {
        stasis.write(FAULT, "")?;
        stasis.script(
            FAULTY_RUNTIME,
            &format!("#!/bin/sh\nSTASIS_MEMORY_FAULT=$(cat {FAULT}) exec {RUNTIME} \"$@\"\n"),
        )?;
        let bundle = Bundle::make(stasis, id, &["/bin/sh", "-c", command])?;
        Self::of(stasis, bundle.through(FAULTY_RUNTIME), port)
    }

    /// Starts the container of a bundle.
    pub fn of(stasis: &'l StasisHost, bundle: Bundle<'l>, port: u16) -> Result<Self> {
        bundle.suit_crun()?;
        bundle.run()?;
        let first = count(&stasis.ask_until_up(port)?)?;
        Ok(Self {
            stasis,
            bundle,
            port,
            next: Cell::new(first + 1),
        })
    }

    /// Orders a fault of CRIU's plugin in all later operations: POINT:N:KIND
    /// (criu-plugin/src/fault_injection.rs); none if empty.
    pub fn inject(&self, fault: &str) -> Result<()> {
        self.stasis.write(FAULT, fault)
    }

    /// Checks that it has all its memory, and has not been asked since.
    pub fn goes_on(&self) -> Result<()> {
        let answer = self.stasis.ask(self.port)?;
        let now = count(&answer.context("it does not answer")?)?;
        let expected = self.next.replace(now + 1);
        ensure!(now == expected, "it counts {now} and not {expected}");
        Ok(())
    }

    /// Returns its next count; for [`MemoryContainer::is_back_at`].
    pub fn next(&self) -> u64 {
        self.next.get()
    }

    /// Notes that it has been restored to where it was then.
    pub fn is_back_at(&self, next: u64) {
        self.next.set(next);
    }

    /// Ends and removes it.
    pub fn end(&self) -> Result<()> {
        self.bundle.delete()
    }

    /// Returns the processes in its cgroups, as the host numbers them.
    pub fn processes(&self) -> Result<Vec<String>> {
        // Some of these files do not exist in a host.
        let script = format!(
            "cat /sys/fs/cgroup/{{*/,}}{}/cgroup.procs 2>/dev/null | sort -u",
            self.bundle.id
        );
        let output = self.stasis.command("bash").args(["-c", &script]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns the processes that its init process has made to copy with it, and its children.
    pub fn workers(&self) -> Result<Vec<String>> {
        let children = format!("cat /proc/{}/task/*/children", self.bundle.pid()?);
        let children = self.stasis.run_for_text(&["sh", "-c", &children])?;
        Ok(children.split_whitespace().map(str::to_owned).collect())
    }

    /// Checks that nothing of a failed checkpoint is left.
    pub fn nothing_left_of_dump(&self, image: &str) -> Result<()> {
        self.stasis.no_criu()?;
        let left = names_in(&self.bundle.image_path(image))?;
        let is_ours = |name: &String| name.contains("stasis");
        if let Some(left) = left.iter().find(|name| is_ours(name)) {
            bail!("{left} is left in the image");
        }
        Ok(())
    }
}

impl StasisHost {
    /// Waits until no CRIU lives in the host.
    ///
    /// # Errors
    /// A CRIU does, after 30 s.
    pub fn no_criu(&self) -> Result<()> {
        wait_until_clear(|| {
            for entry in fs::read_dir(self.path("/proc"))? {
                let path = entry?.path();
                let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
                if stat.contains("(criu)") {
                    return Ok(Some(format!("{}: {stat}", path.display())));
                }
            }
            Ok(None)
        })
    }

    /// Returns the names of all processes, once there are none that operations leave to end on
    /// their own time. Only for hosts without a container that waits for one of these.
    ///
    /// # Errors
    /// There still is one after 30 s, or the host cannot be looked at.
    pub fn processes_at_rest(&self) -> Result<Vec<String>> {
        wait_until_clear(|| {
            let lines = self.lines(&["ps", "-e", "-o", "args="])?;
            let ending: Vec<_> = lines.iter().filter(|line| is_ending(line)).collect();
            Ok((!ending.is_empty()).then(|| format!("{ending:?}")))
        })?;
        self.lines(&["ps", "-e", "-o", "comm="])
    }

    /// Returns the output of a command, its lines sorted.
    fn lines(&self, command: &[&str]) -> Result<Vec<String>> {
        let text = self.run_for_text(command)?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        Ok(lines)
    }

    /// Lists processes, mounts, cgroups, and the memory that is stored apart from images, of a host
    /// as [`StasisHost::processes_at_rest`] wants it.
    pub fn inventory(&self) -> Result<Inventory> {
        let processes = self.processes_at_rest()?;
        let mounts = ["cut", "-d", " ", "-f", "5", "/proc/self/mountinfo"];
        let mut mounts = self.lines(&mounts)?;
        mounts.retain(|mount| mount != "/run/stasis/staging");
        let cgroups = self.lines(&["find", "/sys/fs/cgroup", "-type", "d"])?;
        let mut inventory = Inventory::from([
            ("processes", processes),
            ("mounts", mounts),
            ("cgroups", cgroups),
        ]);
        let kept = [DISK, "/run/stasis", MEMORY].map(|path| self.path(path));
        let mut stored = Vec::new();
        for path in &kept {
            files_below(path, &mut stored)?;
        }
        // These stay from the first operation on that needs them; files in them do not.
        let stay = [
            "ledger",
            "criu-plugins",
            "criu-plugins-memory",
            "criu-restore",
            "criu-restore.conf",
            "staging",
        ];
        let stay = stay.map(|name| kept[1].join(name).display().to_string());
        stored.retain(|path| !stay.contains(path));
        stored.sort();
        inventory.insert("stored", stored);
        Ok(inventory)
    }
}

/// Whether this command line is of a process that ends by itself: of ours, which begins with the
/// verb, or of a process that the host's first process has to reap.
fn is_ending(line: &str) -> bool {
    line.starts_with("stasis-") || line.ends_with("<defunct>")
}

/// Returns the entries that one inventory has and the other has not.
#[must_use]
pub fn difference(before: &Inventory, now: &Inventory) -> Option<String> {
    let lines = |of: &Inventory| -> BTreeSet<String> {
        let all = of.iter().flat_map(|(kind, lines)| {
            // The same line may occur more than once.
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

/// Parses "ok GENERATION".
fn count(answer: &str) -> Result<u64> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    match words[..] {
        ["ok", generation] => Ok(generation.parse()?),
        _ => bail!("its memory is not as it was: {answer}"),
    }
}

/// Returns the names in a directory; none if it does not exist.
pub fn names_in(directory: &Path) -> Result<Vec<String>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Flips a bit in the middle of a pack in this directory, as a disk does.
pub fn flip_bit_of_a_pack(directory: &Path) -> Result<()> {
    let names = names_in(directory)?;
    let pack = names.iter().find(|name| name.ends_with(".pack"));
    let pack = directory.join(pack.context("no pack")?);
    let mut bytes = fs::read(&pack)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    // In place: it keeps its length and its inode number.
    Ok(fs::write(&pack, bytes)?)
}

fn files_below(directory: &Path, found: &mut Vec<String>) -> Result<()> {
    for name in names_in(directory)? {
        let path = directory.join(name);
        if path.is_dir() && !path.is_symlink() {
            files_below(&path, found)?;
        }
        found.push(path.display().to_string());
    }
    Ok(())
}
