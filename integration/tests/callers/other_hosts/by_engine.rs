//! Each engine restores at one host the checkpoint that it has made at another, and begins a new
//! container there from the image, which an annotation names.

use anyhow::Result;
use stasis_integration::client::containerd::{
    CheckpointOptions, Containerd, INIT, RuntimeOptions, to_any,
};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::gpu_task::into;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

use super::preempted::SETTINGS;
use super::{host_at, host_for_registry, moved, named, with_registry};

/// A program that reports how often it has verified its GPU and host memory, and then changes both.
const MEMCHECK: [&str; 2] = ["/bin/memcheck", "6"];
const SIGKILL: u32 = 9;

/// A job that one engine runs at the first host, and then at the second.
struct Job {
    name: &'static str,
    port: &'static str,
    /// Begins the job under this name, with an image that an annotation names, or cold.
    begin: fn(&StasisHost, &Job, &str, Option<&str>) -> Result<()>,
    /// Ends the job, with an image in the returned directory of the host.
    save: fn(&StasisHost, &Job) -> Result<String>,
    /// Restores the job from an image that it pulls into a directory of its choice.
    go_on: fn(&StasisHost, &Job) -> Result<()>,
    /// Ends the job, and removes the container.
    end: fn(&StasisHost, &Job) -> Result<()>,
}

const JOBS: [Job; 4] = [
    Job {
        name: "bundle",
        port: "10000",
        begin: begin_bundle,
        save: save_bundle,
        go_on: restore_bundle,
        end: end_bundle,
    },
    Job {
        name: "task",
        port: "10001",
        begin: begin_task,
        save: save_task,
        go_on: restore_task,
        end: end_task,
    },
    Job {
        name: "docker",
        port: "10002",
        begin: begin_docker,
        save: save_docker,
        go_on: restore_docker,
        end: end_docker,
    },
    Job {
        name: "podman",
        port: "10003",
        begin: begin_podman,
        save: save_podman,
        go_on: restore_podman,
        end: end_podman,
    },
];

#[test]
fn jobs_of_every_engine_go_on_where_nothing_of_them_was() -> Result<()> {
    let registry = host_for_registry()?;
    let (network, _daemon) = with_registry(&registry)?;
    let first = host_at(HostKind::sid()?, &registry, &network, 2)?;
    {
        let _daemons = (first.containerd()?, first.docker()?);
        first.podman_load()?;
        for job in &JOBS {
            (job.begin)(&first, job, job.name, None)?;
            assert_eq!(first.ask_until_up(job.port()?)?, "ok 0", "{}", job.name);
            let image = (job.save)(&first, job)?;
            moved(&first, &["push", &named(job.name), &image])?;
        }
    }
    drop(first);
    let second = host_at(HostKind::sid()?, &registry, &network, 3)?;
    let _daemons = (second.containerd()?, second.docker()?);
    second.podman_load()?;
    second.set(&second.low_level, SETTINGS)?;
    for job in &JOBS {
        (job.go_on)(&second, job)?;
        assert_eq!(second.ask_until_up(job.port()?)?, "ok 1", "{}", job.name);
        assert_eq!(second.ask_until_up(job.port()?)?, "ok 2", "{}", job.name);
        (job.end)(&second, job)?;
        (job.begin)(
            &second,
            job,
            &format!("{}-2", job.name),
            Some(&named(job.name)),
        )?;
        assert_eq!(second.ask_until_up(job.port()?)?, "ok 1", "{}", job.name);
    }
    second.nothing_to_put_right()
}

impl Job {
    fn port(&self) -> Result<u16> {
        Ok(self.port.parse()?)
    }

    fn command(&self) -> [&str; 3] {
        [MEMCHECK[0], MEMCHECK[1], self.port]
    }
}

/// Returns the annotation as an option of engines, if an image is given.
fn annotation(image: Option<&str>) -> Vec<String> {
    let option = image.map(|image| format!("--annotation=io.stasis.restore={image}"));
    option.into_iter().collect()
}

fn begin_podman(stasis: &StasisHost, job: &Job, name: &str, image: Option<&str>) -> Result<()> {
    let options = annotation(image);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    stasis.podman_run(name, &options, &job.command())
}

fn end_podman(stasis: &StasisHost, job: &Job) -> Result<()> {
    stasis.podman(&["rm", "-f", "-t", "0", job.name]).map(drop)
}

fn save_podman(stasis: &StasisHost, job: &Job) -> Result<String> {
    let archive = "/images/podman.tar";
    let export = ["checkpoint", "--export", archive];
    stasis.podman_container(&export, job.name)?;
    Ok(archive.to_owned())
}

fn restore_podman(stasis: &StasisHost, job: &Job) -> Result<()> {
    let archive = "/images/podman.tar";
    pull(stasis, job, archive)?;
    let restore = ["container", "restore", "--import", archive];
    stasis.podman(&restore).map(drop)
}

fn pull(stasis: &StasisHost, job: &Job, into: &str) -> Result<()> {
    moved(stasis, &["pull", &named(job.name), into]).map(drop)
}

fn begin_bundle(stasis: &StasisHost, job: &Job, name: &str, image: Option<&str>) -> Result<()> {
    let bundle = Bundle::make(stasis, name, &job.command())?;
    if let Some(image) = image {
        bundle.begin_with(image)?;
    }
    bundle.create()?;
    bundle.start()
}

fn end_bundle(stasis: &StasisHost, job: &Job) -> Result<()> {
    Bundle::laid_out(stasis, job.name).delete()
}

fn save_bundle(stasis: &StasisHost, job: &Job) -> Result<String> {
    let bundle = Bundle::laid_out(stasis, job.name);
    bundle.checkpoint("saved", &[])?;
    Ok(bundle.image("saved"))
}

fn restore_bundle(stasis: &StasisHost, job: &Job) -> Result<()> {
    let bundle = Bundle::make(stasis, job.name, &job.command())?;
    pull(stasis, job, &bundle.image("pulled"))?;
    bundle.restore("pulled")
}

fn begin_task(stasis: &StasisHost, job: &Job, name: &str, image: Option<&str>) -> Result<()> {
    let client = Containerd::connect(&stasis.host)?;
    let options = annotation(image);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let started = stasis.start_gpu_task(&client, name, &options, &job.command());
    started.map(drop)
}

fn end_task(stasis: &StasisHost, job: &Job) -> Result<()> {
    let client = Containerd::connect(&stasis.host)?;
    client.kill(job.name, INIT, SIGKILL)?;
    client.wait(job.name, INIT)?;
    client.delete(job.name)?;
    Ok(())
}

fn save_task(stasis: &StasisHost, job: &Job) -> Result<String> {
    let client = Containerd::connect(&stasis.host)?;
    let image = format!("/images/{}", job.name);
    let options = CheckpointOptions {
        exit: true,
        ..into(&image)
    };
    client.checkpoint(job.name, &options)?;
    client.wait(job.name, INIT)?;
    Ok(image)
}

fn restore_task(stasis: &StasisHost, job: &Job) -> Result<()> {
    let client = Containerd::connect(&stasis.host)?;
    let image = format!("/images/{}", job.name);
    pull(stasis, job, &image)?;
    stasis.create_gpu_container(job.name, &[], &job.command())?;
    let options = RuntimeOptions {
        criu_image_path: image,
        ..RuntimeOptions::default()
    };
    stasis.start_task(&client, job.name, Some(to_any(&options)?))?;
    Ok(())
}

fn begin_docker(stasis: &StasisHost, job: &Job, name: &str, image: Option<&str>) -> Result<()> {
    let options = annotation(image);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    stasis.docker_run(name, &options, &job.command())
}

fn end_docker(stasis: &StasisHost, job: &Job) -> Result<()> {
    let remove = ["docker", "rm", "-f", job.name];
    stasis.run(&remove).map(drop)
}

fn save_docker(stasis: &StasisHost, job: &Job) -> Result<String> {
    stasis.docker_checkpoint(&[], job.name, "saved")?;
    stasis.docker_wait_for(job.name, "exited")?;
    directory_of_docker(stasis, job, "saved")
}

/// Docker makes the directory for a container's checkpoints when it creates the container.
fn restore_docker(stasis: &StasisHost, job: &Job) -> Result<()> {
    stasis.docker_create(job.name, &job.command())?;
    pull(stasis, job, &directory_of_docker(stasis, job, "pulled")?)?;
    stasis.docker_restore(job.name, "pulled")
}

fn directory_of_docker(stasis: &StasisHost, job: &Job, checkpoint: &str) -> Result<String> {
    let inspect = ["docker", "inspect", "--format", "{{.Id}}", job.name];
    let id = stasis.run_for_text(&inspect)?;
    Ok(format!(
        "/var/lib/docker/containers/{id}/checkpoints/{checkpoint}"
    ))
}
