//! Imports are identified, given up and mapped again.

mod killed;
mod members;

use std::os::fd::AsFd;

use stasis_injected_survey::{VisitState, What};

use crate::imports::{
    GpuAddress, Import, Members, Visited, drop_imports, export, identify, import, rehearse,
};
use crate::survey::{Asked, VisitError, request};
use members::{BYTES, Pair};

/// A place that device 0 may use.
fn place((address, _): &Place) -> GpuAddress {
    GpuAddress {
        address: *address,
        device: 0,
    }
}

fn import_at((address, handle): &Place) -> Import {
    Import {
        address: *address,
        bytes: BYTES,
        access: 1,
        references: 1,
        handle: *handle,
    }
}

/// More than the descriptors of one request.
const COUNT: usize = 70;

/// Address and handle of an allocation.
type Place = (u64, u64);

/// A visited process, and its allocations.
type Visit<'p> = (Visited<'p>, &'p [Place]);

/// Finds the owner of each place of the importer, by asking both.
fn owners([owner, importer]: [Visit<'_>; 2]) -> Result<Vec<Option<(usize, usize)>>, VisitError> {
    let places = |(_, all): Visit<'_>| all.iter().map(place).collect();
    let own = Members {
        own: places(owner),
        candidates: Vec::new(),
    };
    let others = Members {
        own: Vec::new(),
        candidates: places(importer),
    };
    Ok(identify(&[(owner.0, own), (importer.0, others)])?.remove(1))
}

/// The importer maps the owner's memory in the reverse order.
fn reversed() -> Vec<Option<(usize, usize)>> {
    (0..COUNT).rev().map(|index| Some((0, index))).collect()
}

/// Gives up all that the importer has.
fn give_up([_, (importer, places)]: [Visit<'_>; 2]) -> Result<Vec<u64>, VisitError> {
    let imports: Vec<Import> = places.iter().map(import_at).collect();
    let mut references = Vec::new();
    drop_imports(&importer, &imports, &mut references).map(|()| references)
}

/// Maps it again.
fn map_again([(owner, own), (importer, places)]: [Visit<'_>; 2]) -> Result<(), VisitError> {
    let own: Vec<u64> = own.iter().rev().map(|(address, _)| *address).collect();
    let files = export(&owner, &own)?;
    let files = files.iter().map(AsFd::as_fd);
    let imports: Vec<_> = places.iter().map(import_at).zip(files).collect();
    rehearse(&importer, &imports)?;
    import(&importer, &imports)
}

#[test]
fn each_import_is_known_and_no_byte_is_another() {
    let mut pair = Pair::start();
    for _ in 0..3 {
        pair.prepare();
        assert_eq!(owners(pair.visits()).unwrap(), reversed());
        pair.is_as_it_was();
    }
}

#[test]
fn what_was_given_up_comes_back_with_its_references() {
    let mut pair = Pair::start();
    pair.prepare();
    assert_eq!(give_up(pair.visits()).unwrap(), [1; COUNT]);
    assert_eq!(give_up(pair.visits()).unwrap(), [0; COUNT]);
    for _ in 0..2 {
        map_again(pair.visits()).unwrap();
    }
    assert_eq!(give_up(pair.visits()).unwrap(), [1; COUNT]);
    map_again(pair.visits()).unwrap();
    pair.is_as_it_was();
}

/// The program has released its handle of the others, so their counts must not be guessed.
#[test]
fn those_before_one_that_is_not_given_up_are_known() {
    let mut pair = Pair::start();
    pair.prepare();
    let [_, (importer, places)] = pair.visits();
    let mut imports: Vec<Import> = places.iter().map(import_at).collect();
    // No whole mapping: libcuda refuses to unmap it.
    imports[COUNT - 1].bytes /= 2;
    let mut references = Vec::new();
    let failed = drop_imports(&importer, &imports, &mut references).unwrap_err();
    assert!(matches!(failed, VisitError::Call { .. }), "{failed}");
    assert_eq!(references, [1; COUNT - 1]);
    map_again(pair.visits()).unwrap();
    pair.is_as_it_was();
}

/// A child has the slots of its parent as they are then.
#[test]
fn a_child_that_is_forked_meanwhile_allocates_as_ever() {
    let mut pair = Pair::start();
    pair.prepare();
    let [_, (Visited { process, record }, _)] = pair.visits();
    let (process, record) = (process.clone(), record.clone());
    let asked = Asked::new(&process, &record, &request(&record, What::Import, &[])).unwrap();
    asked.until(VisitState::Holding).unwrap();
    assert!(pair.can_child_import());
    drop(asked);
    pair.is_as_it_was();
}

#[test]
fn a_call_that_fails_is_named_with_its_item() {
    let mut pair = Pair::start();
    pair.prepare();
    let [(owner, own), _] = pair.visits();
    let error = export(&owner, &[own[0].0, 1]).unwrap_err();
    let VisitError::Call { call, result, item } = error else {
        panic!("{error}");
    };
    assert_eq!((call, result, item), ("cuMemRetainAllocationHandle", 1, 1));
    pair.is_as_it_was();
}
