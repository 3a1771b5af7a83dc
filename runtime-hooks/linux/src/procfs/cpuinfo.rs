//! `/proc/cpuinfo`: the features of the machine's CPUs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::{about, words};

const PATH: &str = "/proc/cpuinfo";
/// The lines of the first CPU are enough: Linux runs on no machine whose CPUs differ in this
/// (`Documentation/arch/x86/cpuinfo.rst` has the flags).
const MAX_BYTES: u64 = 64 << 10;

/// Flags of instructions that programs look for before they use them: all with these beginnings,
/// and the whole words below.
const STARTS: [&str; 14] = [
    "sse", "ssse", "avx", "amx_", "bmi", "sha", "sm3", "sm4", "fma", "xsave", "gfni", "vaes",
    "vpclmul", "movdir",
];
const WHOLE: &str = "mmx fxsr pni pclmulqdq cx16 movbe popcnt aes f16c rdrand rdseed lahf_lm abm xop \
                     tbm fsgsbase rtm adx clflushopt clwb xgetbv1 ospke rdpid rdtscp enqcmd cldemote \
                     waitpkg serialize";

/// Returns the features of the CPUs, as the kernel names them: "avx2", "smep".
pub fn cpu_flags() -> io::Result<BTreeSet<String>> {
    let path = Path::new(PATH);
    let read = File::open(path).and_then(|file| of_first(BufReader::new(file.take(MAX_BYTES))));
    read.map_err(|error| about(path, &error))
}

/// Returns the flags that are instructions.
#[must_use]
pub fn instruction_sets(flags: BTreeSet<String>) -> BTreeSet<String> {
    let is_one = |flag: &String| {
        STARTS.iter().any(|start| flag.starts_with(start))
            || WHOLE.split(' ').any(|whole| whole == flag)
    };
    flags.into_iter().filter(is_one).collect()
}

fn of_first(lines: impl BufRead) -> io::Result<BTreeSet<String>> {
    for line in lines.split(b'\n') {
        let line = line?;
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        if name.trim_ascii() == b"flags" {
            let flags = words(value.strip_prefix(b":").unwrap_or(value));
            let text = |flag| String::from_utf8_lossy(flag).into_owned();
            return Ok(flags.map(text).collect());
        }
    }
    Ok(BTreeSet::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_from_other_flags() {
        let text = b"processor\t: 0\nflags\t\t: fpu vme avx2 smep aes\nbugs\t: x\n\nflags: none\n";
        let flags = of_first(&text[..]).unwrap();
        assert_eq!(flags.len(), 5);
        let sets: Vec<_> = instruction_sets(flags).into_iter().collect();
        assert_eq!(sets, ["aes", "avx2"]);
        assert!(of_first(&b"processor: 0\n"[..]).unwrap().is_empty());
    }

    #[test]
    fn those_of_this_machine_are_read() {
        let sets = instruction_sets(cpu_flags().unwrap());
        assert!(sets.contains("sse2"), "{sets:?}");
    }
}
