#!/bin/bash
# Puts each mistake back that the protocol of an image directory prevents, and checks that its tests
# catch it: a minute and a half each. A mutant that survives fails the run.
set -uo pipefail
cd "$(dirname "$0")/.."
copy=$PWD/target/mutants
[ -d "$copy" ] || git worktree add -q --detach "$copy" HEAD
git -C "$copy" checkout -q --detach "$(git rev-parse HEAD)" && cd "$copy/runtime-hooks/engine" || exit 1
survived=0

try() { # NAME FILE FROM TO
  git checkout -q .
  python3 - "$2" "$3" "$4" <<'P' || { survived=1; echo "$1: NOT APPLIED"; return; }
import sys
p='src/image/directory/'+sys.argv[1]; s=open(p).read()
assert sys.argv[2] in s
open(p,'w').write(s.replace(sys.argv[2],sys.argv[3]))
P
  if ! nice cargo test --locked -p stasis-engine --lib --no-run >"$copy/log" 2>&1; then survived=1; echo "$1: DOES NOT COMPILE"; grep -m2 '^error' -A5 "$copy/log"; return; fi
  bin=$(ls -t ../../target/debug/deps/stasis_engine-* | grep -v '\.d$' | head -1)
  [ -x "$bin" ] || { survived=1; echo "$1: NO TESTS"; return; }
  if timeout 300 $bin image::directory >"$copy/out" 2>&1; then survived=1; echo "$1: SURVIVED"; else echo "$1: caught by $(grep -c 'FAILED$' "$copy/out") tests: $(grep 'FAILED$' "$copy/out" | sed 's/.*tests:://; s/ \.\.\..*//' | tr '\n' ' ')"; fi
}
try "1 no lock of the writer" begin.rs '        if let Some(lock) = lock(staging)?
            && is_empty(staging)?' '        if let Ok(lock) = std::fs::File::open(staging)'
try "2 an error behind the commit is a failure" commit.rs 'Ok(Committed(move_up_soon(&self.directory).err()))' 'move_up_soon(&self.directory)?; Ok(Committed(None))'
try "4 what is whole is not finished" rest.rs '        Whole::Yes(manifest) => seal(settings, staging, manifest)?,' \
  '        Whole::Yes(_) => return Ok(Rest::NotWhole),'
try "5 a reader gets a half-moved image" open.rs '        false if exists(&directory.join(MOVING)) => None,' ''
try "8/10 an error of sync leaves the image vouched for" commit.rs '                self.doubt();' ''
try "10 what is not on disk replaces what is" commit.rs 'if !has_inventory(&self.directory) && self.take_its_place().is_ok()' 'if self.take_its_place().is_ok()'
try "12 moving up beside a reader" move_up.rs '            None if Instant::now() < deadline => pause(),' '            None => move_up(directory)?,'
try "12 a reader takes no lock" open.rs 'match in_use::hold(directory) {' 'match in_use::hold(Path::new("/nonexistent")) {'
try "21 a reader waits for the writer" open.rs 'if let Locked::Ours(_lock) = lock_now(&staging)? {' 'if let Some(_lock) = super::lock::lock(&staging)? {'
try "the inventory moves first" move_up.rs '        if entry.file_name() != INVENTORY {' '        if true {'
try "another boot is trusted" whole.rs 'if !is_of_this_boot(image).map_err(failed("read", image))? {' 'if false {'
try "the disk's no is passed over" open.rs 'if is_in_doubt => {}' '=> {}'
try "what a disk has refused is vouched for" whole.rs '        doubt(image);
' ''
try "a lost answer is a failure" commit.rs '            Err(_) if is_gone(&self.staging) => {}
' ''
try "names are not synced" move_up.rs '    change(|| file::sync_directory(directory)).map_err(' '    Ok::<(), io::Error>(()).map_err('
try "links are followed" move_up.rs 'Ok(found) if found.is_dir() => is_committed = true,' 'Ok(_) => is_committed = true,'
git checkout -q .
exit $survived
