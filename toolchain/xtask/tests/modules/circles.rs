//! Circles among files that use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use crate::read::Names;
use crate::tree::Arrows;

/// The files that some file uses, directly or through others.
fn reach<'a>(arrows: &'a Arrows, from: &'a Names) -> BTreeSet<&'a Names> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(at) = left.pop() {
        left.extend(arrows[at].keys().filter(|to| found.insert(*to)));
    }
    found
}

/// Groups of files of which each uses all others, directly or through others.
pub fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<&Names>> {
    let reached: BTreeMap<_, _> = arrows.keys().map(|file| (file, reach(arrows, file))).collect();
    let circle_of = |file| reached[file].iter().copied().filter(|to| reached[to].contains(file)).collect();
    arrows.keys().map(circle_of).filter(|circle: &BTreeSet<_>| !circle.is_empty()).collect()
}

/// The arrows among the modules right below one and its own file; what is in them counts as theirs.
pub fn within(arrows: &Arrows, outer: &Names) -> Arrows {
    let module =
        |file: &Names| file.starts_with(outer).then(|| file[..file.len().min(outer.len() + 1)].to_vec());
    let mut found = Arrows::new();
    for (from, used) in arrows.iter().filter_map(|(file, used)| Some((module(file)?, used))) {
        let found = found.entry(from.clone()).or_default();
        for (to, reason) in used.iter().filter_map(|(file, reason)| Some((module(file)?, reason))) {
            if to != from {
                found.entry(to).or_insert_with(|| reason.clone());
            }
        }
    }
    found
}

/// The members of a circle, and the shortest way round, a line for each arrow.
pub fn explain(arrows: &Arrows, circle: &BTreeSet<&Names>) -> String {
    let members: Vec<_> =
        circle.iter().map(|names| names.last().map_or("the root", String::as_str)).collect();
    let shortest = circle.iter().filter_map(|file| way_back(arrows, circle, file)).min_by_key(Vec::len);
    let lines =
        shortest.unwrap_or_default().into_iter().map(|(from, to)| format!("    {}", arrows[from][to]));
    iter::once(format!("  {}", members.join(", "))).chain(lines).collect::<Vec<_>>().join("\n")
}

/// The arrows of the shortest way from a file back to it, within its circle.
fn way_back<'a>(
    arrows: &'a Arrows,
    circle: &BTreeSet<&Names>,
    file: &'a Names,
) -> Option<Vec<(&'a Names, &'a Names)>> {
    let mut ways = vec![vec![file]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for to in arrows[*way.last()?].keys().filter(|to| circle.contains(to)) {
                let further: Vec<_> = way.iter().copied().chain([to]).collect();
                if to == file {
                    return Some(further.windows(2).map(|pair| (pair[0], pair[1])).collect());
                }
                if seen.insert(to) {
                    longer.push(further);
                }
            }
        }
        ways = longer;
    }
    None
}
