//! Finds the tasks whose memory is taken, and why memory of others is not.

use stasis_memory_store::{DumpRequest, Report, Take};

use crate::dump::select::{Wanted, select};
use crate::dump::source::Source;
use crate::error::Error;
use crate::tasks::tree::Task;

/// # Errors
/// A task cannot be looked at, or lacks memory since an earlier checkpoint.
pub(crate) fn find(
    tasks: &[Task],
    request: &DumpRequest,
    report: &mut Report,
) -> Result<Vec<Source>, Error> {
    let mappings: Vec<_> = tasks.iter().map(Task::mappings).collect::<Result<_, _>>()?;
    let (mut sources, mut heaps) = (Vec::new(), 0);
    for (number, task) in tasks.iter().enumerate() {
        let others: Vec<_> = (0..tasks.len())
            .filter(|other| *other != number)
            .map(|other| mappings[other].as_slice())
            .collect();
        let wanted = Wanted {
            ranges: ranges_of(task, &request.take),
            minimum: request.minimum_mib << 20,
        };
        let choice = select(task, &mappings[number], &others, wanted)?;
        report.left_to_criu.extend(choice.left);
        heaps += choice.heaps;
        if !choice.areas.is_empty() {
            sources.push(Source {
                task: task.clone(),
                areas: choice.areas,
            });
        }
    }
    if heaps > 0 {
        report.left_to_criu.push(format!(
            "{} MiB that are no GPU contents (bulk_memory.heaps is false)",
            heaps >> 20
        ));
    }
    Ok(sources)
}

/// Where memory of a task is taken; `None`: everywhere.
fn ranges_of<'t>(task: &Task, take: &'t Take) -> Option<&'t [(u64, u64)]> {
    match take {
        Take::Heaps => None,
        Take::GpuContents(contents) => {
            let mut contents = contents.iter();
            let own = contents.find(|own| own.pid == task.pid_inside);
            Some(own.map_or(&[], |own| &own.ranges))
        }
    }
}

#[cfg(test)]
mod tests {
    use stasis_memory_store::GpuContents;

    use super::*;

    #[test]
    fn each_process_has_its_own_gpu_contents() {
        let task = |pid_inside| Task {
            pid: 1000 + pid_inside,
            pid_inside,
        };
        let contents = |pid, range| GpuContents {
            pid,
            ranges: vec![range],
        };
        let take = Take::GpuContents(vec![contents(1, (4, 8)), contents(7, (16, 32))]);
        assert_eq!(ranges_of(&task(7), &take), Some(&[(16, 32)][..]));
        assert_eq!(ranges_of(&task(8), &take), Some(&[][..]));
        assert_eq!(ranges_of(&task(7), &Take::Heaps), None);
    }
}
