//! The ttrpc status codes of errors. containerd and its clients act on the code, so each error has
//! the code that containerd's own shim gives it.

use containerd_shim::protos::ttrpc::{self, Code};

use crate::bundle::error::BundleError;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::OptionsError;
use crate::stdio::error::StdioError;
use crate::task::error::TaskError;

impl From<TaskError> for ttrpc::Error {
    fn from(error: TaskError) -> Self {
        ttrpc::Error::RpcStatus(ttrpc::get_status(code(&error), error))
    }
}

fn code(error: &TaskError) -> Code {
    match error {
        TaskError::NotFound(_) | TaskError::Finished(_) => Code::NOT_FOUND,
        TaskError::AlreadyExists(_) => Code::ALREADY_EXISTS,
        TaskError::Invalid(_) => Code::INVALID_ARGUMENT,
        TaskError::FailedPrecondition(_) => Code::FAILED_PRECONDITION,
        TaskError::Options(error) => options_code(error),
        TaskError::Bundle(error) => bundle_code(error),
        TaskError::Stdio(error) => stdio_code(error),
        // The caller may change the container or wait, and call again. Not UNAVAILABLE, which
        // containerd takes for a shim that has died (plugins/services/tasks/local.go).
        TaskError::Runtime(RuntimeError::Failed { message, .. })
            if message.is_refusal_for_now() =>
        {
            Code::FAILED_PRECONDITION
        }
        // containerd's own shim gives these no code. Do not use another: containerd takes NOT_FOUND
        // of Kill or Delete for success, and shows the text of UNKNOWN as it is.
        TaskError::Transition(_)
        | TaskError::Runtime(_)
        | TaskError::Cgroup(_)
        | TaskError::Io(_) => Code::UNKNOWN,
    }
}

fn options_code(error: &OptionsError) -> Code {
    match error {
        OptionsError::Type { .. }
        | OptionsError::Unknown(_)
        | OptionsError::Decode { .. }
        | OptionsError::Json { .. } => Code::INVALID_ARGUMENT,
        OptionsError::Io(_) => Code::UNKNOWN,
    }
}

fn bundle_code(error: &BundleError) -> Code {
    match error {
        BundleError::Spec { .. } => Code::INVALID_ARGUMENT,
        BundleError::Mount { .. } | BundleError::Io(_) => Code::UNKNOWN,
    }
}

fn stdio_code(error: &StdioError) -> Code {
    match error {
        StdioError::Uri(_) | StdioError::Connect(_) => Code::INVALID_ARGUMENT,
        StdioError::LoggerEnded(_) | StdioError::LoggerNotReady { .. } => Code::FAILED_PRECONDITION,
        StdioError::Io(_) => Code::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(error: impl Into<TaskError>) -> Code {
        code(&error.into())
    }

    #[test]
    fn what_the_caller_got_wrong_is_an_invalid_argument() {
        let options = OptionsError::Decode {
            type_url: "containerd.runc.v1.Options".to_owned(),
            reason: "truncated".to_owned(),
        };
        assert_eq!(code_of(options), Code::INVALID_ARGUMENT);
        let stdio = StdioError::Uri("npipe://x".to_owned());
        assert_eq!(code_of(stdio), Code::INVALID_ARGUMENT);
        let bundle = BundleError::Spec {
            path: "/run/b/config.json".into(),
            reason: "expected value at line 1 column 1".to_owned(),
        };
        assert_eq!(code_of(bundle), Code::INVALID_ARGUMENT);
    }

    #[test]
    fn a_failed_mount_has_no_code_of_its_own() {
        let bundle = BundleError::Mount {
            target: "/run/b/rootfs".into(),
            source: crate::io_error::IoError::cannot("mount it")(std::io::Error::other(
                "no such device",
            )),
        };
        assert_eq!(code_of(bundle), Code::UNKNOWN);
    }
}
