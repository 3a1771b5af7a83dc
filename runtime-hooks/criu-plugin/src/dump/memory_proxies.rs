//! One process per source that shares its memory (CLONE_VM) and frees it with madvise(2).

use stasis_remote_call::Proxy;

use crate::dump::source::Source;
use crate::error::Error;

/// In the order of the sources; ended when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryProxies(Vec<Proxy>);

impl MemoryProxies {
    pub(crate) fn of(sources: &[Source]) -> Result<Self, Error> {
        let mut proxies = Self(Vec::new());
        for source in sources {
            let pid = source.task.pid;
            let proxy = Proxy::of_traced(pid).map_err(Error::task("get at the memory of", pid))?;
            proxies.0.push(proxy);
        }
        Ok(proxies)
    }

    pub(crate) fn all(&mut self) -> &mut [Proxy] {
        &mut self.0
    }

    /// Ends all; the first failure of many.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.end_all()
    }

    fn end_all(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        for proxy in self.0.drain(..) {
            let pid = proxy.pid();
            let ended = proxy.end().map_err(Error::task("end the helper", pid));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for MemoryProxies {
    fn drop(&mut self) {
        let _ = self.end_all();
    }
}
