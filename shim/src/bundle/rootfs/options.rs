//! The options of a mount, as fstab(5) has them: flags of mount(2), options for this program, and
//! the rest, which is for the file system.

use nix::mount::MsFlags;

use crate::error::{Error, Result};

/// The options of a mount.
#[derive(Debug)]
pub(super) struct Options {
    /// Flags of mount(2), without those of propagation.
    pub(super) flags: MsFlags,
    /// The propagation of mounts at it; empty: unchanged.
    pub(super) propagation: MsFlags,
    /// The file system's options.
    pub(super) data: Vec<String>,
    /// Whether the source is a file that needs a loop device.
    pub(super) is_loop: bool,
    /// The ids that the files are to belong to.
    pub(super) maps: Option<Maps>,
}

/// The ids of a user namespace and those of the host, in the form of /proc/PID/uid_map.
#[derive(Debug)]
pub(super) struct Maps {
    /// Of users.
    pub(super) users: String,
    /// Of groups.
    pub(super) groups: String,
}

/// Parses `CONTAINER:HOST:COUNT`, several separated by commas.
fn id_map(map: &str) -> Option<String> {
    let mut lines = String::new();
    for range in map.split(',') {
        let numbers: Option<Vec<u32>> =
            range.split(':').map(|number| number.parse().ok()).collect();
        let [container, host, count] = numbers?.try_into().ok()?;
        lines += &format!("{container} {host} {count}\n");
    }
    Some(lines)
}

/// The effect of an option on the flags.
enum Change {
    Set(MsFlags),
    Clear(MsFlags),
    Spread(MsFlags),
}

impl Options {
    /// Parses a caller's options.
    ///
    /// # Errors
    ///
    /// An option is meant for a program in front of us, which should have handled it, or the maps
    /// of ids are malformed.
    pub(super) fn parse(given: &[String]) -> Result<Self> {
        let mut options = Self {
            flags: MsFlags::empty(),
            propagation: MsFlags::empty(),
            data: Vec::new(),
            is_loop: false,
            maps: None,
        };
        let (mut users, mut groups) = (None, None);
        for option in given {
            if let Some(map) = option.strip_prefix("uidmap=") {
                users = Some(map);
            } else if let Some(map) = option.strip_prefix("gidmap=") {
                groups = Some(map);
            } else if option.starts_with("X-containerd.") {
                return Err(refused(option, "it is for containerd's mount manager"));
            } else if option == "loop" {
                options.is_loop = true;
            } else {
                options.add(option);
            }
        }
        if options.is_loop {
            // An option for speed alone, which the kernel does not know.
            options.data.retain(|option| option != "direct-io");
        }
        options.maps = match (users, groups) {
            (None, None) => None,
            (Some(users), Some(groups)) => {
                let none = |map| move || refused(map, "it is no map of ids");
                Some(Maps {
                    users: id_map(users).ok_or_else(none(users))?,
                    groups: id_map(groups).ok_or_else(none(groups))?,
                })
            }
            (Some(map), None) | (None, Some(map)) => {
                let reason = "ids are mapped for users and groups, or not at all";
                return Err(refused(map, reason));
            }
        };
        Ok(options)
    }

    fn add(&mut self, option: &str) {
        match change(option) {
            Some(Change::Set(flags)) => self.flags |= flags,
            Some(Change::Clear(flags)) => self.flags -= flags,
            Some(Change::Spread(flags)) => self.propagation |= flags,
            None if option == "defaults" => {}
            None => self.data.push(option.to_owned()),
        }
    }
}

fn refused(option: &str, reason: &str) -> Error {
    Error::Invalid(format!("cannot use the mount option {option:?}: {reason}"))
}

fn change(option: &str) -> Option<Change> {
    let set = |flags| Some(Change::Set(flags));
    let clear = |flags| Some(Change::Clear(flags));
    let spread = |flags| Some(Change::Spread(flags));
    match option {
        "bind" => set(MsFlags::MS_BIND),
        "rbind" => set(MsFlags::MS_BIND | MsFlags::MS_REC),
        "remount" => set(MsFlags::MS_REMOUNT),
        "ro" => set(MsFlags::MS_RDONLY),
        "rw" => clear(MsFlags::MS_RDONLY),
        "nodev" => set(MsFlags::MS_NODEV),
        "dev" => clear(MsFlags::MS_NODEV),
        "noexec" => set(MsFlags::MS_NOEXEC),
        "exec" => clear(MsFlags::MS_NOEXEC),
        "nosuid" => set(MsFlags::MS_NOSUID),
        "suid" => clear(MsFlags::MS_NOSUID),
        "noatime" => set(MsFlags::MS_NOATIME),
        "atime" => clear(MsFlags::MS_NOATIME),
        "nodiratime" => set(MsFlags::MS_NODIRATIME),
        "diratime" => clear(MsFlags::MS_NODIRATIME),
        "relatime" => set(MsFlags::MS_RELATIME),
        "norelatime" => clear(MsFlags::MS_RELATIME),
        "strictatime" => set(MsFlags::MS_STRICTATIME),
        "nostrictatime" => clear(MsFlags::MS_STRICTATIME),
        "sync" => set(MsFlags::MS_SYNCHRONOUS),
        "async" => clear(MsFlags::MS_SYNCHRONOUS),
        "dirsync" => set(MsFlags::MS_DIRSYNC),
        "mand" => set(MsFlags::MS_MANDLOCK),
        "nomand" => clear(MsFlags::MS_MANDLOCK),
        "private" => spread(MsFlags::MS_PRIVATE),
        "rprivate" => spread(MsFlags::MS_PRIVATE | MsFlags::MS_REC),
        "shared" => spread(MsFlags::MS_SHARED),
        "rshared" => spread(MsFlags::MS_SHARED | MsFlags::MS_REC),
        "slave" => spread(MsFlags::MS_SLAVE),
        "rslave" => spread(MsFlags::MS_SLAVE | MsFlags::MS_REC),
        "unbindable" => spread(MsFlags::MS_UNBINDABLE),
        "runbindable" => spread(MsFlags::MS_UNBINDABLE | MsFlags::MS_REC),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_ranges_of_ids() {
        assert_eq!(id_map("0:1000:65536").unwrap(), "0 1000 65536\n");
        assert_eq!(id_map("0:1:2,2:9:1").unwrap(), "0 1 2\n2 9 1\n");
        for map in ["", "0:1", "0:1:2:3", "a:1:2", "0:-1:2", "0:1:2,"] {
            assert_eq!(id_map(map), None, "{map}");
        }
    }

    fn parse(given: &[&str]) -> Result<Options> {
        let given: Vec<String> = given.iter().map(|option| (*option).to_owned()).collect();
        Options::parse(&given)
    }

    #[test]
    fn flags_are_told_from_the_file_systems_options() {
        let given = [
            "rbind",
            "ro",
            "rw",
            "nosuid",
            "rslave",
            "defaults",
            "index=off",
        ];
        let options = parse(&given).unwrap();
        let expected = MsFlags::MS_BIND | MsFlags::MS_REC | MsFlags::MS_NOSUID;
        assert_eq!(options.flags, expected);
        assert_eq!(options.propagation, MsFlags::MS_SLAVE | MsFlags::MS_REC);
        assert_eq!(options.data, ["index=off"]);
        assert!(options.maps.is_none());
    }

    #[test]
    fn what_another_should_have_done_is_named() {
        for given in [
            &["X-containerd.mkdir.path=/a"][..],
            &["uidmap=0:1000:65536"],
            &["uidmap=0:1000:65536", "gidmap=0:many:65536"],
        ] {
            let error = parse(given).unwrap_err().to_string();
            assert!(error.contains("mount option"), "{error}");
        }
        let maps = parse(&["uidmap=0:1000:65536", "gidmap=0:2000:65536"]).unwrap();
        assert!(maps.maps.is_some() && maps.data.is_empty());
    }
}
