use super::*;

fn missing(text: &str) -> Option<&'static str> {
    let mut variables = Variables::default();
    variables.add(|name| conf_value(text, name));
    variables.missing()
}

#[test]
fn only_what_was_seen_to_come_back_is_safe() {
    let p2p = Some("was not started with NCCL_P2P_DISABLE=1");
    let cumem = Some("was not started with NCCL_CUMEM_ENABLE=0 or NCCL_CUMEM_HOST_ENABLE=0");
    for (text, expected) in [
        ("", p2p),
        ("NCCL_P2P_DISABLE=1", cumem),
        ("NCCL_CUMEM_ENABLE=0", p2p),
        ("NCCL_P2P_DISABLE=1\nNCCL_CUMEM_ENABLE=0", None),
        ("NCCL_P2P_DISABLE=1\nNCCL_CUMEM_HOST_ENABLE=0", None),
        ("NCCL_P2P_LEVEL=LOC\nNCCL_CUMEM_ENABLE=0", None),
        ("NCCL_P2P_LEVEL=0\nNCCL_CUMEM_ENABLE=0", None),
        ("NCCL_P2P_LEVEL=NVL\nNCCL_CUMEM_ENABLE=0", p2p),
        ("NCCL_P2P_DISABLE=0\nNCCL_CUMEM_ENABLE=0", p2p),
        ("NCCL_P2P_DISABLE=\nNCCL_CUMEM_ENABLE=0", p2p),
        ("NCCL_P2P_DISABLE=1\nNCCL_CUMEM_ENABLE=1", cumem),
        ("#NCCL_P2P_DISABLE=1\nNCCL_CUMEM_ENABLE=0", p2p),
        (" NCCL_P2P_DISABLE = 1 \nNCCL_CUMEM_ENABLE=0", None),
        (
            "NCCL_P2P_DISABLE=0\nNCCL_P2P_DISABLE=1\nNCCL_CUMEM_ENABLE=0",
            p2p,
        ),
    ] {
        assert_eq!(missing(text), expected, "{text:?}");
    }
}

#[test]
fn the_environment_comes_before_the_files() {
    let mut variables = Variables::default();
    for text in [
        "NCCL_P2P_DISABLE=0",
        "NCCL_P2P_DISABLE=1\nNCCL_CUMEM_ENABLE=0",
    ] {
        variables.add(|name| conf_value(text, name));
    }
    assert_eq!(variables.number("NCCL_P2P_DISABLE"), Some(0));
    assert_eq!(variables.number("NCCL_CUMEM_ENABLE"), Some(0));
}

#[test]
fn the_user_names_the_file_or_has_it_at_home() {
    let files = |text: &[u8]| conf_files(&Environment::of(text));
    assert_eq!(files(b"A=1"), [Path::new(CONF_FILE)]);
    assert_eq!(
        files(b"HOME=/root\0"),
        [Path::new("/root/.nccl.conf"), Path::new(CONF_FILE)]
    );
    assert_eq!(
        files(b"HOME=/root\0NCCL_CONF_FILE=/n.conf\0"),
        [Path::new("/n.conf"), Path::new(CONF_FILE)]
    );
}

/// Two processes with NCCL that hold these sockets, and a connection between the sockets 1 and 2.
fn found(libnccl: bool, sockets: [u64; 2]) -> Vec<String> {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pids = [std::process::id(), child.id()];
    let processes = pids.map(|pid| {
        let pid = i32::try_from(pid).unwrap();
        ProcessRef::open(pid).unwrap().unwrap()
    });
    let held = sockets.map(|socket| OpenFiles {
        libnccl,
        sockets: [(socket, 3)].into(),
        ..OpenFiles::default()
    });
    let candidates: Vec<_> = processes
        .into_iter()
        .zip(held)
        .map(|(process, held)| Candidate { process, held })
        .collect();
    let ranks = sharing_ranks(&candidates, &Connections::joining(1, 2)).unwrap();
    let ranks = ranks.into_iter().map(|(_, evidence)| evidence).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    ranks
}

#[test]
fn ranks_are_known_by_their_connection_and_loading_nccl_is_no_use() {
    let ranks = found(true, [1, 2]);
    assert_eq!(ranks.len(), 2);
    assert!(
        ranks[0].contains("a TCP connection with process"),
        "{ranks:?}"
    );
    assert!(ranks[0].contains("NCCL_P2P_DISABLE=1"), "{ranks:?}");
    assert!(found(true, [1, 3]).is_empty(), "two notebooks");
    assert!(found(false, [1, 2]).is_empty(), "something else that talks");
}
