//! The C parts: the stand-in for the driver, and the workloads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

pub use crate::check::requirement::has_gpu;

/// The workload programs.
pub const WORKLOADS: [&str; 16] = [
    "copy", "counter", "forker", "grab", "hostile", "kept", "late", "memcheck", "mesh", "peers",
    "plain", "ranks", "ring", "sharing", "silent", "tree",
];
/// Workloads of several files that use CUDA.
const WITH_CUDA: [&str; 2] = ["hostile", "ranks"];

/// The number of GPUs that the stand-in can have at most.
pub const MOST_GPUS: usize = 4;

/// The nodes that stand for NVIDIA devices where there are none: path in /dev, kind, major and
/// minor number. Loop devices that are bound to nothing can be opened and mapped, and CRIU can dump
/// neither their descriptors nor their mappings. The driver's own come first, then those of the
/// GPUs.
pub const NODES: [(&str, char, u32, u32); 6] = [
    ("/dev/nvidiactl", 'b', 7, 6),
    ("/dev/nvidia-uvm", 'b', 7, 7),
    ("/dev/nvidia0", 'b', 7, 5),
    ("/dev/nvidia1", 'b', 7, 8),
    ("/dev/nvidia2", 'b', 7, 9),
    ("/dev/nvidia3", 'b', 7, 10),
];

/// Returns the nodes of a machine, or of a process, that has this many GPUs.
pub fn nodes(gpus: usize) -> impl Iterator<Item = (&'static str, char, u32, u32)> {
    NODES.into_iter().take(NODES.len() - MOST_GPUS + gpus)
}

/// The directory of compiled files, or an error text for later callers.
static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// Returns the directory of compiled files: the stand-in's libraries in `lib64/`, the workloads and
/// the pause program in `bin/`. `STASIS_NATIVE` names one for machines without a compiler; without
/// it they are compiled once a process, which takes a second for all.
pub fn build() -> Result<&'static Path> {
    let built = BUILT.get_or_init(|| build_all().map_err(|error| format!("{error:#}")));
    match built {
        Ok(directory) => Ok(directory),
        Err(error) => Err(anyhow::anyhow!("{error}")),
    }
}

/// Returns a workload on this machine itself, with the stand-in: its /dev has the nodes of this
/// many GPUs and nothing else. The program replaces the shell, so the caller knows its pid.
pub fn on_standin(program: &str, gpus: usize) -> Result<Command> {
    let built = build()?;
    let mut made = String::new();
    for (path, kind, major, minor) in nodes(gpus) {
        made += &format!("mknod {path} {kind} {major} {minor} && ");
    }
    let script = format!("mount -t tmpfs tmpfs /dev && {made}exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .arg(built.join("bin").join(program))
        .env("LD_LIBRARY_PATH", built.join("lib64"));
    Ok(command)
}

/// Returns the directory that cargo puts programs of this build into.
pub fn programs() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let mut directory = own.parent().context("this program is in no directory")?;
    if directory.ends_with("deps") {
        directory = directory.parent().unwrap_or(directory);
    }
    Ok(directory.to_owned())
}

fn build_all() -> Result<PathBuf> {
    if let Some(built) = std::env::var_os("STASIS_NATIVE") {
        return Ok(built.into());
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = programs()?.join("native");
    let (lib, bin) = (built.join("lib64"), built.join("bin"));
    fs::create_dir_all(&lib)?;
    fs::create_dir_all(&bin)?;
    // cargo runs test programs one after the other, people may not.
    let lock = fs::File::create(built.join("lock"))?;
    lock.lock()?;
    let standin = sources.join("standin");
    library(
        &lib,
        "libcuda.so.1",
        &standin,
        &[
            "libcuda.c",
            "gpu.c",
            "devices.c",
            "memory.c",
            "contents.c",
            "stream.c",
            "driver_api.c",
            "sharing/file.c",
            "sharing/allocations.c",
            "sharing/mappings.c",
            "sharing/reservations.c",
            "sharing/vmm_api.c",
            "sharing/legacy.c",
            "sharing/pointers.c",
        ],
    )?;
    library(&lib, "libnvidia-ml.so.1", &standin, &["libnvidia-ml.c"])?;
    for name in WORKLOADS {
        workload(&bin, name, &sources.join("workloads"), &lib)?;
    }
    let pause = sources.join("hosts/pause.c");
    compile(gcc().arg("-static").arg(pause), &bin.join("pause"))?;
    Ok(built)
}

fn library(into: &Path, name: &str, sources: &Path, files: &[&str]) -> Result<()> {
    let mut gcc = gcc();
    gcc.args([
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        // A device's transfer does not call memcpy.
        "-fno-tree-loop-distribute-patterns",
        // As in the driver: slots of calls stay in writable memory.
        "-Wl,-z,lazy,-z,relro",
        &format!("-Wl,-soname,{name}"),
    ]);
    gcc.args(files.iter().map(|file| sources.join(file)));
    compile(gcc.arg("-pthread"), &into.join(name))
}

fn workload(into: &Path, name: &str, sources: &Path, libraries: &Path) -> Result<()> {
    let mut gcc = gcc();
    gcc.arg(sources.join("serve.c"));
    let parts = sources.join(name);
    match parts.is_dir() {
        true => gcc.args(c_files(&parts)?).arg("-pthread"),
        false => gcc.arg(sources.join(format!("{name}.c"))),
    };
    if !parts.is_dir() || WITH_CUDA.contains(&name) {
        gcc.arg(sources.join("gpu/gpu.c"));
        gcc.arg("-L").arg(libraries).arg("-l:libcuda.so.1");
    }
    compile(&mut gcc, &into.join(name))
}

fn c_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "c") {
            files.push(file);
        }
    }
    Ok(files)
}

/// Returns the plugin for CRIU, as cargo has built it.
pub fn plugin() -> Result<PathBuf> {
    let plugin = programs()?.join("libstasis_memory.so");
    ensure!(
        plugin.exists(),
        "{} is missing: `cargo build --workspace` makes it, `--bins` alone does not",
        plugin.display()
    );
    Ok(plugin)
}

fn gcc() -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror"]);
    gcc
}

/// Another test program may be copying the old file: the new one replaces it in one step.
fn compile(gcc: &mut Command, result: &Path) -> Result<()> {
    let directory = result.parent().context("the root cannot be compiled")?;
    let scratch = tempfile::tempdir_in(directory)?;
    let new = scratch.path().join("new");
    let output = gcc.arg("-o").arg(&new).output().context("starting gcc")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "gcc failed:\n{stderr}");
    fs::rename(&new, result).with_context(|| format!("replacing {}", result.display()))
}
