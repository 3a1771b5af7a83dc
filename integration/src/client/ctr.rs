//! Containers of containerd, handled with `ctr`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::host::image::Image;
use crate::host::installed::{DEVICES, DRIVER, StasisHost};

impl StasisHost {
    /// Runs a container with the GPU, on the host's network, under stasis. Its tag for faults of
    /// the stand-in is its id.
    pub fn ctr_run(&self, id: &str, options: &[&str], command: &[&str]) -> Result<()> {
        let gpu = gpu_options(id);
        let mut arguments = vec!["ctr", "run", "-d", "--cpu-shares", "0"];
        arguments.extend(self.chosen_with);
        arguments.extend(gpu.iter().map(String::as_str));
        arguments.extend_from_slice(options);
        arguments.extend([Image::DEFAULT_NAME, id]);
        arguments.extend_from_slice(command);
        // ctr asks its own terminal for the size of the container's.
        if options.contains(&"-t") {
            return self.on_terminal(&arguments);
        }
        self.run(&arguments).map(drop)
    }

    /// Makes a container without a task.
    pub fn ctr_create(&self, id: &str, options: &[&str], command: &[&str]) -> Result<()> {
        let create: &[&str] = &["ctr", "c", "create"];
        let named = [Image::DEFAULT_NAME, id];
        let arguments = [create, options, &named, command].concat();
        self.run(&arguments).map(drop)
    }

    /// Runs a command with a terminal of its own.
    pub fn on_terminal(&self, arguments: &[&str]) -> Result<()> {
        self.run(&["script", "-qec", &arguments.join(" "), "/dev/null"])
            .map(drop)
    }

    /// Checkpoints a container into an image; it goes on.
    pub fn ctr_checkpoint(&self, id: &str, image: &str) -> Result<()> {
        self.run(&[
            "ctr",
            "c",
            "checkpoint",
            "--rw",
            "--image",
            "--task",
            id,
            image,
        ])
        .map(drop)
    }

    /// Restores a container from an image.
    pub fn ctr_restore(&self, id: &str, image: &str) -> Result<()> {
        self.run(&["ctr", "c", "restore", "--rw", "--live", id, image])
            .map(drop)
    }

    /// Kills a container's task, if it still has one, and removes the container.
    ///
    /// # Errors
    /// The container still exists after 30 s.
    pub fn ctr_remove(&self, id: &str) -> Result<()> {
        // A task that has ended refuses the signal.
        let _ = self.run(&["ctr", "t", "kill", "-s", "KILL", id]);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let _ = self.run(&["ctr", "t", "rm", id]);
            let removed = self.run(&["ctr", "c", "rm", id]);
            if removed.is_ok() || Instant::now() > deadline {
                return removed.map(drop);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The status of a task as ctr shows it ("RUNNING", "PAUSED", ...); empty without a task.
    pub fn ctr_status(&self, id: &str) -> Result<String> {
        let list = self.run_for_text(&["ctr", "t", "ls"])?;
        let mut lines = list
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let task = lines.find(|words| words.first() == Some(&id));
        Ok(task
            .and_then(|words| words.get(2).map(|status| (*status).to_owned()))
            .unwrap_or_default())
    }

    /// Waits until a task has the status.
    ///
    /// # Errors
    /// It has another after 30 s.
    pub fn ctr_wait_for(&self, id: &str, status: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.ctr_status(id)? != status {
            let late = Instant::now() > deadline;
            ensure!(
                !late,
                "task {id} is {:?}, not {status}, after 30 s",
                self.ctr_status(id)?
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The options with which a container gets the GPU, on the host's network. Its tag for faults of
/// the stand-in is its id.
#[must_use]
pub fn gpu_options(id: &str) -> Vec<String> {
    let mount = format!("type=bind,src={DRIVER},dst={DRIVER},options=rbind:ro");
    let library_path = format!("LD_LIBRARY_PATH={DRIVER}/lib64");
    let tag = format!("STASIS_TAG={id}");
    let mut options = vec!["--net-host", "--mount", &mount];
    options.extend(["--env", &library_path, "--env", &tag]);
    options.extend(DEVICES.iter().flat_map(|device| ["--device", device]));
    options.into_iter().map(str::to_owned).collect()
}
