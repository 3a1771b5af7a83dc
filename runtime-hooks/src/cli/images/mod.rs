//! `stasis images` and `stasis verify`: the images that this machine knows of, and whether they
//! are whole and can be restored here. Changes nothing.

pub mod gc;
pub mod inspect;
mod known;
pub mod moved;
mod named;
pub mod offered;
mod origin;
mod row;
mod table;
mod whose;

use std::path::{Path, PathBuf};

use clap::Args;
use stasis_config::Settings;

use crate::cli::answer::{Format, Output, answer};
use crate::cli::check::image::Reading;
use crate::cli::command_error::{CommandError, MoveError};
use moved::login::Login;
use named::reference;
use row::Row;

/// The images, and what of them is read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Image directories; without any, those that checkpoints on this machine have written.
    #[arg(value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// The images that are verified, and against what.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    #[command(flatten)]
    images: Arguments,
    /// Say whether they would run here, by what they tell of themselves: driver and its libraries,
    /// GPUs, CPU, kernel, CRIU, memory. Their contents are not read, and of an image in a registry
    /// or an OCI layout (REGISTRY/REPOSITORY:TAG, oci:/DIRECTORY:TAG) not fetched.
    #[arg(long, requires = "directories")]
    here: bool,
    /// The bundle of the new container: look for the image's mounts, and the files that its
    /// processes had open or mapped, in that, too.
    #[arg(long, value_name = "BUNDLE", requires = "here")]
    bundle: Option<PathBuf>,
    #[command(flatten)]
    login: Login,
}

const NOT_ALL: u8 = 1;
const NOTHING_KNOWN: &str = "no directory with an image is known; those that an engine has packed \
    are its own: see `ctr images ls`, and podman's exported archives";

impl VerifyArguments {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        self.images.format()
    }
}

/// Verifies the images; the exit code.
///
/// # Errors
/// As [`run`]; an image elsewhere cannot be asked.
pub fn verify(settings: &Settings, arguments: &VerifyArguments) -> Result<u8, CommandError> {
    if !arguments.here {
        return run(settings, &arguments.images, Reading::Everything);
    }
    let named = arguments.images.directories.iter();
    let rows = named.map(|named| here(settings, named, arguments));
    let rows: Vec<Row> = rows.collect::<Result<_, _>>()?;
    show(arguments.format(), &rows, &table::with_notes)?;
    Ok(code(&rows))
}

/// Whether an image would run here, wherever it is.
fn here(settings: &Settings, named: &Path, arguments: &VerifyArguments) -> Result<Row, MoveError> {
    match reference(named) {
        None => Ok(Row::here(settings, named, arguments.bundle.as_deref())),
        Some(reference) => Row::elsewhere(settings, &reference?, arguments.login.file()),
    }
}

impl Arguments {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        self.output.format()
    }
}

/// Shows the images; the exit code.
///
/// # Errors
/// What is stored on this machine cannot be listed.
pub fn run(
    settings: &Settings,
    arguments: &Arguments,
    reading: Reading,
) -> Result<u8, CommandError> {
    let mut directories = arguments.directories.clone();
    if directories.is_empty() {
        directories = known::with_dockers(settings)?;
    }
    let rows: Vec<Row> = directories
        .iter()
        .map(|directory| Row::of(settings, directory, reading))
        .collect();
    if rows.is_empty() && arguments.format() == Format::Text {
        eprintln!("stasis: {NOTHING_KNOWN}");
    } else {
        show(arguments.format(), &rows, &table::of)?;
    }
    Ok(match reading {
        Reading::Everything | Reading::Here => code(&rows),
        Reading::Records => 0,
    })
}

fn show(
    format: Format,
    rows: &[Row],
    table: &dyn Fn(&[Row]) -> String,
) -> Result<(), CommandError> {
    match format {
        Format::Json => answer(&rows)?,
        Format::Text => println!("{}", table(rows)),
    }
    Ok(())
}

fn code(rows: &[Row]) -> u8 {
    let is_well = rows.iter().all(|row| row.restorable);
    if is_well { 0 } else { NOT_ALL }
}
