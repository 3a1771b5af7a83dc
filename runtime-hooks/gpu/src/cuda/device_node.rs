//! The paths of NVIDIA's device nodes.

/// The number of a GPU's device node: `/dev/nvidia0`, but not `/dev/nvidiactl`.
pub fn minor_of(path: &str) -> Option<u32> {
    let number = path.strip_prefix("/dev/nvidia")?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_in_the_path_names_a_gpu() {
        assert_eq!(minor_of("/dev/nvidia0"), Some(0));
        assert_eq!(minor_of("/dev/nvidia17"), Some(17));
        for other in [
            "/dev/nvidia",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia0/x",
            "nvidia0",
        ] {
            assert_eq!(minor_of(other), None, "{other}");
        }
    }
}
