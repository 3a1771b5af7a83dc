//! Finds whose memory it is: tags are written to memory of the process, and read in the others.
//!
//! Two handles of the same memory cannot be compared, but its contents are the same. The processes
//! are locked, so none of them uses the memory while it has a tag. A process that nobody asks may
//! have it, too: what it writes meanwhile stays.

use crate::board::{Item, VisitState};
use crate::contexts::Contexts;
use crate::driver::{Other, Result};
use crate::errand::{Errand, Waited};

/// How often the code tries to put contents back.
const TRIES: usize = 4;

/// Tags, waits until all processes have, reads, waits until all have, and puts contents back,
/// whatever has failed or not come.
pub(crate) fn identify(errand: Errand<'_>, contexts: &Contexts) -> Result<()> {
    let mut tagged = 0;
    let worked = tag_all(errand, contexts, &mut tagged)
        .and_then(|()| read_what_others_have_tagged(errand, contexts));
    // A tag that is left is the worse failure.
    put_back(errand, contexts, tagged).and(worked)
}

fn is_own(item: &Item) -> bool {
    item.bytes != 0
}

/// Writes all tags. `tagged` is the number behind the last item that may have its tag.
fn tag_all(errand: Errand<'_>, contexts: &Contexts, tagged: &mut usize) -> Result<()> {
    let driver = errand.driver;
    for (index, item) in errand.items().filter(|(_, item)| is_own(item)) {
        let tag = contexts.with_current(driver, item.device, || {
            errand.set_value(index, driver.copied_from(item.address)?);
            // A copy that fails may have been made, too.
            *tagged = index + 1;
            driver.copy_to(item.address, [item.first, item.second])
        });
        errand.of(index, tag)?;
    }
    Ok(())
}

fn read_what_others_have_tagged(errand: Errand<'_>, contexts: &Contexts) -> Result<()> {
    if errand.wait(VisitState::Holding, 1) == Waited::Abandoned {
        return Ok(());
    }
    let driver = errand.driver;
    for (index, item) in errand.items().filter(|(_, item)| !is_own(item)) {
        let read = contexts.with_current(driver, item.device, || driver.copied_from(item.address));
        errand.set_value(index, errand.of(index, read)?);
    }
    errand.wait(VisitState::Read, 2);
    Ok(())
}

/// Puts contents back, the last first: memory mapped twice had the first tag at the second copy.
fn put_back(errand: Errand<'_>, contexts: &Contexts, tagged: usize) -> Result<()> {
    let driver = errand.driver;
    let own = errand.items().filter(|(_, item)| is_own(item));
    let mut all = Ok(());
    for (index, item) in own.rev().filter(|(index, _)| *index < tagged) {
        let before = errand.value(index);
        let copy = || {
            contexts.with_current(driver, item.device, || {
                let now = driver.copied_from(item.address)?;
                let words = without_tag(now, [item.first, item.second], before);
                driver.copy_to(item.address, words)
            })
        };
        let mut copied = copy();
        let mut tries = 1;
        while copied.is_err() && tries < TRIES {
            copied = copy();
            tries += 1;
        }
        let copied = copied.map_err(|failed| Other::PutBack.failed(failed.result));
        all = all.and(errand.of(index, copied));
    }
    all
}

/// Returns what is there, with the contents of before where the tag still is. Flags of NCCL and of
/// symmetric memory have 4 or 8 bytes.
fn without_tag(now: [u64; 2], tag: [u64; 2], before: [u64; 2]) -> [u64; 2] {
    const HALVES: [u64; 2] = [0xffff_ffff, 0xffff_ffff << 32];
    let word = |(now, tag, before): (u64, u64, u64)| {
        HALVES.iter().fold(0, |word, half| {
            let from = match now & half == tag & half {
                true => before,
                false => now,
            };
            word | from & half
        })
    };
    let [now_first, now_second] = now;
    let [tag_first, tag_second] = tag;
    let [first, second] = before;
    [
        word((now_first, tag_first, first)),
        word((now_second, tag_second, second)),
    ]
}
