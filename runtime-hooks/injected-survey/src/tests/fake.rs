//! A driver with two devices, and five allocations in 1 GiB of addresses.

use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::imported;
use crate::FUNCTIONS;
use crate::driver::{Location, Properties};

const MIB: u64 = 1 << 20;
pub(super) const SPACE: Range<u64> = Range {
    start: 0x7f00_0000_0000,
    end: 0x7f00_0000_0000 + 1024 * MIB,
};
/// Allocated by cuMemAlloc.
pub(super) const LARGE: u64 = SPACE.start + 2 * MIB;
/// Memory of another process, on GPU 1; GPU 0 may use it.
pub(super) const IMPORT: u64 = SPACE.start + 600 * MIB;
/// Memory on GPU 1, which alone may use it.
pub(super) const OTHERS: u64 = SPACE.start + 700 * MIB;
pub(super) const POOL: u64 = SPACE.start + 800 * MIB;
/// Host memory, of NUMA node 0.
pub(super) const HOST: u64 = SPACE.start + 900 * MIB;

/// Begin and length of each.
const ALL: [(u64, u64); 5] = [
    (LARGE, 512 * MIB),
    (IMPORT, 2 * MIB),
    (OTHERS, 4 * MIB),
    (POOL, 32 * MIB),
    (HOST, 2 * MIB),
];

#[derive(Default)]
struct World {
    /// The contexts of the thread, by their devices.
    stack: Vec<c_int>,
    /// From which device to which.
    peers: Vec<(c_int, c_int)>,
    handles: u32,
    contexts: u32,
    cannot_count: bool,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

/// One test at a time: functions without an argument have one world.
pub(super) fn with_driver(test: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let world = World {
        peers: vec![(0, 1)],
        ..World::default()
    };
    *lock() = Some(world);
    test();
    let left = lock().take().unwrap();
    assert_eq!(
        (left.handles, left.contexts, left.stack),
        (0, 0, Vec::new())
    );
}

fn lock() -> std::sync::MutexGuard<'static, Option<World>> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world<T>(work: impl FnOnce(&mut World) -> T) -> T {
    work(lock().as_mut().unwrap())
}

pub(super) fn peer_access() -> Vec<(c_int, c_int)> {
    world(|world| world.peers.clone())
}

pub(super) fn fail_to_count() {
    world(|world| world.cannot_count = true);
}

/// The addresses of all functions, in the order of their names.
pub(super) fn functions() -> [u64; FUNCTIONS.len()] {
    [
        retain_handle as *const () as u64,
        properties as *const () as u64,
        release_handle as *const () as u64,
        address_range as *const () as u64,
        attribute as *const () as u64,
        access as *const () as u64,
        pool_access as *const () as u64,
        device_count as *const () as u64,
        has_context as *const () as u64,
        retain_context as *const () as u64,
        release_context as *const () as u64,
        push as *const () as u64,
        pop as *const () as u64,
        enable as *const () as u64,
        disable as *const () as u64,
    ]
    .into_iter()
    .chain(imported::functions())
    .collect::<Vec<_>>()
    .try_into()
    .unwrap()
}

/// The device whose context is the thread's.
pub(super) fn current() -> Option<c_int> {
    world(|world| world.stack.last().copied())
}

fn at(address: u64) -> Option<(u64, u64)> {
    let mut all = ALL.into_iter();
    all.find(|(start, bytes)| (*start..start + bytes).contains(&address))
}

extern "C" fn retain_handle(handle: &mut u64, address: u64) -> c_int {
    if imported::is_here() {
        return imported::retain(handle, address);
    }
    match at(address) {
        Some((start @ (IMPORT | OTHERS | HOST), _)) => {
            *handle = start;
            world(|world| world.handles += 1);
            0
        }
        _ => 1,
    }
}

extern "C" fn properties(properties: &mut Properties, handle: u64) -> c_int {
    *properties = Properties {
        kind: 1,
        handle_types: c_int::from(handle == OTHERS),
        location: match handle {
            HOST => Location { kind: 3, id: 0 },
            _ => Location::of_device(1),
        },
        others: [0; 2],
    };
    0
}

extern "C" fn release_handle(handle: u64) -> c_int {
    if imported::is_here() {
        return imported::release(handle);
    }
    world(|world| world.handles -= 1);
    0
}

/// A context that may not use an allocation knows nothing of it.
extern "C" fn address_range(start: &mut u64, bytes: &mut u64, address: u64) -> c_int {
    let of = world(|world| world.stack.last().copied());
    match at(address) {
        Some((OTHERS, _)) if of != Some(1) => 1,
        Some((HOST, length)) => {
            (*start, *bytes) = (0, length);
            0
        }
        Some(found) => {
            (*start, *bytes) = found;
            0
        }
        None => 1,
    }
}

extern "C" fn attribute(value: &mut u64, attribute: c_int, address: u64) -> c_int {
    let start = at(address).map(|(start, _)| start);
    *value = match (attribute, start) {
        (2, _) => 2,
        (10, Some(LARGE)) => 1,
        (17, Some(POOL)) => 77,
        _ => 0,
    };
    0
}

extern "C" fn access(flags: &mut u64, location: &Location, address: u64) -> c_int {
    if imported::is_here() {
        return imported::access(flags, location, address);
    }
    let device = match at(address) {
        Some((IMPORT, _)) => 0,
        _ => 1,
    };
    *flags = if location.id == device { 3 } else { 0 };
    0
}

extern "C" fn pool_access(flags: &mut u32, _: u64, _: &Location) -> c_int {
    *flags = 3;
    0
}

extern "C" fn device_count(count: &mut c_int) -> c_int {
    *count = 3;
    if world(|world| world.cannot_count) {
        3
    } else {
        0
    }
}

extern "C" fn has_context(device: c_int, flags: &mut c_uint, active: &mut c_int) -> c_int {
    (*flags, *active) = (0, c_int::from(device < 2));
    0
}

/// The handle of a context is its device plus one.
extern "C" fn retain_context(context: &mut u64, device: c_int) -> c_int {
    *context = u64::try_from(device + 1).unwrap();
    world(|world| world.contexts += 1);
    0
}

extern "C" fn release_context(_: c_int) -> c_int {
    world(|world| world.contexts -= 1);
    0
}

fn device_of(context: u64) -> c_int {
    c_int::try_from(context).unwrap() - 1
}

extern "C" fn push(context: u64) -> c_int {
    world(|world| world.stack.push(device_of(context)));
    0
}

extern "C" fn pop(context: &mut u64) -> c_int {
    let popped = world(|world| world.stack.pop()).unwrap();
    *context = u64::try_from(popped + 1).unwrap();
    0
}

extern "C" fn enable(to: u64, _: c_uint) -> c_int {
    world(|world| {
        let pair = (*world.stack.last().unwrap(), device_of(to));
        if world.peers.contains(&pair) {
            return 704;
        }
        world.peers.push(pair);
        0
    })
}

extern "C" fn disable(to: u64) -> c_int {
    world(|world| {
        let pair = (*world.stack.last().unwrap(), device_of(to));
        world.peers.retain(|peer| *peer != pair);
    });
    0
}
