//! The calls that the shim has taken and not answered yet: it ends when there are none.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use containerd_shim::TtrpcContext;
use containerd_shim::protos::ttrpc::Result as TtrpcResult;
use containerd_shim::protos::ttrpc::r#async::MethodHandler;
use containerd_shim::protos::ttrpc::{Request, Response};
use tokio::sync::watch;

/// The methods of a service, by their names.
type Methods = HashMap<String, Box<dyn MethodHandler + Send + Sync>>;

/// The one that waits for the others.
const SHUTDOWN: &str = "Shutdown";

/// How many calls are being answered.
#[derive(Debug, Clone)]
pub(crate) struct Calls(Arc<watch::Sender<usize>>);

impl Calls {
    /// None yet.
    pub(crate) fn none() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// The same methods; their calls count until they are answered, or their caller has gone.
    pub(crate) fn counted(&self, methods: Methods) -> Methods {
        let counted = |(name, method)| -> (String, Box<dyn MethodHandler + Send + Sync>) {
            if name == SHUTDOWN {
                return (name, method);
            }
            let calls = self.clone();
            (name, Box::new(Counted { method, calls }))
        };
        methods.into_iter().map(counted).collect()
    }

    /// Waits until no call but Shutdown is being answered.
    pub(crate) async fn answered(&self) {
        // Its sender is `self`.
        let _ = self.0.subscribe().wait_for(|calls| *calls == 0).await;
    }

    fn begin(&self) -> Call {
        self.0.send_modify(|calls| *calls += 1);
        Call(self.clone())
    }
}

/// A call that is being answered. ttrpc drops its handler at the caller's deadline, and when the
/// connection is lost.
struct Call(Calls);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.0.send_modify(|calls| *calls -= 1);
    }
}

struct Counted {
    method: Box<dyn MethodHandler + Send + Sync>,
    calls: Calls,
}

#[async_trait]
impl MethodHandler for Counted {
    async fn handler(&self, context: TtrpcContext, request: Request) -> TtrpcResult<Response> {
        let _call = self.calls.begin();
        self.method.handler(context, request).await
    }
}
