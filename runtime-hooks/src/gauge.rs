//! How far a phase has come, as far as that shows from outside: the driver tells nothing while it
//! works, and asking it would only get in its way.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::time::SystemTime;

use crate::container::Container;
use crate::process::ProcessRef;

/// What a phase moves, and where it shows. All of it is an estimate, for people who wait.
#[derive(Debug)]
pub struct Gauge<'a> {
    total: Option<u64>,
    /// Of what the source measures, when the phase began.
    baseline: u64,
    source: Source<'a>,
    /// Where our CRIU plugin tells how far it has come, once it has begun.
    told: Option<&'a Path>,
}

#[derive(Debug)]
enum Source<'a> {
    /// The driver moves GPU contents into anonymous memory of each process.
    Filling(Vec<Status>),
    /// The driver moves GPU contents out of it again and gives it back.
    Emptying(Vec<Status>),
    /// CRIU writes the container's memory into the image directory.
    Image {
        container: &'a Container,
        directory: &'a Path,
        since: SystemTime,
    },
    /// Our CRIU plugin tells.
    Told,
}

/// How far a phase has come; what is not known is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// What has been moved.
    pub done: Option<u64>,
    /// What is to be moved.
    pub total: Option<u64>,
}

impl<'a> Gauge<'a> {
    /// For the GPU checkpoint of these processes, which hold `bytes` of GPU memory.
    #[must_use]
    pub fn gpu_checkpoint(bytes: Option<u64>, processes: &[ProcessRef]) -> Self {
        Self::new(bytes, Source::Filling(open_all(processes)))
    }

    /// For the GPU restore of these processes, which held `bytes` of GPU memory.
    #[must_use]
    pub fn gpu_restore(bytes: Option<u64>, processes: &[ProcessRef]) -> Self {
        Self::new(bytes, Source::Emptying(open_all(processes)))
    }

    /// For the dump of a container. Files of the image directory that are older than `since`, the
    /// beginning of the operation, are those of an earlier dump. What our CRIU plugin tells in the file `told` counts instead.
    #[must_use]
    pub fn dump(
        container: &'a Container,
        directory: &'a Path,
        since: SystemTime,
        told: Option<&'a Path>,
    ) -> Self {
        let source = Source::Image {
            container,
            directory,
            since,
        };
        let gauge = Self::new(None, source);
        Self { told, ..gauge }
    }

    /// For the restore of a container by CRIU, of which only our plugin tells anything.
    #[must_use]
    pub fn criu_restore(told: Option<&'a Path>) -> Self {
        let gauge = Self::new(None, Source::Told);
        Self { told, ..gauge }
    }

    fn new(total: Option<u64>, source: Source<'a>) -> Self {
        Self {
            total,
            baseline: 0,
            source,
            told: None,
        }
    }

    /// What the phase moves between GPU and host, if it is a phase of the GPU and that is known.
    #[must_use]
    pub fn gpu_bytes(&self) -> Option<u64> {
        match self.source {
            Source::Filling(_) | Source::Emptying(_) => self.total,
            Source::Image { .. } | Source::Told => None,
        }
    }

    /// Notes how things are at the beginning of the phase.
    pub(crate) fn start(&mut self) {
        match &self.source {
            Source::Filling(statuses) | Source::Emptying(statuses) => {
                self.baseline = anonymous(statuses);
            }
            Source::Image { container, .. } => self.total = resident(container).ok(),
            Source::Told => {}
        }
    }

    /// How things are now.
    pub(crate) fn read(&self) -> Reading {
        if let Some(reading) = self.told.and_then(told) {
            return reading;
        }
        let done = match &self.source {
            Source::Filling(statuses) => Some(anonymous(statuses).saturating_sub(self.baseline)),
            Source::Emptying(statuses) => Some(self.baseline.saturating_sub(anonymous(statuses))),
            Source::Image {
                directory, since, ..
            } => written(directory, *since).ok(),
            Source::Told => None,
        };
        // The processes' other memory comes and goes meanwhile, too.
        let done = match (done, self.total) {
            (Some(done), Some(total)) => Some(done.min(total)),
            (done, _) => done,
        };
        Reading {
            done,
            total: self.total,
        }
    }
}

/// `/proc/PID/status` of one process: opened once, it never becomes that of another process with
/// the same pid. Unlike `smaps_rollup` it is read without the process's memory lock.
#[derive(Debug)]
struct Status(File);

impl Status {
    fn open(process: &ProcessRef) -> Option<Self> {
        let file = File::open(format!("/proc/{}/status", process.pid())).ok()?;
        // Alive after the opening: it was this process's file that was opened.
        process.is_alive().ok()?.then_some(Self(file))
    }

    fn read(&self) -> io::Result<String> {
        let mut text = String::new();
        let mut file = &self.0;
        file.rewind()?;
        file.read_to_string(&mut text)?;
        Ok(text)
    }
}

fn open_all(processes: &[ProcessRef]) -> Vec<Status> {
    processes.iter().filter_map(Status::open).collect()
}

/// The anonymous memory of all; a process that has ended has none.
fn anonymous(statuses: &[Status]) -> u64 {
    let texts = statuses.iter().filter_map(|status| status.read().ok());
    texts.map(|text| bytes_of(&text, &["RssAnon:"])).sum()
}

/// The memory of a container that is in no file, in bytes; what processes share counts once for each.
///
/// # Errors
/// What the kernel said.
pub(crate) fn anonymous_of(container: &Container) -> io::Result<u64> {
    let statuses = open_all(&container.processes()?);
    let texts = statuses.iter().filter_map(|status| status.read().ok());
    Ok(texts
        .map(|text| bytes_of(&text, &["RssAnon:", "VmSwap:"]))
        .sum())
}

/// What CRIU will have to write: memory that is in no file. What processes share counts for each.
fn resident(container: &Container) -> io::Result<u64> {
    let statuses = open_all(&container.processes()?);
    let texts = statuses.iter().filter_map(|status| status.read().ok());
    Ok(texts
        .map(|text| bytes_of(&text, &["RssAnon:", "RssShmem:", "VmSwap:"]))
        .sum())
}

/// The sum of fields of `/proc/PID/status`, which are in KiB. A kernel thread has none of them.
fn bytes_of(status: &str, fields: &[&str]) -> u64 {
    let values = status.lines().filter_map(|line| {
        let value = fields.iter().find_map(|field| line.strip_prefix(field))?;
        let kib: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
        kib.checked_mul(1024)
    });
    values.sum()
}

/// "BYTES TOTAL" in the first line; there is nothing to tell before there is anything to move.
fn told(file: &Path) -> Option<Reading> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.lines().next()?.split_ascii_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let (done, total) = (number()?, number()?);
    (total > 0).then_some(Reading {
        done: Some(done.min(total)),
        total: Some(total),
    })
}

fn written(directory: &Path, since: SystemTime) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        // CRIU removes files of its own meanwhile.
        let Ok(metadata) = entry?.metadata() else {
            continue;
        };
        if metadata.is_file() && metadata.modified()? >= since {
            bytes += metadata.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A status file that says what a test wants: this process's own memory moves with every test.
    fn fake(directory: &Path, name: &str) -> (std::path::PathBuf, Status) {
        let path = directory.join(name);
        tell(&path, 0);
        let file = File::open(&path).unwrap();
        (path, Status(file))
    }

    fn tell(path: &Path, anonymous: u64) {
        fs::write(path, format!("Name:\tx\nRssAnon:\t{anonymous} kB\n")).unwrap();
    }

    fn reading(done: u64, total: Option<u64>) -> Reading {
        let done = Some(done);
        Reading { done, total }
    }

    #[test]
    fn growth_and_shrinkage_of_all_processes_count() {
        let directory = tempfile::tempdir().unwrap();
        let (one, first) = fake(directory.path(), "1");
        let (two, second) = fake(directory.path(), "2");
        tell(&one, 100);
        let mut filling = Gauge::new(Some(20 << 10), Source::Filling(vec![first, second]));
        assert_eq!(filling.gpu_bytes(), Some(20 << 10));
        filling.start();
        assert_eq!(filling.read(), reading(0, Some(20 << 10)));
        tell(&one, 107);
        tell(&two, 6);
        assert_eq!(filling.read(), reading(13 << 10, Some(20 << 10)));
        tell(&two, 600);
        assert_eq!(
            filling.read(),
            reading(20 << 10, Some(20 << 10)),
            "more than all"
        );
        tell(&one, 0);
        tell(&two, 0);
        assert_eq!(filling.read(), reading(0, Some(20 << 10)));

        let (one, first) = fake(directory.path(), "1");
        tell(&one, 100);
        let mut emptying = Gauge::new(None, Source::Emptying(vec![first]));
        emptying.start();
        tell(&one, 30);
        assert_eq!(emptying.read(), reading(70 << 10, None));
        tell(&one, 130);
        assert_eq!(emptying.read(), reading(0, None));
    }

    #[test]
    fn a_live_process_has_memory() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = ProcessRef::open(pid).unwrap().unwrap();
        let statuses = open_all(&[own]);
        assert!(anonymous(&statuses) > 0);
        assert!(anonymous(&statuses) > 0, "read again from its beginning");
    }

    #[test]
    fn the_plugin_tells_how_far_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("progress");
        let gauge = Gauge::criu_restore(Some(&file));
        assert_eq!(gauge.read(), Reading::default());
        fs::write(&file, "0 0\n").unwrap();
        assert_eq!(gauge.read(), Reading::default());
        fs::write(&file, "30 100\n00\n").unwrap();
        assert_eq!(gauge.read(), reading(30, Some(100)));
        fs::write(&file, "  300   100\n").unwrap();
        assert_eq!(gauge.read(), reading(100, Some(100)));
        fs::write(&file, "nonsense").unwrap();
        assert_eq!(gauge.read(), Reading::default());
    }

    #[test]
    fn only_files_of_this_dump_count() {
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("pages-9.img");
        fs::write(&old, [0; 100]).unwrap();
        let since = SystemTime::now() - Duration::from_secs(60);
        let before = since - Duration::from_secs(60);
        File::options()
            .write(true)
            .open(&old)
            .unwrap()
            .set_modified(before)
            .unwrap();
        fs::write(directory.path().join("pages-1.img"), [0; 10]).unwrap();
        fs::write(directory.path().join("core-1.img"), [0; 3]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("parent")).unwrap();
        fs::create_dir(directory.path().join("inner")).unwrap();
        assert_eq!(written(directory.path(), since).unwrap(), 13);
        assert!(written(&directory.path().join("missing"), since).is_err());
    }

    #[test]
    fn status_gives_memory_in_bytes() {
        let status = "Name:\tVmSwap: 1 kB\nVmRSS:\t 9 kB\nRssAnon:\t  5 kB\nRssShmem:\t 2 kB\n";
        assert_eq!(bytes_of(status, &["RssAnon:"]), 5 << 10);
        assert_eq!(bytes_of(status, &["RssAnon:", "RssShmem:"]), 7 << 10);
        assert_eq!(bytes_of("Name:\tkthreadd\n", &["RssAnon:"]), 0);
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let processes = [ProcessRef::open(pid).unwrap().unwrap()];
        let mut gauge = Gauge::gpu_checkpoint(None, &processes);
        gauge.start();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(gauge.read().done, Some(0));
        assert!(Status::open(&processes[0]).is_none());
    }
}
