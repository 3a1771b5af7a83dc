use std::thread;

use super::*;

fn said(request: &[u8], page: &str) -> String {
    let (mut client, mut peer) = UnixStream::pair().unwrap();
    client.write_all(request).unwrap();
    let page = || page.to_owned();
    answer(&mut peer, DEADLINE, &page).unwrap();
    drop(peer);
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn one_page_is_served() {
    let get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let page = said(get, "stasis_x 1\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("Content-Length: 11\r\n"), "{page}");
    assert!(page.ends_with("\r\n\r\nstasis_x 1\n"), "{page}");
    let other = said(b"GET / HTTP/1.0\r\n\r\n", "");
    assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
    for wrong in [&b"POST /metrics HTTP/1.1\r\n\r\n"[..], &[b'a'; MOST_BYTES]] {
        let wrong = said(wrong, "");
        assert!(wrong.starts_with("HTTP/1.1 400 "), "{wrong}");
    }
}

#[test]
fn who_says_nothing_is_cut_off() {
    let (_client, mut peer) = UnixStream::pair().unwrap();
    let page = || String::new();
    let error = answer(&mut peer, Duration::from_millis(20), &page).unwrap_err();
    let kinds = [ErrorKind::TimedOut, ErrorKind::WouldBlock];
    assert!(kinds.contains(&error.kind()), "{error}");
}

#[test]
fn what_others_could_ask_is_refused() {
    let address = |text: &str| text.parse::<Address>().ok();
    let socket = Address::Socket("/run/x".into());
    assert_eq!(address("/run/x"), Some(socket));
    for good in ["127.0.0.1:9836", "[::1]:9836"] {
        assert_eq!(
            address(good).map(|found| found.to_string()).as_deref(),
            Some(good)
        );
    }
    for wrong in [
        "",
        "x",
        "0.0.0.0:1",
        "[::]:1",
        "192.168.0.1:80",
        "127.0.0.1",
    ] {
        assert_eq!(address(wrong), None, "{wrong}");
    }
}

#[test]
fn a_socket_that_is_used_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    remove_unless_used(&path).unwrap();
    assert!(path.exists());
    drop(listener);
    // What another test has just started may have it open for a moment.
    let given_up = Instant::now() + Duration::from_secs(60);
    while path.exists() {
        assert!(Instant::now() < given_up, "it is not removed");
        thread::sleep(Duration::from_millis(1));
        remove_unless_used(&path).unwrap();
    }
    fs::write(&path, "theirs").unwrap();
    remove_unless_used(&path).unwrap();
    assert!(path.exists());
    let address = Address::Socket(path);
    let error = serve(&address, String::new).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

#[test]
fn the_next_one_is_served_after_one_that_has_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = Address::Socket(path.clone());
    // It ends with the process.
    thread::spawn(move || serve(&address, || "stasis_x 1\n".to_owned()));
    let connect = || loop {
        if let Ok(stream) = UnixStream::connect(&path) {
            return stream;
        }
        thread::yield_now();
    };
    drop(connect());
    let mut client = connect();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    assert!(said.ends_with("\r\n\r\nstasis_x 1\n"), "{said}");
}
