use super::*;

const COLUMNS: [Column; 4] = [
    Column {
        title: "NAME",
        spare: 0,
    },
    Column {
        title: "STATE",
        spare: 1,
    },
    Column {
        title: "IMAGE",
        spare: 3,
    },
    Column {
        title: "MEMORY",
        spare: 2,
    },
];

fn at(width: Option<u16>) -> String {
    let texts = ["a-long-name", "running", "/images/of/a/job", "12 GiB"];
    let row = texts.map(|text| Cell::new(text).toned(Tone::Good)).to_vec();
    fitted(&COLUMNS, &[row], width, |table| {
        table.force_no_tty();
    })
}

#[test]
fn what_does_not_fit_goes_and_what_is_left_is_shortened() {
    let whole = "NAME         STATE    IMAGE             MEMORY\n\
                 a-long-name  running  /images/of/a/job  12 GiB";
    assert_eq!(at(None), whole);
    assert_eq!(at(Some(200)), whole);
    let narrow = "NAME         STATE    MEMORY\n\
                  a-long-name  running  12 GiB";
    assert_eq!(at(Some(40)), narrow);
    let narrowest = "NAME     STATE    MEMORY\n\
                     a-l…ame  running  12 GiB";
    assert_eq!(at(Some(24)), narrowest);
}

/// An image of podman's.
fn image_at(width: Option<u16>) -> String {
    let id = "0123456789abcdef".repeat(4);
    let path = format!("/var/lib/containers/{id}/userdata/checkpoint");
    let created = Cell::new("2026-11-25T07:00:00Z").or_brief(Some("2 h ago".to_owned()));
    let row = vec![
        Cell::id(&id),
        created,
        Cell::path(Path::new(&path)),
        Cell::new("yes"),
    ];
    fitted(&COLUMNS, &[row], width, |table| {
        table.force_no_tty();
    })
}

#[test]
fn ids_and_paths_are_shortened_before_columns_go() {
    let id = "0123456789abcdef".repeat(4);
    assert_eq!(image_at(None).matches(&id).count(), 2);
    assert_eq!(image_at(Some(400)), image_at(None));
    let narrow = "NAME          STATE    IMAGE                                MEMORY\n\
         0123456789ab  2 h ago  …/0123456789ab…/userdata/checkpoint  yes";
    assert_eq!(image_at(Some(68)), narrow);
}

#[test]
fn no_cell_acts_on_a_terminal() {
    let row = vec![Cell::new("a\u{1b}[2Jb"); 4];
    let text = fitted(&COLUMNS, &[row], None, |table| {
        table.force_no_tty();
    });
    assert!(!text.contains('\u{1b}'), "{text:?}");
}
