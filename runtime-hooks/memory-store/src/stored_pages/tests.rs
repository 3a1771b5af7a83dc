use super::*;
use proptest::prelude::*;

fn buffer_of(pages: &[bool]) -> Buffer {
    let mut buffer = Buffer::new();
    for (number, page) in buffer.as_mut_slice().chunks_mut(PAGE).enumerate() {
        if pages.get(number) == Some(&true) {
            page.fill(u8::try_from(number % 255).unwrap() + 1);
        }
    }
    buffer
}

#[test]
fn a_chunk_of_zeros_has_none_and_a_full_one_all() {
    let mut buffer = Buffer::new();
    assert_eq!(StoredPages::of(buffer.as_slice()), None);
    assert_eq!(StoredPages::of(&[]), None);
    buffer.as_mut_slice().fill(1);
    let all = StoredPages::of(buffer.as_slice()).unwrap();
    assert_eq!(all, StoredPages::All(1024));
    assert_eq!((all.bytes(), all.end()), (CHUNK, 1024));
    let three = StoredPages::of(&buffer.as_slice()[..3 * PAGE]);
    assert_eq!(three, Some(StoredPages::All(3)));
}

#[test]
fn one_byte_anywhere_makes_a_page_count() {
    for at in [0, 1, BLOCK - 1, BLOCK, PAGE - 1, PAGE, CHUNK - 1] {
        let mut buffer = Buffer::new();
        buffer.as_mut_slice()[at] = 1;
        let pages = StoredPages::of(buffer.as_slice()).unwrap();
        assert_eq!(pages.count(), 1);
        assert!(pages.contains(at / PAGE));
        let offset = at / PAGE * PAGE;
        let runs: Vec<_> = pages.runs().collect();
        assert_eq!(
            runs,
            [Run {
                offset,
                bytes: PAGE
            }]
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn packed_pages_unpack_to_what_they_were(pages in proptest::collection::vec(any::<bool>(), 1..=1024)) {
        let mut buffer = buffer_of(&pages);
        let before = buffer.as_slice().to_vec();
        let Some(stored) = StoredPages::of(&before[..pages.len() * PAGE]) else {
            prop_assert!(pages.iter().all(|page| !page));
            return Ok(());
        };
        prop_assert_eq!(stored.count(), pages.iter().filter(|page| **page).count());
        let bytes = pack(&mut buffer, &stored);
        prop_assert_eq!(bytes, stored.bytes());
        let mut unpacked = vec![0; CHUNK];
        let mut from = 0;
        let mut end = None;
        for run in stored.runs() {
            prop_assert!(end < Some(run.offset), "runs that touch are one");
            unpacked[run.offset..][..run.bytes].copy_from_slice(&buffer.as_slice()[from..][..run.bytes]);
            from += run.bytes;
            end = Some(run.offset + run.bytes);
        }
        prop_assert_eq!(from, bytes);
        prop_assert!(unpacked == before);
    }
}
