//! The ids of a root file system that is mounted with others.

/// Which ids of a user namespace are which of the host, in the form of /proc/PID/uid_map.
#[derive(Debug)]
pub(super) struct Maps {
    /// Of users.
    pub(super) users: String,
    /// Of groups.
    pub(super) groups: String,
}

impl Maps {
    /// Parses `CONTAINER:HOST:COUNT`, several separated by commas.
    pub(super) fn parse(users: &str, groups: &str) -> Option<Self> {
        Some(Self {
            users: lines(users)?,
            groups: lines(groups)?,
        })
    }
}

fn lines(map: &str) -> Option<String> {
    let mut lines = String::new();
    for range in map.split(',') {
        let numbers: Option<Vec<u32>> =
            range.split(':').map(|number| number.parse().ok()).collect();
        let [container, host, count] = numbers?.try_into().ok()?;
        lines += &format!("{container} {host} {count}\n");
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_ranges_of_ids() {
        assert_eq!(lines("0:1000:65536").unwrap(), "0 1000 65536\n");
        assert_eq!(lines("0:1:2,2:9:1").unwrap(), "0 1 2\n2 9 1\n");
        for map in ["", "0:1", "0:1:2:3", "a:1:2", "0:-1:2", "0:1:2,"] {
            assert_eq!(lines(map), None, "{map}");
        }
    }
}
