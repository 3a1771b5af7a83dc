//! containerd: `ctr` with `--runc-binary`.

use anyhow::{Context, Result};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{DEVICES, DRIVER, Lab, RUNTIME};

const IMAGE: &str = "localhost/stasis-test:latest";

fn run(lab: &Lab, id: &str, extra: &[&str], command: &[&str]) -> Result<()> {
    let mount = format!("type=bind,src={DRIVER},dst={DRIVER},options=rbind:ro");
    let library_path = format!("LD_LIBRARY_PATH={DRIVER}/lib64");
    let tag = format!("STASIS_TAG={id}");
    let mut arguments = vec!["ctr", "run", "-d", "--snapshotter", "native", "--net-host"];
    arguments.extend([
        "--runc-binary",
        RUNTIME,
        "--mount",
        &mount,
        "--env",
        &library_path,
        "--env",
        &tag,
    ]);
    for device in DEVICES {
        arguments.extend(["--device", device]);
    }
    arguments.extend_from_slice(extra);
    arguments.extend([IMAGE, id]);
    arguments.extend_from_slice(command);
    lab.host.run(&arguments).map(drop)
}

#[test]
fn counter_goes_on() -> Result<()> {
    let lab = Lab::start(Suite::Trixie, Cgroups::Hybrid, "runc")?;
    let _containerd = lab.containerd()?;
    run(&lab, "counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    lab.host
        .run(&[
            "ctr",
            "c",
            "checkpoint",
            "--rw",
            "--image",
            "--task",
            "counter",
            "img1",
        ])
        .with_context(|| format!("{:?}", lab.last_operation()))?;
    println!("{}", lab.last_operation()?);
    assert_eq!(lab.ask_until_up(10000)?, "102");
    Ok(())
}
