use super::*;
use crate::Buffer;
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
    fn slices_are_the_content_without_its_zeros(
        pages in proptest::collection::vec(any::<bool>(), 1..=1024),
        part in 1..40_000usize,
    ) {
        let buffer = buffer_of(&pages);
        let content = &buffer.as_slice()[..pages.len() * PAGE];
        let Some(stored) = StoredPages::of(content) else {
            prop_assert!(pages.iter().all(|page| !page));
            return Ok(());
        };
        prop_assert_eq!(stored.count(), pages.iter().filter(|page| **page).count());
        let slices = stored.slices(content).unwrap();
        prop_assert_eq!(slices.iter().map(|slice| slice.len()).sum::<usize>(), stored.bytes());
        let mut unpacked = vec![0; content.len()];
        let mut end = None;
        for (run, slice) in stored.runs().zip(slices) {
            prop_assert!(end < Some(run.offset), "runs that touch are one");
            unpacked[run.offset..][..run.bytes].copy_from_slice(slice);
            end = Some(run.offset + run.bytes);
        }
        prop_assert!(unpacked == content);
        let bytes = stored.bytes();
        let parts: Vec<_> = stored.runs_in_parts(part).collect();
        prop_assert_eq!(parts.len(), bytes.div_ceil(part));
        for (number, runs) in parts.iter().enumerate() {
            let own: usize = runs.iter().map(|run| run.bytes).sum();
            prop_assert_eq!(own, part.min(bytes - number * part));
        }
        let pieces = parts.iter().flatten().flat_map(|run| run.offset..run.offset + run.bytes);
        let whole = stored.runs().flat_map(|run| run.offset..run.offset + run.bytes);
        prop_assert!(pieces.eq(whole));
        prop_assert_eq!(stored.slices(&content[..(stored.end() - 1) * PAGE]), None);
    }
}
