//! Which contexts have peer access to which.

use core::ffi::c_int;

use crate::board::DEVICES;
use crate::contexts::Contexts;
use crate::driver::{Driver, Result};

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const ALREADY: c_int = 704;

/// Returns for the context of each device, by bits, the devices that it has peer access to.
///
/// No call reports it: enabling peer access that exists fails (`ALREADY`), and changes nothing.
/// Access that did not exist is disabled again. So a program that needs it is never without.
pub(crate) fn peers(driver: Driver<'_>, contexts: &Contexts) -> Result<[u64; DEVICES]> {
    let mut found = [0; DEVICES];
    for ((device, context), peers) in with_places(contexts, &mut found) {
        driver.push(context)?;
        let asked = of_one(driver, contexts, device);
        driver.pop()?;
        *peers = asked?;
    }
    Ok(found)
}

fn with_places<'a>(
    contexts: &'a Contexts,
    found: &'a mut [u64; DEVICES],
) -> impl Iterator<Item = ((c_int, u64), &'a mut u64)> {
    let places = (0..).zip(found);
    places.filter_map(|(device, place)| {
        let context = contexts.each().find(|(other, _)| *other == device)?;
        Some((context, place))
    })
}

/// Asks for the thread's context.
fn of_one(driver: Driver<'_>, contexts: &Contexts, device: c_int) -> Result<u64> {
    let mut peers = 0;
    for (other, context) in contexts.each().filter(|(other, _)| *other != device) {
        match driver.enable_peer_access(context) {
            Ok(()) => driver.disable_peer_access(context)?,
            Err(failed) if failed.result == ALREADY => peers |= 1 << other,
            // Devices that cannot, or memory that cannot be reached so: no peer access.
            Err(_) => {}
        }
    }
    Ok(peers)
}
