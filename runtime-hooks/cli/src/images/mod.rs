//! `stasis images` and `stasis verify`: the images that this machine knows of, and whether they
//! are whole and can be restored here. Changes nothing.

pub mod gc;
pub mod inspect;
mod known;
mod login;
mod moved;
mod named;
mod progress;
pub mod pull;
pub mod push;
mod table;
pub mod verify;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use stasis_config::Settings;
use stasis_oci_image::Reference;
use stasis_transfer::MoveError;

use crate::answer::exit::Exit;
use crate::answer::{Format, Output, answer_all, show_note, write_line};
use crate::command_error::{CommandError, ImageError};
use login::Login;
use named::Named;
use verify::{Reading, VerifyReport, look, look_elsewhere, look_here};

/// The images, and what of them is read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Image directories, engines' archives (unpacked beside themselves meanwhile), or containers
    /// (their last image). Default: all images that checkpoints on this machine wrote.
    #[arg(value_name = "IMAGE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// The images that are verified, and against what.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    #[command(flatten)]
    images: Arguments,
    /// Also show whether the images would run here: driver and its libraries, GPUs, CPU, kernel,
    /// CRIU, memory. Takes images in registries and OCI layouts, too (REGISTRY/REPOSITORY:TAG,
    /// oci:/DIRECTORY:TAG), without a download of contents.
    #[arg(long, requires = "images")]
    pub here: bool,
    /// Also look in this bundle of the new container for the image's mounts, and for the files that
    /// its processes had open or mapped.
    #[arg(long, value_name = "BUNDLE", requires = "here")]
    bundle: Option<PathBuf>,
    #[command(flatten)]
    login: Login,
}

/// The title of the answer, unless only wholeness is asked for.
const RESTORABLE: &str = "RESTORABLE";
const NOTHING_KNOWN: &str = "no image directories are known; engines list their own images and \
    archives (`ctr images ls`), and `stasis images job.tar` shows an archive";

/// Verifies the images and returns the exit code.
///
/// # Errors
/// As [`run`]; an image elsewhere cannot be read.
pub fn verify(settings: &Settings, arguments: &VerifyArguments) -> Result<Exit, CommandError> {
    let row = |image: &PathBuf| match arguments.here {
        true => here(settings, image, arguments),
        false if reference(image).is_some() => {
            Err(ImageError::NotHere(image.display().to_string()).into())
        }
        false => read(settings, image, |settings, image| {
            look(settings, image, Reading::Contents)
        }),
    };
    let rows = arguments.images.all(settings)?;
    let rows: Vec<VerifyReport> = rows.iter().map(row).collect::<Result<_, _>>()?;
    show(
        arguments.images.output.format(),
        &rows,
        if arguments.here { RESTORABLE } else { "WHOLE" },
    )?;
    Ok(Exit::of_all(
        rows.iter().map(|row| row.restorable == Some(true)),
    ))
}

/// Returns whether an image would run here, wherever it lies.
fn here(
    settings: &Settings,
    named: &Path,
    arguments: &VerifyArguments,
) -> Result<VerifyReport, CommandError> {
    let bundle = arguments.bundle.as_deref();
    match reference(named) {
        None => read(settings, named, |settings, image| {
            look_here(settings, image, bundle)
        }),
        Some(reference) => Ok(look_elsewhere(
            settings,
            &reference?,
            arguments.login.authfile.as_deref(),
        )?),
    }
}

/// Looks at an image on this machine.
fn read(
    settings: &Settings,
    named: &Path,
    look: impl Fn(&Settings, &Path) -> VerifyReport,
) -> Result<VerifyReport, CommandError> {
    let found = Named::find(settings, named)?;
    let Some(archive) = &found.archive else {
        return Ok(look(settings, &found.directory));
    };
    // At a restore the engine unpacks the archive elsewhere, so its directory here does not matter.
    let mut anywhere = settings.clone();
    anywhere.restore.images.clear();
    let report = look(&anywhere, &found.directory);
    Ok(report.of_archive(archive))
}

impl Arguments {
    /// Returns the named images, or all known ones.
    fn all(&self, settings: &Settings) -> Result<Vec<PathBuf>, CommandError> {
        match self.images.as_slice() {
            [] => known::with_dockers(settings),
            named => Ok(named.to_vec()),
        }
    }
}

/// Shows the images and returns the exit code.
///
/// # Errors
/// The machine's stored contents cannot be listed.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let row = |image: &PathBuf| {
        read(settings, image, |settings, image| {
            look(settings, image, Reading::Records)
        })
    };
    let rows = arguments.all(settings)?;
    let rows: Vec<VerifyReport> = rows.iter().map(row).collect::<Result<_, _>>()?;
    show(arguments.output.format(), &rows, RESTORABLE)?;
    Ok(Exit::Done)
}

fn show(format: Format, rows: &[VerifyReport], asked: &'static str) -> Result<(), CommandError> {
    match format {
        Format::Json => answer_all("images", rows)?,
        Format::Text if rows.is_empty() => show_note(NOTHING_KNOWN),
        Format::Text => write_line(&table::of(rows, asked))?,
    }
    Ok(())
}

/// Parses the user's name for an image: a name that is no file here may be one elsewhere.
fn reference(named: &Path) -> Option<Result<Reference, MoveError>> {
    let text = named.to_str().filter(|_| !named.exists())?;
    let reference = text.parse();
    match reference {
        Err(_) if !text.starts_with("oci:") => None,
        known => Some(known.map_err(MoveError::from)),
    }
}

/// Returns the bytes of an image: its files lie side by side.
fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    let files = files.filter(fs::Metadata::is_file).map(|file| file.len());
    files.fold(0, u64::saturating_add)
}
