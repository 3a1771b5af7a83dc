//! One process per source that shares its memory (CLONE_VM) and frees it with madvise(2), and the
//! userfaultfd that it makes for that memory.

use std::io;

use stasis_remote_call::Proxy;

use crate::dump::find::left;
use crate::dump::source::Source;
use crate::error::Error;
use crate::uffd::Userfaultfd;

/// In the order of the sources; ended when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryProxies(Vec<Proxy>);

/// Sources that can be emptied, in one order.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) sources: Vec<Source>,
    pub(crate) proxies: MemoryProxies,
    pub(crate) memory: Vec<Userfaultfd>,
}

impl Reached {
    /// Reaches what can be reached. The others are not changed and left to CRIU: a 32-bit program
    /// or one without a vDSO, one that may have no more processes or files, one that may have no
    /// userfaultfd. `why` gets a line for each.
    pub(crate) fn of(found: Vec<Source>, why: &mut Vec<String>) -> Self {
        let mut reached = Self {
            sources: Vec::new(),
            proxies: MemoryProxies(Vec::new()),
            memory: Vec::new(),
        };
        for source in found {
            let pid = source.task.pid;
            let reach = || -> io::Result<_> {
                let mut proxy = Proxy::of_traced(pid)?;
                let memory = Userfaultfd::of(&mut proxy)?;
                Ok((proxy, memory))
            };
            match reach() {
                Ok((proxy, memory)) => {
                    reached.sources.push(source);
                    reached.proxies.0.push(proxy);
                    reached.memory.push(memory);
                }
                Err(error) => {
                    let error = Error::task("get at the memory of", pid)(error);
                    why.push(left(&source.task, &error));
                }
            }
        }
        reached
    }
}

impl MemoryProxies {
    pub(crate) fn all(&mut self) -> &mut [Proxy] {
        &mut self.0
    }

    /// Ends all; the first failure of many.
    pub(crate) fn end_all(&mut self) -> Result<(), Error> {
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
