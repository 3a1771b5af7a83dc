//! The part of the driver that maps memory and copies. Several mappings may be of one place in
//! memory.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::{self, File};
use std::os::fd::IntoRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{fake, heap};
use crate::driver::{Access, Location};
use crate::{FUNCTIONS, name_of};

const RELAXED: c_int = 2;
/// Where addresses are reserved.
const RESERVED: u64 = 0x7e00_0000_0000;

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) handle: u64,
    pub(super) bytes: u64,
    /// By bits.
    pub(super) access: u64,
}

#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(super) struct World {
    pub(super) mapped: BTreeMap<u64, Mapped>,
    /// References beside the mappings, by handles.
    pub(super) references: BTreeMap<u64, u64>,
    /// The places of handles.
    pub(super) places: BTreeMap<u64, u64>,
    /// Contents of places.
    pub(super) contents: BTreeMap<u64, [u64; 2]>,
    /// Copies to places: no process sees them before a synchronization.
    pub(super) on_their_way: Vec<(u64, [u64; 2])>,
    pub(super) reserved: BTreeMap<u64, u64>,
    /// Every copy to an address.
    pub(super) copies: Vec<(u64, [u64; 2])>,
    pub(super) is_read_only: bool,
    /// Which call fails, after how many, and how often.
    pub(super) failing: Option<(&'static str, usize, usize)>,
    pub(super) mode: c_int,
    /// Handles are neither allocated nor freed through the slots.
    pub(super) is_other_build: bool,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<World>> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test with this world; returns the world afterwards.
pub(super) fn with_world(world: World, test: impl FnOnce()) -> World {
    *lock() = Some(world);
    test();
    let left = lock().take().unwrap();
    assert_eq!(left.mode, 0, "capture mode");
    assert_eq!(left.on_their_way, []);
    left
}

pub(super) fn world<T>(work: impl FnOnce(&mut World) -> T) -> T {
    work(lock().as_mut().unwrap())
}

impl World {
    /// Adds a place of the process's own, or of another's.
    pub(super) fn with(mut self, address: u64, place: u64, references: u64) -> Self {
        let mapped = Mapped {
            handle: heap::new_handle(),
            bytes: 4096,
            access: 0b10,
        };
        self.mapped.insert(address, mapped);
        self.places.insert(mapped.handle, place);
        self.references.insert(mapped.handle, references);
        self.contents.insert(place, [place, place + 1]);
        self
    }

    fn place(&self, address: u64) -> Option<u64> {
        let mapped = self.mapped.get(&address)?;
        self.places.get(&mapped.handle).copied()
    }

    /// Frees a handle that nothing refers to.
    fn free_unused(&mut self, handle: u64) {
        let is_mapped = self.mapped.values().any(|mapped| mapped.handle == handle);
        if !is_mapped && self.references.get(&handle) == Some(&0) {
            self.references.remove(&handle);
            self.places.remove(&handle);
            if !self.is_other_build {
                heap::free_handle(handle);
            }
        }
    }

    /// Whether this call fails.
    fn fails(&mut self, name: &str) -> bool {
        assert!(FUNCTIONS.contains(&name), "{name}");
        let Some((failing, after, often)) = &mut self.failing else {
            return false;
        };
        if *failing != name {
            return false;
        }
        if *after > 0 {
            *after -= 1;
            return false;
        }
        *often = often.saturating_sub(1);
        if *often == 0 {
            self.failing = None;
        }
        true
    }
}

pub(super) fn is_here() -> bool {
    lock().is_some()
}

/// The functions behind the ones that a survey calls.
pub(super) fn functions() -> [u64; 11] {
    assert_eq!(name_of(15), Some("cuThreadExchangeStreamCaptureMode"));
    [
        exchange as *const () as u64,
        copy_from as *const () as u64,
        copy_to as *const () as u64,
        reserve as *const () as u64,
        give_back as *const () as u64,
        map as *const () as u64,
        unmap as *const () as u64,
        set_access as *const () as u64,
        export as *const () as u64,
        import as *const () as u64,
        synchronize as *const () as u64,
    ]
}

extern "C" fn exchange(mode: &mut c_int) -> c_int {
    world(|world| std::mem::swap(mode, &mut world.mode));
    0
}

/// A call that needs a context, and a capture mode that spoils no capture.
fn call(name: &str, work: impl FnOnce(&mut World) -> Option<()>) -> c_int {
    assert!(fake::current().is_some(), "{name}");
    world(|world| {
        assert_eq!(world.mode, RELAXED, "{name}");
        match world.fails(name) {
            true => 999,
            false => i32::from(work(world).is_none()),
        }
    })
}

extern "C" fn copy_from(to: &mut [u64; 2], address: u64, bytes: usize) -> c_int {
    assert_eq!((bytes, fake::current()), (16, Some(1)));
    call("cuMemcpyDtoH_v2", |world| {
        *to = *world.contents.get(&world.place(address)?)?;
        Some(())
    })
}

extern "C" fn copy_to(address: u64, from: &[u64; 2], bytes: usize) -> c_int {
    assert_eq!((bytes, fake::current()), (16, Some(1)));
    call("cuMemcpyHtoD_v2", |world| {
        let place = world.place(address)?;
        world.on_their_way.push((place, *from));
        world.copies.push((address, *from));
        Some(())
    })
}

extern "C" fn synchronize() -> c_int {
    call("cuCtxSynchronize", |world| {
        let arrived = std::mem::take(&mut world.on_their_way);
        world.contents.extend(arrived);
        Some(())
    })
}

extern "C" fn reserve(address: &mut u64, bytes: u64, _: usize, _: u64, _: u64) -> c_int {
    call("cuMemAddressReserve", |world| {
        *address = RESERVED;
        world.reserved.insert(RESERVED, bytes);
        Some(())
    })
}

extern "C" fn give_back(address: u64, bytes: u64) -> c_int {
    call("cuMemAddressFree", |world| {
        assert!(!world.mapped.contains_key(&address));
        (world.reserved.remove(&address)? == bytes).then_some(())
    })
}

extern "C" fn map(address: u64, bytes: u64, offset: usize, handle: u64, flags: u64) -> c_int {
    assert_eq!((offset, flags), (0, 0));
    call("cuMemMap", |world| {
        assert!(world.references[&handle] > 0);
        let mapped = Mapped {
            handle,
            bytes,
            access: 0,
        };
        world.mapped.insert(address, mapped).is_none().then_some(())
    })
}

extern "C" fn unmap(address: u64, bytes: u64) -> c_int {
    call("cuMemUnmap", |world| {
        let mapped = *world.mapped.get(&address)?;
        (mapped.bytes == bytes).then(|| {
            world.mapped.remove(&address);
            world.free_unused(mapped.handle);
        })
    })
}

extern "C" fn set_access(address: u64, bytes: u64, all: *const Access, count: usize) -> c_int {
    call("cuMemSetAccess", |world| {
        let mapped = world.mapped.get_mut(&address)?;
        assert_eq!(mapped.bytes, bytes);
        for index in 0..count {
            // SAFETY: `count` of them exist.
            let Access { location, flags } = unsafe { all.add(index).read() };
            assert_eq!((location.kind, flags), (1, 3));
            mapped.access |= 1 << location.id;
        }
        Some(())
    })
}

extern "C" fn export(file: &mut c_int, handle: u64, kind: c_int, flags: u64) -> c_int {
    assert_eq!((kind, flags), (1, 0));
    call("cuMemExportToShareableHandle", |world| {
        assert!(world.references[&handle] > 0);
        *file = File::open("/dev/null").unwrap().into_raw_fd();
        Some(())
    })
}

/// The contents of the file name the place.
extern "C" fn import(handle: &mut u64, file: u64, kind: c_int) -> c_int {
    assert_eq!(kind, 1);
    call("cuMemImportFromShareableHandle", |world| {
        let place = fs::read_to_string(format!("/proc/self/fd/{file}")).ok()?;
        let place: u64 = place.trim().parse().ok()?;
        *handle = match world.is_other_build {
            true => heap::elsewhere(),
            false => heap::new_handle(),
        };
        world.references.insert(*handle, 1);
        world.places.insert(*handle, place);
        Some(())
    })
}

pub(super) fn retain(handle: &mut u64, address: u64) -> c_int {
    call("cuMemRetainAllocationHandle", |world| {
        *handle = world.mapped.get(&address)?.handle;
        *world.references.entry(*handle).or_default() += 1;
        Some(())
    })
}

pub(super) fn release(handle: u64) -> c_int {
    call("cuMemRelease", |world| {
        let references = world.references.get_mut(&handle)?;
        *references = references.checked_sub(1)?;
        world.free_unused(handle);
        Some(())
    })
}

pub(super) fn access(flags: &mut u64, location: &Location, address: u64) -> c_int {
    call("cuMemGetAccess", |world| {
        let has = world.mapped.get(&address)?.access >> location.id & 1 != 0;
        *flags = match (has, world.is_read_only) {
            (true, true) => 1,
            (true, false) => 3,
            (false, _) => 0,
        };
        Some(())
    })
}
