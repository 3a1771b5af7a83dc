//! Will it run there? Needs of an image that a restore does not check before it begins: CRIU, the
//! kernel, and the files and mounts that CRIU will look for. The latter can be checked only where
//! the bundle of the new container is known.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, open, openat2};
use serde::Serialize;
use stasis_config::{DriverLibraries, Settings};
use stasis_engine::container::mounted;
use stasis_engine::container::spec::Spec;
use stasis_engine::error::admission::AdmissionError;
use stasis_engine::error::kind::Kind;
use stasis_engine::error::{Refusal, chain};
use stasis_engine::image::contents::{Expected, ExpectedFile, Files};
use stasis_engine::image::not_kept::NotKept;
use stasis_engine::preflight::capabilities::{Capabilities, Criu, driver_version};
use stasis_engine::restore::driver_libraries::DriverFiles;
use stasis_engine::restore::mounted::lacks;

use super::VerifyReport;
use crate::answer::amount::counted;

/// Mount points of the low-level runtime, whatever the specification has.
const RUNTIMES_OWN: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The most files that are named.
const MOST_NAMED: usize = 5;

/// An image's needs of the container that it is restored in.
#[derive(Debug, Serialize)]
pub(crate) struct Expects {
    /// Required mount points.
    pub(crate) mounts: BTreeSet<PathBuf>,
    /// How many files, in the root file system and those mounts, have to exist.
    pub(crate) files: usize,
}

/// Judges this machine, and the new container, if its bundle is given. Changes nothing.
pub(super) fn judge(
    settings: &Settings,
    report: &mut VerifyReport,
    bundle: Option<&Path>,
) -> Option<Expects> {
    judge_machine(settings, report);
    let expected = Files::of(&report.image).and_then(|files| Expected::read(&files));
    let expected = match expected {
        Ok(expected) => expected,
        Err(error) => {
            report.add(error.kind(), chain(&error));
            return None;
        }
    };
    match bundle {
        Some(bundle) => judge_container(settings, report, bundle, &expected),
        None => report.notes.push(
            "the new container must have its files and mounts: check them with --bundle".to_owned(),
        ),
    }
    Some(Expects {
        files: expected.files.len(),
        mounts: expected.mounts,
    })
}

pub(super) fn judge_machine(settings: &Settings, report: &mut VerifyReport) {
    let here = Capabilities::probe(settings);
    match &here.criu {
        Criu::Version(_) => {}
        Criu::Missing => report.add(Kind::Criu, "criu is not installed".to_owned()),
        Criu::Unknown(why) => report.add(Kind::Criu, why.clone()),
    }
    let Some(manifest) = report.manifest.as_ref() else {
        return;
    };
    let Some(made_on) = &manifest.made_on else {
        let note = "it does not name the machine that made it: its CPU was not compared";
        report.notes.push(note.to_owned());
        return;
    };
    let mut notes = Vec::new();
    let own = here.criu.version().map(|version| version.to_string());
    if let (Some(image), Some(own)) = (&made_on.criu, own)
        && numbers(&own) < numbers(image)
    {
        notes.push(format!(
            "it was made with CRIU {image}; the older {own} here may not restore it"
        ));
    }
    if numbers(&here.kernel.release) < numbers(&made_on.kernel) {
        notes.push(format!(
            "it was made on Linux {}; the older {} here may lack features that it needs",
            made_on.kernel, here.kernel.release
        ));
    }
    report.notes.extend(notes);
}

/// Returns the first two numbers of a version, or of a kernel's release.
fn numbers(release: &str) -> Vec<u32> {
    let parts = release.split(|c: char| !c.is_ascii_digit()).take(2);
    parts.map_while(|part| part.parse().ok()).collect()
}

fn judge_container(
    settings: &Settings,
    report: &mut VerifyReport,
    bundle: &Path,
    expected: &Expected,
) {
    let mut spec = match Spec::read(bundle) {
        Ok(spec) => spec,
        Err(error) => return report.refuse(&Refusal::from(AdmissionError::from(error))),
    };
    // A restore does the same.
    if settings.restore.driver_libraries == DriverLibraries::Match
        && let Ok(version) = driver_version(settings)
    {
        let replaced = DriverFiles::of(&version).replace_missing(&mut spec);
        report.notes.extend(replaced);
    }
    let provided: BTreeSet<PathBuf> = spec.mount_points().into_iter().collect();
    let is_own = |mount: &Path| RUNTIMES_OWN.iter().any(|own| mount.starts_with(own));
    let mounts = expected.mounts.iter();
    for mount in mounts.filter(|mount| !provided.contains(*mount) && !is_own(mount)) {
        let text = format!(
            "it has a mount at {}, and the new container has none",
            mount.display()
        );
        report.add(Kind::MountMissing, text);
    }
    for bind in spec.binds().filter(|bind| !Path::new(bind.source).exists()) {
        let (source, destination) = (bind.source, bind.destination);
        let text =
            format!("{source} does not exist; it is the source of the mount at {destination}");
        report.add(Kind::MountMissing, text);
    }
    let has = mounted::all(&spec);
    let had = NotKept::read(&report.image).ok().flatten();
    let had = had.iter().flat_map(|had| &had.mounted);
    report.notes.extend(had.filter_map(|had| lacks(had, &has)));
    judge_files(report, bundle, &spec, expected);
}

fn judge_files(report: &mut VerifyReport, bundle: &Path, spec: &Spec, expected: &Expected) {
    let files = expected.files.iter();
    let wrong = files.filter_map(|file| wrong_with(file, &place_of(file, bundle, spec)?));
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() {
        return;
    }
    let named = &wrong[..wrong.len().min(MOST_NAMED)];
    let text = format!(
        "{} that its processes have open or mapped: missing or changed: {}",
        counted(wrong.len(), "file"),
        named.join("; ")
    );
    report.add(Kind::FileMissing, text);
}

/// Returns the source of the file's mount; `None` if there is none, which is reported already.
fn place_of(file: &ExpectedFile, bundle: &Path, spec: &Spec) -> Option<PathBuf> {
    if file.mountpoint == Path::new("/") {
        return Some(bundle.join(spec.root()?));
    }
    let is_its = |destination: &str| Path::new("/").join(destination) == file.mountpoint;
    let bind = spec.binds().find(|bind| is_its(bind.destination))?;
    let source = Path::new(bind.source);
    source.exists().then(|| source.to_owned())
}

fn wrong_with(file: &ExpectedFile, place: &Path) -> Option<String> {
    let path = file.path();
    let path = path.display();
    match size_within(place, &file.within) {
        Ok(found) => {
            let bytes = file.bytes.filter(|bytes| *bytes != found)?;
            Some(format!("{path} had {bytes} bytes and has {found}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!("{path} is missing")),
        Err(error) => Some(format!("{path}: {error}")),
    }
}

/// Returns a file's size without opening it: links stay within the place, as in the container.
fn size_within(place: &Path, within: &Path) -> io::Result<u64> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = open(place, flags, Mode::empty())?;
    if within.as_os_str().is_empty() {
        return size(&place);
    }
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    size(openat2(&place, within, flags, Mode::empty(), resolve)?)
}

fn size(file: impl AsFd) -> io::Result<u64> {
    Ok(fstat(file)?.st_size.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert!(numbers("6.1.0-40-amd64") < numbers("6.18.0"));
        assert_eq!(numbers("6.18.0-amd64"), numbers("6.18.7"));
        assert!(numbers("") < numbers("5.14"));
    }

    #[test]
    fn a_file_is_looked_for_within_its_place() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("data"), "four").unwrap();
        symlink("/data", root.path().join("link")).unwrap();
        let file = |within: &str, bytes| ExpectedFile {
            mountpoint: "/".into(),
            within: within.into(),
            bytes,
        };
        let wrong = |within, bytes| wrong_with(&file(within, bytes), root.path());
        assert_eq!(wrong("data", Some(4)), None);
        assert_eq!(wrong("link", Some(4)), None, "no link leads out of it");
        assert_eq!(wrong("data", None), None);
        let other = wrong("data", Some(5));
        assert_eq!(other.as_deref(), Some("/data had 5 bytes and has 4"));
        let gone = wrong("gone", None);
        assert_eq!(gone.as_deref(), Some("/gone is missing"));
    }
}
