//! Finds the tasks whose memory is taken, and why memory of others is not. A task that is odd is
//! left to CRIU, alone.

use stasis_linux::procfs::descriptors;
use stasis_memory_store::{DumpRequest, Report, Take};

use crate::dump::select::{Wanted, select};
use crate::dump::source::Source;
use crate::error::Error;
use crate::tasks::page_size;
use crate::tasks::smaps::Mapping;
use crate::tasks::tree::Task;
use stasis_linux::pagemap::Pagemap;

/// The mapping of io_setup(2), which each process with asynchronous I/O has.
const AIO: &[u8] = b"/[aio]";
/// A ring of io_uring_setup(2), as a descriptor and as a mapping.
const IO_URING: &[u8] = b"anon_inode:[io_uring]";

/// # Errors
/// The mappings of a task cannot be seen, or it lacks memory since an earlier checkpoint.
pub(crate) fn find(
    tasks: &[Task],
    request: &DumpRequest,
    report: &mut Report,
) -> Result<Vec<Source>, Error> {
    let mappings: Vec<_> = tasks.iter().map(Task::mappings).collect::<Result<_, _>>()?;
    for (task, mappings) in tasks.iter().zip(&mappings) {
        refuse_missing(task, mappings)?;
    }
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
        let (bytes, unwanted) = wanted.bytes(&mappings[number]);
        heaps += unwanted;
        if bytes == 0 {
            continue;
        }
        match look(task, &mappings[number], &others, wanted) {
            Ok((source, left)) => {
                report.left_to_criu.extend(left);
                sources.push(source);
            }
            Err(error) => report.left_to_criu.push(left(task, &error)),
        }
    }
    sources.retain(|source| !source.areas.is_empty());
    if heaps > 0 {
        report.left_to_criu.push(format!(
            "{} MiB that are no GPU contents (bulk_memory.heaps is false)",
            heaps >> 20
        ));
    }
    Ok(sources)
}

/// A line for the report: why a task is left to CRIU.
pub(crate) fn left(task: &Task, why: &Error) -> String {
    format!("process {} of the container: {why}", task.pid_inside)
}

/// What is taken of a task, and why some of it is not.
fn look(
    task: &Task,
    mappings: &[Mapping],
    others: &[&[Mapping]],
    wanted: Wanted<'_>,
) -> Result<(Source, Vec<String>), Error> {
    page_size::check()?;
    if has_io_under_way(task, mappings)? {
        return Err(Error::AsynchronousIo);
    }
    let pagemap = Pagemap::open(task.pid).map_err(Error::task("see the pages of", task.pid))?;
    let choice = select(task, mappings, others, &pagemap, wanted)?;
    let source = Source {
        task: task.clone(),
        areas: choice.areas,
        pagemap,
    };
    Ok((source, choice.left))
}

/// CRIU refuses a task with a userfaultfd of its own, so such pages are missing since an earlier
/// checkpoint of ours failed.
fn refuse_missing(task: &Task, mappings: &[Mapping]) -> Result<(), Error> {
    match mappings.iter().find(|mapping| mapping.has(*b"um")) {
        Some(missing) => Err(Error::Missing {
            pid: task.pid_inside,
            start: missing.start,
        }),
        None => Ok(()),
    }
}

/// Whether the kernel may write to a task's memory while the task is stopped: it writes to the
/// pages that were there when a request was made, and these would be exchanged.
fn has_io_under_way(task: &Task, mappings: &[Mapping]) -> Result<bool, Error> {
    let is_one = |name: &[u8]| name.starts_with(AIO) || name.starts_with(IO_URING);
    if mappings.iter().any(|mapping| is_one(&mapping.name)) {
        return Ok(true);
    }
    let mut open = descriptors(task.pid).map_err(Error::task("see the files of", task.pid))?;
    Ok(open.any(|descriptor| is_one(descriptor.target())))
}

/// Where memory of a task is taken; `None`: everywhere.
fn ranges_of<'t>(task: &Task, take: &'t Take) -> Option<&'t [(u64, u64)]> {
    match take {
        Take::Heaps => None,
        Take::Nothing => Some(&[]),
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
        assert_eq!(ranges_of(&task(7), &Take::Nothing), Some(&[][..]));
    }
}
