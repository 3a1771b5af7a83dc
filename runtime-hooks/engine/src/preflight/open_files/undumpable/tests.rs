use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use stasis_linux::ProcessRef;

use super::*;
use crate::preflight::open_files::OpenFiles;

/// A process that holds the objects of a Python script, whose last expression gives -1 if the
/// kernel lacks them.
struct Holder {
    child: Child,
    directory: tempfile::TempDir,
}

/// Before each script. `call` makes a system call by its number.
const BEGIN: &str = "\
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
call = lambda number, *arguments: libc.syscall(number, *arguments)
def new(name, size=0):
    file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(file, bytes(size))
    return file
";
const END: &str = "
print('no' if made == -1 else 'made', flush=True)
sys.stdin.read()
";

impl Holder {
    /// Starts it; `None` where the kernel makes no such object.
    fn of(script: &str) -> Option<Self> {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut child = Command::new("python3")
            .args(["-c", &format!("{BEGIN}{script}{END}")])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answer = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut answer).unwrap();
        let holder = Self { child, directory };
        match answer.trim() {
            "made" => Some(holder),
            "no" => None,
            other => panic!("{script}: {other:?}"),
        }
    }

    fn held(&self) -> Undumpable {
        let pid = i32::try_from(self.child.id()).unwrap();
        let process = ProcessRef::open(pid).unwrap().unwrap();
        OpenFiles::read(&process, None).unwrap().undumpable
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the objects of a holder that CRIU does not dump, as text.
fn held(script: &str) -> Vec<String> {
    let Some(holder) = Holder::of(script) else {
        eprintln!("left out, for lack of it in this kernel: {script}");
        return vec!["left out".to_owned()];
    };
    let held = holder.held();
    let large = held.deleted.filter(|(_, bytes)| *bytes > 1 << 20);
    let large = large.map(|(file, bytes)| format!("{file} of {bytes}"));
    let files = [held.object, held.queue, held.moved];
    let files = files.into_iter().flatten().map(|file| file.to_string());
    let below = holder.directory.path().display().to_string();
    let all = files.chain(large).map(|text| text.replace(&below, "."));
    all.collect()
}

fn is_told(script: &str, expected: &str) {
    let held = held(script);
    let is_left_out = held == ["left out"];
    assert!(
        is_left_out || held.len() == 1 && held[0].contains(expected),
        "{script}: {held:?}"
    );
}

#[test]
fn what_criu_knows_is_no_reason_to_refuse() {
    for script in [
        "made = os.eventfd(0)",
        "made = os.memfd_create('large'); os.ftruncate(made, 4 << 20); os.write(made, bytes(4 << 20))",
        "made = mmap.mmap(-1, 4 << 20)",
        "made = new('there', 4 << 20)",
        "made = new('a (deleted)', 4 << 20)",
        "made = new('small', 4096); os.unlink('small')",
        "made = new('sparse'); os.ftruncate(made, 1 << 30); os.unlink('sparse')",
        // An array of BPF, which CRIU may have a handler for.
        "made = call(321, 0, ctypes.create_string_buffer(struct.pack('5I', 2, 4, 4, 1, 0), 72), 72)",
    ] {
        let held = held(script);
        assert!(
            held.is_empty() || held == ["left out"],
            "{script}: {held:?}"
        );
    }
}

#[test]
fn a_file_without_a_name_is_told_with_its_size() {
    let size = format!("of {}", 2 << 20);
    let open = "made = new('large', 2 << 20); os.unlink('large')";
    is_told(open, &format!("is \"./large (deleted)\" {size}"));
    let mapped =
        "file = new('m', 2 << 20); made = mmap.mmap(file, 4096); os.close(file); os.unlink('m')";
    is_told(mapped, &format!("\"./m (deleted)\" is mapped {size}"));
}

#[test]
fn a_file_with_another_name_is_told_apart() {
    let script = "made = new('one'); os.link('one', 'two'); os.unlink('one')";
    is_told(script, "is \"./one (deleted)\"");
}

#[test]
fn what_the_kernel_makes_and_criu_does_not_know_is_told() {
    for (script, expected) in [
        ("made = call(323, 1)", "anon_inode:[userfaultfd]"),
        ("made = call(447, 0)", "/secretmem (deleted)"),
        (
            "file = call(447, 0); made = -1 if file < 0 else os.ftruncate(file, 4096) or \
             mmap.mmap(file, 4096); file < 0 or os.close(file)",
            "\"/secretmem (deleted)\" is mapped",
        ),
        (
            "made = call(321, 0, ctypes.create_string_buffer(struct.pack('5I', 22, 0, 4, 1, 0), 72), 72)",
            "anon_inode:bpf-map",
        ),
        (
            "made = libc.mq_open(b'/stasis-undumpable', os.O_RDWR | os.O_CREAT, 0o600, None); \
             libc.mq_unlink(b'/stasis-undumpable')",
            "is \"/stasis-undumpable",
        ),
    ] {
        is_told(script, expected);
    }
}

/// Such a file name does not hide another file.
#[test]
fn a_name_alone_is_no_evidence() {
    for script in [
        "made = new('/secretmem'); os.unlink('/secretmem')",
        "made = new('/stasis-queue'); os.unlink('/stasis-queue')",
    ] {
        assert_eq!(held(script), Vec::<String>::new(), "{script}");
    }
}
