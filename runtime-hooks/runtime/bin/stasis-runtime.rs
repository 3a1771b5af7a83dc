//! The OCI runtime: runc's (or crun's) command line, with checkpoint and restore of GPU state.
//!
//! Every other verb is passed on by exec(2), so that the low-level runtime itself answers it, byte
//! for byte.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use stasis_config::{LowLevel, Settings};
use stasis_engine::checkpoint::checkpoint;
use stasis_engine::companions::Alone;
use stasis_engine::container::create::prepare;
use stasis_engine::context::{Context, Outcome};
use stasis_engine::error::chain;
use stasis_engine::low_level::at_restore::RestoreScript;
use stasis_engine::low_level::default_root;
use stasis_engine::low_level::post_dump::PostDump;
use stasis_engine::operation::awaited_start::awaits_start;
use stasis_engine::request::{CheckpointRequest, LowLevelArgs, RestoreRequest};
use stasis_engine::restore::state::state;
use stasis_engine::restore::{is_taken, make_way, restore};
use stasis_engine::suspend::resume::resume;
use stasis_engine::workers;
use stasis_gpu::cuda::watchdog;
use stasis_group::member::Member;
use stasis_host::caller;
use stasis_host::cancel::Cancel;
use stasis_host::disk::Sync;
use stasis_lifecycle::at_create::ended_soon::{delete, note_checkpoint};
use stasis_lifecycle::at_create::first_image::FirstImage;
use stasis_lifecycle::at_create::start::start;
use stasis_lifecycle::at_create::{Created, create};
use stasis_lifecycle::at_stop::process::StopProcess;
use stasis_lifecycle::at_stop::{self, kill};
use stasis_lifecycle::request::CreateRequest;
use stasis_linux::open_files;
use stasis_runtime::oci::pass_on::exec;
use stasis_runtime::oci::runtime_error::RuntimeError;
use stasis_runtime::oci::{Action, Invocation};

fn main() -> ExitCode {
    open_files::raise_limit();
    let code = if let Some(code) = workers::run() {
        code
    } else if let Some(sync) = Sync::of_this_process() {
        sync.run()
    } else if let Some(stop) = StopProcess::of_this_process() {
        stop.run();
        0
    } else if let Some(dump) = PostDump::of_this_process() {
        verify(&dump)
    } else if let Some(restore) = RestoreScript::of_this_process() {
        set_up(&restore)
    } else {
        carry_out()
    };
    watchdog::exit_despite_hung_calls(code);
    ExitCode::from(code)
}

/// Verifies a dump. Prints to CRIU's log, in the format of that log.
fn verify(dump: &PostDump) -> u8 {
    if let Err(error) = dump.verify() {
        tell("Error", &chain(&error));
        return 1;
    }
    match dump.store_not_kept() {
        Ok(None) => {}
        // The image is whole: no reason to let the tasks go on.
        Ok(Some(error)) => {
            let what = "what CRIU does not keep is not in the image";
            tell("Warn ", &format!("{what}: {error}"));
        }
        Err(error) => {
            let what = "cannot put the files of the container's mounts into the image";
            tell("Error", &format!("{what}: {error}"));
            return 1;
        }
    }
    if let Err(error) = dump.unlock_network() {
        tell(
            "Warn ",
            &format!("the network may still be locked: {error}"),
        );
    }
    0
}

/// Runs the restore script. Prints as [`verify`] does.
fn set_up(restore: &RestoreScript) -> u8 {
    let Err(error) = restore.run() else {
        return 0;
    };
    tell("Error", &error.to_string());
    1
}

fn tell(level: &str, text: &str) {
    let _ = writeln!(io::stderr(), "{level} (stasis): {text}");
}

fn carry_out() -> u8 {
    let invocation = Invocation::parse(env::args_os().skip(1).collect());
    run(&invocation).unwrap_or_else(|error| {
        invocation.global.log_error(&error);
        1
    })
}

/// Returns the exit code; does not return if the low-level runtime replaces this process.
fn run(invocation: &Invocation) -> Result<u8, RuntimeError> {
    invocation.check_interface()?;
    let settings = settings_for(invocation)?;
    let low_level = match &invocation.global.low_level {
        Some(chosen) => settings.runtime.resolve_instead(chosen)?,
        None => settings.runtime.resolve()?,
    };
    let root = root(invocation, &low_level);
    let mut first_image = None;
    match &invocation.action {
        Action::Create(options) => {
            at_stop::check(&settings.restore.registry, &options.bundle, &options.id)?;
            prepare(&options.bundle)?;
            first_image = FirstImage::of(&options.bundle)?;
        }
        Action::Start { id } | Action::State { id }
            if !awaits_start(&settings.paths.state_dir, &root, id) =>
        {
            return Err(hand_over(&low_level, invocation));
        }
        Action::PassThrough => return Err(hand_over(&low_level, invocation)),
        _ => {}
    }
    caller::remember();
    let cancel = Cancel::on_signals().map_err(RuntimeError::Signals)?;
    let context = Context {
        settings,
        low_level,
        root,
        cancel,
        began: SystemTime::now(),
    };
    let flavor = context.low_level.flavor;
    let group = invocation.global.group.as_deref();
    let args = invocation.pass_on(flavor);
    let args_with = |options: &[(&str, &OsStr)]| invocation.pass_on_with(flavor, options);
    let wait = context.settings.deadlines.stalled();
    let stop_commands = || invocation.stop_commands(&context.root, flavor, wait);
    let outcome = match &invocation.action {
        Action::Create(options) => create_from(&context, invocation, options, first_image)?,
        Action::Start { id } => start(&context, id)?,
        Action::State { id } => state(&context, id, &args).map_err(RuntimeError::State)?,
        Action::Checkpoint(options) => checkpoint_in(group, &context, options, &args_with)?,
        Action::Restore(options) => restore_in(group, &context, options, &args_with)?,
        Action::Resume { id } => resume(&context, id, &args)?,
        Action::Kill(request) => kill(&context, request, stop_commands()),
        Action::Delete { id, mode } => delete(&context, id, *mode, &args)?,
        Action::PassThrough => Outcome::PassThrough,
    };
    match outcome {
        Outcome::Done(code) => Ok(code),
        Outcome::PassThrough => {
            let cancel = &context.cancel;
            cancel.before_exec().map_err(RuntimeError::StandDown)?;
            Err(hand_over(&context.low_level, invocation))
        }
    }
}

/// Checkpoints a container, by itself or in the group of this file.
fn checkpoint_in(
    group: Option<&Path>,
    context: &Context,
    options: &CheckpointRequest,
    args: LowLevelArgs<'_>,
) -> Result<Outcome, RuntimeError> {
    note_checkpoint(context, options);
    let Some(file) = group else {
        return Ok(checkpoint(context, options, &Alone, args)?);
    };
    let member = member_of(file, Member::of_this_process(file, context, &options.id))?;
    Ok(member.carry_out(|others| checkpoint(context, options, others, args))?)
}

/// Restores a container, by itself or in the group of this file.
fn restore_in(
    group: Option<&Path>,
    context: &Context,
    options: &RestoreRequest,
    args: LowLevelArgs<'_>,
) -> Result<Outcome, RuntimeError> {
    let Some(file) = group else {
        return Ok(restore(context, options, &Alone, args)?);
    };
    let member = Member::of_this_process(file, context, &options.id);
    let member = member_of(file, member.and_then(Member::silent))?;
    Ok(member.carry_out(|others| restore(context, options, others, args))?)
}

fn member_of(file: &Path, member: io::Result<Member>) -> Result<Member, RuntimeError> {
    member.map_err(|source| RuntimeError::Group {
        path: file.to_owned(),
        source,
    })
}

/// Returns the directory in which the low-level runtime keeps its containers.
fn root(invocation: &Invocation, low_level: &LowLevel) -> PathBuf {
    let root = invocation.global.root.clone();
    let root = root.unwrap_or_else(|| default_root(low_level.flavor));
    // runc accepts a relative root, but our detached processes run in another directory.
    path::absolute(&root).unwrap_or(root)
}

/// Creates a container from an image. A cold start is reported in the caller's log.
fn create_from(
    context: &Context,
    invocation: &Invocation,
    options: &CreateRequest,
    image: Option<FirstImage>,
) -> Result<Outcome, RuntimeError> {
    let Some(image) = image else {
        make_way(context, &options.id, Duration::ZERO)?;
        return Ok(Outcome::PassThrough);
    };
    // The image may be that of the id. The low-level runtime refuses an id that is taken.
    if !is_taken(context, &options.id) {
        make_way(context, &options.id, context.settings.deadlines.stalled())?;
    }
    let args = |restore: &RestoreRequest, extra: &[(&str, &OsStr)]| {
        invocation.restore_instead(options, restore, extra)
    };
    Ok(match create(context, options, &image, &args)? {
        Created::FromImage => Outcome::Done(0),
        Created::Cold(why) => {
            if let Some(why) = why {
                invocation.global.log_warning(&why);
            }
            Outcome::PassThrough
        }
    })
}

/// Loads the settings. Only a checkpoint and a restore need all of them: a mistake in the file must
/// not prevent users from inspecting or ending a container.
fn settings_for(invocation: &Invocation) -> Result<Settings, RuntimeError> {
    let path = invocation.global.settings.as_deref();
    if let Action::Checkpoint(_) | Action::Restore(_) = invocation.action {
        return Ok(Settings::load(path)?);
    }
    let (settings, error) = Settings::load_usable(path);
    if let Some(error) = error {
        let text = format!("{}; the defaults are used in its place", chain(&error));
        invocation.global.log_warning(&text);
    }
    Ok(settings)
}

fn hand_over(low_level: &LowLevel, invocation: &Invocation) -> RuntimeError {
    RuntimeError::HandOver {
        source: exec(&low_level.path, invocation.pass_on(low_level.flavor)),
        path: low_level.path.clone(),
    }
}
