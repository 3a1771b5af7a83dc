//! Builds the code that is injected, the same optimized one for every profile, and refuses it if
//! it could not run at any address, alone: what answers the driver's copying, and what its
//! checkpoint thread runs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use object::elf::{SHF_ALLOC, SHF_WRITE};
use object::{File, Object, ObjectSection, ObjectSymbol, RelocationKind, SectionFlags, Symbol};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The sources of an image, the type that describes it, and the symbols whose offsets it has.
struct Image {
    name: &'static str,
    source: &'static str,
    described_by: &'static str,
    places: &'static [&'static str],
}

const IMAGES: [Image; 2] = [
    Image {
        name: "copy",
        source: "../injected-copy",
        described_by: "Image",
        places: &["memcpy", "mmap", "helper", "board"],
    },
    Image {
        name: "survey",
        source: "../injected-survey",
        described_by: "SurveyImage",
        places: &["survey", "calloc", "free", "board"],
    },
];
const SECTION: &str = ".image";

fn main() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for image in IMAGES {
        println!("cargo::rerun-if-changed={}", image.source);
        let described = out.join(image.name).with_extension("rs");
        fs::write(described, image.build(&out)?)?;
    }
    Ok(())
}

impl Image {
    /// Builds it; an expression of the type that describes it.
    fn build(&self, out: &Path) -> Result<String> {
        let linked = fs::read(self.link(&self.compile(out)?)?)?;
        let linked = File::parse(linked.as_slice())?;
        stands_alone(&linked)?;
        let section = linked.section_by_name(SECTION).ok_or("no code")?;
        let file = format!("{}.bin", self.name);
        fs::write(out.join(&file), section.data()?)?;
        let mut fields = String::new();
        for place in self.places {
            fields += &format!(", {place}: {}", offset(&linked, place)?);
        }
        let described_by = self.described_by;
        Ok(format!(
            "{described_by} {{ code: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\"))\
             {fields} }}"
        ))
    }

    /// One object: a function of `core` that is called, and not inlined, is undefined in it.
    fn compile(&self, out: &Path) -> Result<PathBuf> {
        let object = out.join(self.name).with_extension("o");
        let mut rustc = Command::new(env::var("RUSTC")?);
        rustc
            .arg(format!("{}/src/image.rs", self.source))
            .args([
                "--crate-name=stasis_image",
                "--crate-type=lib",
                "--edition=2024",
            ])
            .arg(format!("--target={}", env::var("TARGET")?))
            .args([
                "-Copt-level=3",
                "-Ccodegen-units=1",
                "-Cpanic=abort",
                "-Crelocation-model=pic",
            ])
            .args([
                "-Cno-redzone=yes",
                "-Cforce-unwind-tables=no",
                "-Cdebuginfo=0",
            ])
            .arg(format!("--emit=obj={}", object.display()));
        run(&mut rustc)?;
        Ok(object)
    }

    /// Links it at address 0, without what is not reached. Relocations are kept to be looked at.
    fn link(&self, object: &Path) -> Result<PathBuf> {
        let linked = object.with_extension("elf");
        let mut ld = Command::new("ld");
        ld.args([
            "-static",
            "-nostdlib",
            "--gc-sections",
            "--no-undefined",
            "--emit-relocs",
        ])
        .args(["--build-id=none", "-T"])
        .arg(format!("{}/image.ld", self.source))
        .arg("-o")
        .args([&linked, object]);
        run(&mut ld)?;
        Ok(linked)
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{status}: {command:?}").into())
}

/// Nothing is undefined, nothing is writable, and every address is a distance within the image.
fn stands_alone(linked: &File) -> Result<()> {
    let is_undefined = |symbol: &Symbol| symbol.is_undefined() && symbol.name() != Ok("");
    if let Some(symbol) = linked.symbols().find(is_undefined) {
        return Err(format!("undefined: {}", symbol.name()?).into());
    }
    for section in linked.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            return Err("not an ELF file".into());
        };
        if !sh_flags.contains(SHF_ALLOC) || section.size() == 0 {
            continue;
        }
        if section.name()? != SECTION || sh_flags.contains(SHF_WRITE) {
            return Err(format!("data outside the code: {}", section.name()?).into());
        }
        for (at, relocation) in section.relocations() {
            use RelocationKind::{PltRelative, Relative};
            if !matches!(relocation.kind(), Relative | PltRelative) {
                return Err(format!("an address at {at:#x}: {relocation:?}").into());
            }
        }
    }
    Ok(())
}

/// Returns the offset of a symbol of ours.
fn offset(linked: &File, name: &str) -> Result<u64> {
    let symbol = linked.symbol_by_name(&format!("stasis_{name}"));
    Ok(symbol.ok_or_else(|| format!("no {name}"))?.address())
}
