//! The directory of a key, and the order of its images. The latest one is found by their names,
//! which begin with a time: the time of a new image is later than all that the key has had, here or
//! in the registry, whatever the clock says.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stasis_host::time::{parsed, rfc3339};
use stasis_linux::directory::Directory;
use stasis_linux::file::{self, Access, Durability};

use crate::stopped::ENDING;

/// The mode of directories above an image, which CRIU may open as a user namespace's root.
pub(crate) const MODE: u32 = 0o711;
/// The name of the last image that a container has begun with from the registry. No image has a
/// name that begins with a dot.
const TAKEN: &str = ".taken";
/// A line for each life of the job that began cold, the last one at the end: the name of the newest
/// image that the key had then. Later images are of another life, and take no place of it.
const LEFT: &str = ".left";
/// The longest path (PATH_MAX).
pub(crate) const MAX_BYTES: usize = 4096;
const MOST_BYTES: u64 = 1 << 16;
/// The length of a time to the second, without its zone.
const SECOND: usize = "2026-11-25T10:30:00".len();

/// Returns whether all parts of a text can be names of directories below another one.
pub(crate) fn is_name(text: &str) -> bool {
    if text.len() > MAX_BYTES {
        return false;
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_part = |part: &str| !part.starts_with('.') && part.bytes().all(known);
    text.split('/')
        .all(|part| !part.is_empty() && is_part(part))
}

/// Makes the directory of a key, and those above it below `all`.
pub(crate) fn make(all: &Path, key: &Path) -> io::Result<Directory> {
    let below = key.strip_prefix(all).map_err(io::Error::other)?;
    let (mut path, mut directory) = (all.to_owned(), None);
    for part in below {
        path.push(part);
        directory = Some(Directory::make(&path, MODE)?);
    }
    directory.ok_or(io::ErrorKind::InvalidInput.into())
}

/// Notes that a container begins with the image of this name from the registry: another host's
/// clock may be ahead, and the container's own images are later all the same.
pub(crate) fn note_taken(key: &Path, name: &str) -> io::Result<()> {
    if after(name) <= taken(key)?.as_deref().and_then(after) {
        return Ok(());
    }
    write(&key.join(TAKEN), name)
}

/// Notes that a container of this key starts cold: no stop removes the images that exist now.
pub(crate) fn leave(key: &Path) -> io::Result<()> {
    let mut newest = None;
    for entry in fs::read_dir(key)? {
        let name = entry?.file_name().into_string().ok();
        newest = newest.max(name.filter(|name| !name.starts_with('.')));
    }
    let mut lives = lives(key)?;
    match newest.filter(|name| lives.last() != Some(name)) {
        Some(name) => {
            lives.push(name);
            write(&key.join(LEFT), &lives.join("\n"))
        }
        None => Ok(()),
    }
}

/// Notes that a container begins with this image: if it was left, it no longer is. Images that the
/// life that goes on has left itself stay left.
pub(crate) fn mark_continued(image: &Path) -> io::Result<()> {
    let key = image.parent().unwrap_or(image);
    let name = image.file_name();
    let mut lives = lives(key)?;
    match lives.pop_if(|left| name == Some(OsStr::new(left))) {
        Some(_) if lives.is_empty() => file::remove(&key.join(LEFT)),
        Some(_) => write(&key.join(LEFT), &lives.join("\n")),
        None => Ok(()),
    }
}

/// Returns the last name of the images that no stop removes, in the order of names.
pub(crate) fn left(key: &Path) -> io::Result<Option<String>> {
    Ok(lives(key)?.pop())
}

fn lives(key: &Path) -> io::Result<Vec<String>> {
    let text = read(&key.join(LEFT))?.unwrap_or_default();
    Ok(text.lines().map(str::to_owned).collect())
}

/// Returns the time for the name of a new image.
pub(crate) fn next(key: &Path, now: SystemTime) -> io::Result<SystemTime> {
    let mut next = taken(key)?.as_deref().and_then(after);
    for entry in fs::read_dir(key)? {
        let name = entry?.file_name();
        next = next.max(name.to_str().and_then(after));
    }
    Ok(next.map_or(now, |next| next.max(now)))
}

/// Returns the name of an image: a later time gives a later name, byte by byte.
pub(crate) fn name_at(time: SystemTime) -> String {
    let seconds = rfc3339(time);
    let seconds = seconds.trim_end_matches('Z');
    let parts = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{seconds}.{:03}Z{ENDING}", parts.subsec_millis())
}

fn taken(key: &Path) -> io::Result<Option<String>> {
    read(&key.join(TAKEN))
}

fn write(path: &Path, name: &str) -> io::Result<()> {
    file::replace(path, name.as_bytes(), Access::Private, Durability::Durable)
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let text = file::read(path, MOST_BYTES)?;
    Ok(text.and_then(|text| String::from_utf8(text).ok()))
}

/// Returns a time whose name is later than this one, if that begins with a time. RFC 3339 ends with
/// the year 9999: a name with that means no time.
fn after(name: &str) -> Option<SystemTime> {
    if name.starts_with("9999") {
        return None;
    }
    let time = name.strip_suffix(ENDING).and_then(parsed);
    if let Some(time) = time.filter(|time| name_at(*time) == name) {
        return Some(time + Duration::from_millis(1));
    }
    // Whatever follows its second.
    let second = parsed(&format!("{}Z", name.get(..SECOND)?))?;
    Some(second + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_that_began_cold_leaves_what_was_there() {
        let key = tempfile::tempdir().unwrap();
        let key = key.path();
        leave(key).unwrap();
        assert_eq!(left(key).unwrap(), None, "there was nothing");
        for image in ["1-stop", "2-stop", ".stopping"] {
            fs::create_dir(key.join(image)).unwrap();
        }
        leave(key).unwrap();
        assert_eq!(left(key).unwrap().as_deref(), Some("2-stop"));
        mark_continued(&key.join("1-stop")).unwrap();
        assert_eq!(left(key).unwrap().as_deref(), Some("2-stop"));
        mark_continued(&key.join("2-stop")).unwrap();
        assert_eq!(left(key).unwrap(), None);
    }

    #[test]
    fn a_life_that_goes_on_again_still_leaves_what_it_began_behind() {
        let key = tempfile::tempdir().unwrap();
        let key = key.path();
        for image in ["1-stop", "2-stop"] {
            fs::create_dir(key.join(image)).unwrap();
            for _ in 0..2 {
                leave(key).unwrap();
            }
        }
        assert_eq!(left(key).unwrap().as_deref(), Some("2-stop"));
        mark_continued(&key.join("2-stop")).unwrap();
        assert_eq!(left(key).unwrap().as_deref(), Some("1-stop"));
        mark_continued(&key.join("1-stop")).unwrap();
        assert_eq!(left(key).unwrap(), None);
    }

    #[test]
    fn a_name_comes_after_all_that_are_there_or_were_taken() {
        let key = tempfile::tempdir().unwrap();
        let key = key.path();
        let now = parsed("2026-11-25T16:00:00Z").unwrap();
        let next = || name_at(next(key, now).unwrap());
        assert_eq!(next(), "2026-11-25T16:00:00.000Z-stop");
        for there in [
            "2026-11-25T17:00:00.998Z-stop",
            "2027-01-01T00:00:00Z",
            "2027-01-01T00:00:01Z-stop",
            "2028-01-01T00:00:00+02:00",
            "2029-01-01T00:00:00.5Z-before-the-upgrade",
        ] {
            fs::create_dir(key.join(there)).unwrap();
            assert!(*there < *next(), "{there}: {}", next());
        }
        for no_time in [
            "job",
            "9999-12-31T23:59:59.999Z-stop",
            "9999-12-31T23:59:59Z",
        ] {
            fs::create_dir(key.join(no_time)).unwrap();
        }
        for taken in ["2030-01-01T00:00:00.000Z-stop", "2031-01-01T00:00:00Z"] {
            note_taken(key, taken).unwrap();
            assert!(*taken < *next(), "{taken}: {}", next());
        }
        note_taken(key, "2030-01-01T00:00:00.000Z-stop").unwrap();
        assert_eq!(next(), "2031-01-01T00:00:01.000Z-stop");
    }
}
