//! The commands' output: their text is compared with files, and the fields of their JSON with the
//! tables in docs/commands.md.

use std::fmt::Write;

use anyhow::Result;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

use super::{as_one_of_runc, documented, json, run};

on_hosts!(what_people_and_programs_read: trixie, sid_v2);

const IMAGE: &str = "/images/job-seen";

const NOT_IN_THIS_LOG: [&str; 3] = ["image_complete", "notes", "shared_out_bytes"];

const OF_ONE_ELSEWHERE: [&str; 5] = ["digest", "annotations", "subject", "blobs", "archive"];

/// Each command with the text that it once wrote.
const TEXTS: [(&str, &str); 8] = [
    ("ps", include_str!("golden/ps.txt")),
    ("check job", include_str!("golden/check.txt")),
    ("images", include_str!("golden/images.txt")),
    ("log", include_str!("golden/log.txt")),
    ("log --failed", include_str!("golden/log-failed.txt")),
    (
        "inspect /images/job-seen",
        include_str!("golden/inspect.txt"),
    ),
    ("gc --keep 0", include_str!("golden/gc.txt")),
    ("suspend job nobody", include_str!("golden/suspend.txt")),
];

fn what_people_and_programs_read(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = Bundle::make(stasis, "job", &["/bin/tree", "10001"])?;
    job.run()?;
    as_one_of_runc(stasis)?;
    stasis.ask_until_up(10001)?;
    job.checkpoint("seen", &["--leave-running"])?;
    stasis.inject("checkpoint * error:801")?;
    job.checkpoint_fails("refused", &["--leave-running"])?;
    stasis.inject("")?;
    texts_are_as_they_were(stasis)?;
    fields_are_documented(stasis)?;
    job.delete()
}

fn texts_are_as_they_were(stasis: &StasisHost) -> Result<()> {
    let mut other = String::new();
    for (command, expected) in TEXTS {
        let arguments: Vec<&str> = command.split(' ').collect();
        let (_, stdout, stderr) = run(stasis, &arguments)?;
        let text = stdout + &stderr;
        if masked(&text) != masked(expected) {
            write!(
                other,
                "==> stasis {command}\n{text}masked:\n{}\n",
                masked(&text)
            )?;
        }
    }
    let doctor = doctor_of_a_broken_setting(stasis)?;
    if masked(&doctor) != masked(include_str!("golden/doctor.txt")) {
        write!(other, "==> stasis doctor\n{doctor}\n")?;
    }
    assert!(other.is_empty(), "it is not what golden/ has:\n{other}");
    Ok(())
}

fn fields_are_documented(stasis: &StasisHost) -> Result<()> {
    // The processes of the job hold too little for files, of which the log has a report.
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "8"])?;
    memory.run()?;
    stasis.ask_until_up(10000)?;
    memory.checkpoint("stored", &["--leave-running"])?;
    memory.delete()?;
    let asked: [(&str, &[&str], &[&str]); 6] = [
        ("stasis ps", &["ps"], &[]),
        ("stasis suspend", &["resume", "job", "nobody"], &["notes"]),
        ("stasis log", &["log"], &NOT_IN_THIS_LOG),
        (
            "stasis images",
            &["verify", "--here", IMAGE, "/images/none"],
            &[],
        ),
        ("stasis inspect", &["inspect", IMAGE], &OF_ONE_ELSEWHERE),
        ("stasis gc", &["gc", "--keep", "0"], &[]),
    ];
    let (_, check, _) = run(stasis, &["check", "job", "--json"])?;
    let mut check: serde_json::Value = serde_json::from_str(&check)?;
    let schema = check
        .as_object_mut()
        .and_then(|check| check.remove("schema"));
    assert_eq!(schema, Some(1.into()));
    let check = [check];
    let mut faults = documented::faults("stasis check", &check, &[]);
    for (section, arguments, absent) in asked {
        let (_, rows) = json(stasis, arguments)?;
        faults.extend(documented::faults(section, &rows, absent));
    }
    faults.dedup();
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

/// One finding: the others differ from one machine to the next.
fn doctor_of_a_broken_setting(stasis: &StasisHost) -> Result<String> {
    stasis.set(&stasis.low_level, "gpu_contents.threads = \"three\"\n")?;
    let (code, stdout, _) = run(stasis, &["doctor"])?;
    stasis.set(&stasis.low_level, "")?;
    assert_eq!(code, Some(1), "{stdout}");
    let mut lines = stdout.lines();
    let finding = lines.find(|line| line.starts_with("fault") && line.contains("settings"));
    let remedy = lines.next();
    Ok([finding, remedy].map(Option::unwrap_or_default).join("\n"))
}

/// Masks numbers, amounts with their units, and times, which differ from one run to the next.
/// Columns are put two spaces apart, since their width depends on the cells.
pub(super) fn masked(text: &str) -> String {
    let lines = text.trim_end().lines().map(|line| {
        let cells = line.split("  ").map(str::trim);
        let cells = cells.filter(|cell| !cell.is_empty()).map(masked_cell);
        let indent = line.len() - line.trim_start().len();
        " ".repeat(indent) + &cells.collect::<Vec<_>>().join("  ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn masked_cell(cell: &str) -> String {
    const UNITS: [&str; 11] = [
        "B", "KiB", "MiB", "GiB", "TiB", "GiB/s", "ms", "s", "min", "h", "d",
    ];
    let mut words: Vec<String> = Vec::new();
    for word in cell.split(' ') {
        let bare = word.trim_matches(|end: char| "(),;:".contains(end));
        let is_time = bare.len() >= 20 && bare.ends_with('Z') && bare.contains('T');
        let is_number = bare.starts_with(|first: char| first.is_ascii_digit())
            && bare.chars().all(|one| one.is_ascii_digit() || one == '.');
        let mask = match bare {
            _ if is_time => "TIME",
            _ if is_number => "N",
            _ if UNITS.contains(&bare) && words.last().is_some_and(|last| last == "N") => {
                words.pop();
                "AMOUNT"
            }
            _ => bare,
        };
        words.push(word.replacen(bare, mask, 1));
    }
    words.join(" ")
}
