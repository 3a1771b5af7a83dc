//! Container images made from files of this machine, since none can be pulled.
//!
//! The archive is an OCI image layout that `ctr image import`, `podman load` and, by way of its
//! `manifest.json`, `docker load` all read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::host::c_build;

const BUSYBOX: &str = "/bin/busybox";
/// Programs that load a CUDA driver at run time need these, though `ldd` does not name them.
const DRIVER_NEEDS: [&str; 5] = [
    "libpthread.so.0",
    "libdl.so.2",
    "libm.so.6",
    "librt.so.1",
    "libgcc_s.so.1",
];
const DIRECTORIES: [&str; 8] = [
    "dev",
    "etc",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/local/nvidia",
];

/// An image in the making: busybox (without its `sleep`, which ends when dumped), `/bin/pause`, and
/// files that are added.
#[derive(Debug)]
pub struct Image {
    name: String,
    files: BTreeMap<PathBuf, Entry>,
    command: Vec<String>,
}

#[derive(Debug)]
enum Entry {
    Bytes { mode: u32, content: Vec<u8> },
    Link(PathBuf),
}

impl Image {
    /// The name of the image that tests use unless they need several.
    pub const DEFAULT_NAME: &'static str = "localhost/stasis-test:latest";

    /// An image that holds a shell and `/bin/pause`, a program that waits until SIGTERM.
    pub fn new(name: &str) -> Result<Image> {
        let mut image = Image {
            name: name.to_owned(),
            files: BTreeMap::new(),
            command: vec!["/bin/pause".to_owned()],
        };
        image.add(Path::new("bin/busybox"), Path::new(BUSYBOX), 0o755)?;
        let applets = Command::new(BUSYBOX)
            .arg("--list")
            .output()
            .context("asking busybox for its programs")?;
        for applet in String::from_utf8_lossy(&applets.stdout).lines() {
            if !matches!(applet, "busybox" | "sleep") {
                image
                    .files
                    .insert(Path::new("bin").join(applet), Entry::Link("busybox".into()));
            }
        }
        let pause = c_build::build()?.join("bin/pause");
        image.add(Path::new("bin/pause"), &pause, 0o755)?;
        Ok(image)
    }

    /// Adds a program of this machine as `/bin/<its name>`, with the libraries that it and a CUDA
    /// driver need.
    pub fn program(mut self, source: &Path) -> Result<Image> {
        let name = source
            .file_name()
            .with_context(|| format!("{} names no program", source.display()))?;
        self.add(&Path::new("bin").join(name), source, 0o755)?;
        for library in libraries_of(source)? {
            let inside = library.strip_prefix("/").unwrap_or(&library).to_owned();
            self.add(&inside, &library, 0o755)?;
        }
        Ok(self)
    }

    /// Sets the default command of a container.
    #[must_use]
    pub fn command(mut self, command: &[&str]) -> Image {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Adds a file of this machine at an absolute path of the image.
    pub fn file(mut self, inside: &str, source: &Path, mode: u32) -> Result<Image> {
        self.add(Path::new(inside.trim_start_matches('/')), source, mode)?;
        Ok(self)
    }

    /// Writes the archive.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let layer = self.layer()?;
        let diff_id = sha256(&layer);
        let config = serde_json::to_vec(&json!({
            "architecture": "amd64",
            "os": "linux",
            "config": { "Cmd": self.command, "Env": ["PATH=/bin"], "WorkingDir": "/" },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff_id}")] },
        }))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        }))?;
        let mut of_manifest = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        of_manifest["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name,
        });
        let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [of_manifest] }))?;
        let for_docker = serde_json::to_vec(&json!([{
            "Config": blob_path(&config),
            "RepoTags": [self.name],
            "Layers": [blob_path(&layer)],
        }]))?;

        let file =
            File::create(archive).with_context(|| format!("making {}", archive.display()))?;
        let mut tar = tar::Builder::new(file);
        append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        append(&mut tar, "index.json", &index)?;
        append(&mut tar, "manifest.json", &for_docker)?;
        for blob in [&config, &manifest, &layer] {
            append(&mut tar, &blob_path(blob), blob)?;
        }
        tar.finish()
            .with_context(|| format!("writing {}", archive.display()))
    }

    fn add(&mut self, inside: &Path, source: &Path, mode: u32) -> Result<()> {
        let content = fs::read(source).with_context(|| {
            format!(
                "reading {} for a test image (integration/hosts/install-requirements.sh?)",
                source.display()
            )
        })?;
        self.files
            .insert(inside.to_owned(), Entry::Bytes { mode, content });
        Ok(())
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for directory in self.directories() {
            let mut header = header(
                tar::EntryType::Directory,
                if directory == Path::new("tmp") {
                    0o1777
                } else {
                    0o755
                },
            );
            tar.append_data(&mut header, directory, std::io::empty())?;
        }
        for (inside, entry) in &self.files {
            match entry {
                Entry::Bytes { mode, content } => {
                    let mut header = header(tar::EntryType::Regular, *mode);
                    header.set_size(content.len().try_into()?);
                    tar.append_data(&mut header, inside, content.as_slice())?;
                }
                Entry::Link(target) => {
                    tar.append_link(&mut header(tar::EntryType::Symlink, 0o777), inside, target)?;
                }
            }
        }
        tar.into_inner()
            .context("packing the layer of a test image")
    }

    /// Returns all directories of the image, parents first.
    fn directories(&self) -> Vec<PathBuf> {
        let fixed = DIRECTORIES.iter().map(Path::new).flat_map(Path::ancestors);
        let parents = self.files.keys().flat_map(|file| file.ancestors().skip(1));
        let mut all: Vec<PathBuf> = fixed.chain(parents).map(Path::to_owned).collect();
        all.retain(|directory| directory != Path::new(""));
        all.sort();
        all.dedup();
        all
    }
}

/// Returns the loader and the libraries of a dynamic program; none of a static one.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("starting ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Lines are "name => /path (address)" or "/path (address)"; a CUDA driver is lent to the
    // container instead.
    let found = text
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from);
    let mut libraries: Vec<PathBuf> = found.filter(|path| !is_driver_library(path)).collect();
    if let Some(directory) = libraries
        .iter()
        .find(|path| path.ends_with("libc.so.6"))
        .and_then(|path| path.parent())
    {
        let extra: Vec<PathBuf> = DRIVER_NEEDS
            .iter()
            .map(|name| directory.join(name))
            .collect();
        libraries.extend(extra);
    }
    Ok(libraries)
}

fn is_driver_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("libcuda.") || name.starts_with("libnvidia-")
}

fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

fn append(tar: &mut tar::Builder<File>, path: &str, content: &[u8]) -> Result<()> {
    let mut header = header(tar::EntryType::Regular, 0o644);
    header.set_size(content.len().try_into()?);
    tar.append_data(&mut header, path, content)
        .with_context(|| format!("writing {path} of a test image"))
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", sha256(content)), "size": content.len() })
}

fn blob_path(content: &[u8]) -> String {
    format!("blobs/sha256/{}", sha256(content))
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
