//! The progress of a group, in one line of a terminal: of the containers that others wait for.

use std::path::PathBuf;

use stasis_engine::operation::directory_of;
use stasis_engine::operation::progress::UnderWay;
use stasis_group::parent::{Child, Watch};

use crate::answer::amount::counted;
use crate::through_engine::progress::{ProgressLine, Shown};

/// The beginning of the phases of containers that wait for others.
const WAITS: &str = "wait for ";

/// The line of a group.
#[derive(Debug)]
pub(super) struct GroupLine {
    line: ProgressLine,
    /// The name of each container, and the directory of its operation's progress.
    members: Vec<(String, PathBuf)>,
}

impl GroupLine {
    pub(super) fn of(children: &[Child], shown: Shown) -> Self {
        let members = children.iter().map(|child| {
            let context = &child.context;
            let state_dir = &context.settings.paths.state_dir;
            let directory = directory_of(state_dir, &context.root, &child.container);
            (child.name.clone(), directory)
        });
        let title = counted(children.len(), "container");
        Self {
            line: ProgressLine::new(&title, shown, None),
            members: members.collect(),
        }
    }
}

impl Watch for GroupLine {
    fn show(&mut self) {
        if self.line.is_shown() {
            let all = self.members.iter().filter_map(|(name, directory)| {
                let under_way = UnderWay::read(directory).ok().flatten()?;
                Some((name.as_str(), under_way))
            });
            self.line.show(at_work(&all.collect::<Vec<_>>()).as_ref());
        }
    }

    fn is_taken_back(&mut self) {
        self.line.is_taken_back();
    }

    fn clear(&mut self) {
        self.line.clear();
    }
}

/// Shows the containers that others wait for as one operation: the phase of the first of them, and
/// the bytes of all in that phase.
fn at_work(all: &[(&str, UnderWay)]) -> Option<UnderWay> {
    let is_at_work = |under_way: &UnderWay| !under_way.phase.starts_with(WAITS);
    let (_, first) = all
        .iter()
        .find(|(_, under_way)| is_at_work(under_way))
        .or_else(|| all.first())?;
    let same: Vec<_> = all
        .iter()
        .filter(|(_, under_way)| under_way.phase == first.phase)
        .collect();
    let sum = |of: fn(&UnderWay) -> Option<u64>| {
        let known: Vec<u64> = same.iter().filter_map(|(_, one)| of(one)).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let names: Vec<&str> = same.iter().map(|(name, _)| *name).collect();
    Some(UnderWay {
        phase: format!("{} of {}", first.phase, names.join(", ")),
        bytes_done: sum(|one| one.bytes_done),
        bytes_total: sum(|one| one.bytes_total),
        ..first.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_others_wait_for_are_told() {
        let under_way = |phase: &str, bytes: Option<u64>| UnderWay {
            phase: phase.to_owned(),
            bytes_done: bytes,
            bytes_total: bytes.map(|bytes| bytes * 2),
            ..UnderWay::default()
        };
        assert_eq!(at_work(&[]), None);
        let told = at_work(&[
            ("a", under_way("wait for images", None)),
            ("b", under_way("dump", Some(3))),
            ("c", under_way("dump", Some(4))),
        ]);
        let told = told.unwrap();
        assert_eq!(told.phase, "dump of b, c");
        assert_eq!((told.bytes_done, told.bytes_total), (Some(7), Some(14)));
        let waiting = [("a", under_way("wait for lock", None))];
        assert_eq!(at_work(&waiting).unwrap().phase, "wait for lock of a");
    }
}
