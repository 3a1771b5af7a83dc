//! Circles of a graph: its strongly connected parts of more than one node.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Graph;

/// The circles of `graph`, each in order of name.
pub(super) fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|node| (node.as_str(), reach(graph, node)))
        .collect();
    let mut circles = BTreeSet::new();
    for (&node, all) in &reached {
        let comes_back =
            |other: &&&str| reached.get(**other).is_some_and(|from| from.contains(node));
        let circle: Vec<String> = all
            .iter()
            .filter(comes_back)
            .map(|&other| other.to_owned())
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// All nodes that can be reached from `start`.
fn reach<'g>(graph: &'g Graph, start: &str) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&str> = graph
        .get(start)
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    while let Some(node) = left.pop() {
        if found.insert(node) {
            left.extend(graph.get(node).into_iter().flatten().map(String::as_str));
        }
    }
    found
}

#[test]
fn a_circle_is_found_and_a_line_is_none() {
    let edge = |(from, to): (&str, &str)| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let line: Graph = [("a", "b"), ("b", "c")].map(edge).into();
    assert!(circles(&line).is_empty());
    let circle: Graph = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
        .map(edge)
        .into();
    assert_eq!(circles(&circle), [["a", "b", "c"]]);
}
