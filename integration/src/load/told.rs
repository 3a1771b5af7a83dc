//! The events that came. containerd keeps none for a subscriber that comes later, so of processes
//! that end while it is away only this is known: their events must not come twice.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::containers::Containers;
use super::exec::{Exec, Phase};
use crate::client::containerd::{Containerd, Events, Told as Event};

/// The events of the first containerd, and of the second.
#[derive(Debug)]
pub(super) struct Told {
    first: Events,
    second: Option<Events>,
}

type Counts = HashMap<Event, usize>;

impl Told {
    pub(super) fn listen(client: &Containerd) -> Result<Self> {
        Ok(Self {
            first: client.events()?,
            second: None,
        })
    }

    pub(super) fn listen_again(&mut self, client: &Containerd) -> Result<()> {
        self.second = Some(client.events()?);
        Ok(())
    }

    /// Returns the events that did not come, or more than once.
    pub(super) fn faults(
        mut self,
        containers: &Containers<'_>,
        ended: &[Exec],
    ) -> Result<Vec<String>> {
        let end = |id: String| (id.clone(), format!("exit {id} 137"));
        let ends = containers.ids().map(end).collect();
        // The last containerd has seen the ends.
        let (first, last) = match &mut self.second {
            Some(second) => (
                self.first.counts_until_the_end()?,
                second.counts_until(ends)?,
            ),
            None => (Counts::new(), self.first.counts_until(ends)?),
        };
        let last_phase = match self.second {
            Some(_) => Phase::Second,
            None => Phase::First,
        };
        let times = |counts: &Counts, event: &Event| counts.get(event).copied().unwrap_or(0);
        let mut faults = Vec::new();
        let mut missed = 0;
        for one in ended {
            let event = (
                one.container.clone(),
                format!("exit {} {}", one.name, one.status),
            );
            let times = (times(&first, &event), times(&last, &event));
            let right = if one.seen_by == last_phase {
                times == (0, 1)
            } else {
                times.0 + times.1 <= 1
            };
            missed += usize::from(times == (0, 0));
            if one.given != Some(one.status) {
                faults.push(format!("a wait for {event:?} gave {:?}", one.given));
            }
            if !right {
                faults.push(format!(
                    "{event:?} was told {times:?} times by the two containerds"
                ));
            }
        }
        // The missing events were on their way to this subscriber when containerd was killed.
        ensure!(
            missed < ended.len() / 4,
            "{missed} of {} not told",
            ended.len()
        );
        for id in containers.ids() {
            let event = end(id);
            let times = times(&last, &event);
            if times != 1 {
                faults.push(format!("{event:?} was told {times} times"));
            }
        }
        Ok(faults)
    }
}
