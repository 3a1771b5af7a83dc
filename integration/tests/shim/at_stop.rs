//! Containers that ask for a checkpoint when they are stopped, through the shim: the caller gets
//! its answer at once, sees the end, and the next container goes on.

use anyhow::Result;
use stasis_integration::client::containerd::{
    CheckpointOptions, Containerd, INIT, RuntimeOptions, Streams, to_any,
};
use stasis_integration::container::gpu_task::{in_host, into};
use stasis_integration::container::saved_at_stop::{IMAGES, SETTINGS, options};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::load;
use stasis_integration::on_hosts;

on_hosts!(in_host [the_next_one_goes_on, restored_one_is_saved]: trixie, sid_v2);

const COUNTER: [&str; 2] = ["/bin/counter", "10000"];
const SIGTERM: u32 = 15;

fn the_next_one_goes_on(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    stasis.set(&stasis.low_level, SETTINGS)?;
    let times = load::asked(3, 50);
    for time in 0..times {
        let id = &format!("job-{time}");
        begin(stasis, client, id, 101 + time)?;
        client.kill(id, INIT, SIGTERM)?;
        assert_eq!(client.wait(id, INIT)?.status, 137);
        client.delete(id)?;
    }
    stasis.was_saved_at_stop(IMAGES, 2)?;

    // The grace period is over.
    begin(stasis, client, "last", 101 + times)?;
    // Its environment, and so its tag, is the first one's.
    stasis.hold_driver("checkpoint job-0", "grace")?;
    client.kill("last", INIT, SIGTERM)?;
    stasis.until_driver_is_called()?;
    client.kill_init("last")?;
    stasis.let_driver_go("grace")?;
    client.delete("last")?;
    stasis.nobody_is_stopped()?;
    let images = stasis.run_for_text(&["ls", IMAGES])?;
    assert_eq!(images.lines().count(), 2, "{images}");
    stasis.nothing_to_put_right()
}

/// Of an image that its caller made, and names at the next create.
fn restored_one_is_saved(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let (id, image) = ("restored", "/images/by-its-caller");
    let asks = ["--annotation=io.stasis.checkpoint=on-term"];
    stasis.start_counter(client, id, &asks)?;
    let ending = CheckpointOptions {
        exit: true,
        ..into(image)
    };
    client.checkpoint(id, &ending)?;
    client.wait(id, INIT)?;
    client.delete(id)?;
    let from = RuntimeOptions {
        criu_image_path: image.to_owned(),
        ..RuntimeOptions::default()
    };
    stasis.start_task(client, id, Some(to_any(&from)?))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    client.kill(id, INIT, SIGTERM)?;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    client.delete(id)?;
    stasis.was_saved_at_stop("/images/restored", 1)?;
    stasis.nothing_to_put_right()
}

fn begin(stasis: &StasisHost, client: &Containerd, id: &str, answer: u32) -> Result<()> {
    let options = options();
    let options = options.each_ref().map(String::as_str);
    stasis.create_gpu_container(id, &options, &COUNTER)?;
    client.create(id, &Streams::default(), None)?;
    client.start(id, INIT)?;
    assert_eq!(stasis.ask_until_up(10000)?, answer.to_string());
    Ok(())
}
