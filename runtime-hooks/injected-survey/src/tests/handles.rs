//! The handles of imports that are mapped again.

use super::fake::with_driver;
use super::imported::{Mapped, World, with_world};
use super::imports::{
    Host, ONE, OTHER, file_of, import_of, imports, rehearsal_of, send, with_host,
};
use super::*;

impl World {
    /// The handle of what is mapped at an address.
    pub(super) fn handle(&self, address: u64) -> u64 {
        self.mapped[&address].handle
    }

    /// References beside the mapping at each address.
    pub(super) fn references(&self) -> Vec<(u64, u64)> {
        let each = self.mapped.iter();
        each.map(|(address, mapped)| (*address, self.references[&mapped.handle]))
            .collect()
    }
}

#[test]
fn an_import_is_mapped_with_its_access_and_references_and_may_be_again() {
    with_driver(|| {
        let items = [import_of(ONE, 0), import_of(OTHER, 3), import_of(0x3000, 1)];
        let left = with_world(World::default(), || {
            let files = [&file_of(1), &file_of(2), &file_of(3)];
            for _ in 0..2 {
                imports(&items, &files, |answer| assert_eq!(answer.failed, None));
            }
        });
        assert_eq!(left.references(), [(ONE, 0), (OTHER, 3), (0x3000, 1)]);
        let all = items.map(
            |Item {
                 address, handle, ..
             }| {
                let mapped = Mapped {
                    handle,
                    bytes: 4096,
                    access: 0b11,
                };
                (address, mapped)
            },
        );
        assert_eq!(left.mapped, all.into());
    });
}

#[test]
fn a_driver_that_allocates_handles_in_another_way_is_found_by_the_rehearsal() {
    with_driver(|| {
        let world = World {
            is_other_build: true,
            ..World::default().with(ONE, 1, 1)
        };
        let left = with_world(world, || {
            imports(&[rehearsal_of(ONE)], &[&file_of(1)], |answer| {
                let name = answer.failed.and_then(|(call, _)| name_of(call));
                assert_eq!(name, Some("cuMemRelease"));
            });
        });
        assert_eq!(left.references(), [(ONE, 1)]);
        assert_eq!(left.reserved.len(), 0);
    });
}

/// Only the checkpoint thread gets what was kept.
#[test]
fn another_thread_that_comes_to_the_hooks_gets_what_it_asks_for() {
    with_driver(|| {
        let import = import_of(ONE, 1);
        let left = with_world(World::default(), || {
            let file = file_of(1);
            let host = |host: &Host<'_>| {
                host.until(VisitState::Holding);
                heap::with_board(host.0, || {
                    let made = heap::new_handle();
                    assert!(heap::is_live(made) && made != import.handle);
                    heap::free_handle(made);
                    assert!(!heap::is_live(made));
                });
                send(host, &[&file]);
            };
            with_host(What::Import, &[import], host, |answer| {
                assert_eq!(answer.failed, None);
            });
        });
        assert_eq!(left.handle(ONE), import.handle);
    });
}
