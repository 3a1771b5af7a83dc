//! Versions of programs, as they print them.

use std::fmt;

/// A version: major, minor, patch. A release candidate counts as its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// The programs that print "NAME version VERSION".
const PROGRAMS: [&str; 5] = ["runc", "crun", "podman", "crio", "Docker"];

impl Version {
    /// Makes a version of these numbers.
    pub(crate) const fn of(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Parses "v1.4.0-rc.3", and distributions' forms: "1.1.15+ds1", "1.7.24~ds1".
    fn parse(word: &str) -> Option<Self> {
        let word = word.strip_prefix('v').unwrap_or(word);
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
        let mut numbers = word[..end.unwrap_or(word.len())].split('.');
        let mut next = || numbers.next().map(str::parse);
        let major = next()?.ok()?;
        let mut or_none = || next().and_then(Result::ok).unwrap_or_default();
        Some(Self::of(major, or_none(), or_none()))
    }
}

/// Reads the name of the program that has answered `--version`, and its version. A program in front
/// of runc (nvidia-container-runtime) prints its own version before runc's, and is skipped.
pub(super) fn read(answer: &str) -> Option<(&str, Version)> {
    answer.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (program, second) = (words.next()?, words.next()?);
        let is_one = second == "version" && PROGRAMS.contains(&program);
        // containerd names its source before its version.
        let version = words.next().filter(|_| is_one || program == "containerd");
        Some((program, Version::parse(version?)?))
    })
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: [(&str, &str, Version); 10] = [
        (
            "runc version 1.1.15+ds1\ncommit: 1.1.15+ds1-2+b4\nspec: 1.0.2-dev\ngo: go1.24.4\n",
            "runc",
            Version::of(1, 1, 15),
        ),
        (
            "runc version 1.4.0-rc.3\ncommit: v1.4.0-rc.3-0-g6bae6cad\nspec: 1.3.0\n",
            "runc",
            Version::of(1, 4, 0),
        ),
        (
            "NVIDIA Container Runtime version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c\n\
             spec: 1.2.1\n\nrunc version 1.2.5\ncommit: v1.2.5-0-g59923ef\nspec: 1.2.0\n",
            "runc",
            Version::of(1, 2, 5),
        ),
        (
            "crun version 1.21\ncommit: 10269840aa07fb7e6b7e1acff6198692d8ff5c88\n",
            "crun",
            Version::of(1, 21, 0),
        ),
        (
            "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1\n",
            "containerd",
            Version::of(1, 7, 24),
        ),
        (
            "containerd github.com/containerd/containerd/v2 v2.3.4 \n",
            "containerd",
            Version::of(2, 3, 4),
        ),
        (
            "containerd containerd.io 1.6.33 d2d58213f83a351ca8f528a95fbd145f5654e957\n",
            "containerd",
            Version::of(1, 6, 33),
        ),
        ("podman version 5.4.2\n", "podman", Version::of(5, 4, 2)),
        (
            "crio version 1.35.0\nGitCommit: x\n",
            "crio",
            Version::of(1, 35, 0),
        ),
        (
            "Docker version 26.1.5+dfsg1, build a72d7cd\n",
            "Docker",
            Version::of(26, 1, 5),
        ),
    ];

    #[test]
    fn what_programs_print_is_understood() {
        for (answer, program, version) in ANSWERS {
            assert_eq!(read(answer), Some((program, version)), "{answer}");
        }
        for answer in [
            "",
            "runc",
            "runc version",
            "runc version unknown",
            "youki version 0.5.4\ncommit: 0.5.4-0-g\n",
            "runc version 99999999999999999999.1",
        ] {
            assert_eq!(read(answer), None, "{answer}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let parsed = ["1.4.0-rc.2", "1.4.1-dev", "1.10.0~ds1", "2", "10.0"];
        let parsed = parsed.map(|word| Version::parse(word).unwrap());
        assert!(parsed.is_sorted(), "{parsed:?}");
        let printed = parsed.map(|version| version.to_string());
        assert_eq!(printed, ["1.4.0", "1.4.1", "1.10.0", "2.0.0", "10.0.0"]);
    }
}
