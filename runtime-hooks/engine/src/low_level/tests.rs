use stasis_linux::ProcessRef;

use super::*;

/// A process that CRIU has started outlives CRIU so; it has the output open.
#[test]
fn a_hung_program_leaves_nothing_in_its_process_group() {
    let mut command = Command::new("sh");
    let script = "(sleep 300 & echo $!); sleep 300";
    command.args(["-c", script]).process_group(0);
    let limit = Duration::from_secs(2);
    let child = spawn_captured(&mut command).unwrap();
    let ran = capture(child, limit, Victims::WithChildren).unwrap();
    assert!(ran.hung.is_some());
    let written = String::from_utf8(ran.output.stdout).unwrap();
    let orphan: i32 = written.lines().next().unwrap().parse().unwrap();
    let orphan = ProcessRef::open(orphan).unwrap();
    let ended = orphan.is_none_or(|orphan| !orphan.outlives(Duration::from_secs(60)).unwrap());
    assert!(ended, "{written}");
}
