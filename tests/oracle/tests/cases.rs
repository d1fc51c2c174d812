//! The catalogue: unique names, reproducible inputs, and an expected result for every case.

use std::collections::HashSet;
use std::time::Instant;

use hexflash_oracle::cases::{self, CaseKind, Mismatch, Origin, Tolerance};
use hexflash_oracle::ops::Cpu;

/// Every input is well formed, ggml computes every case, and a result passes its own comparison. The slowest
/// part of the crate's tests (a few minutes): it is what keeps the catalogue usable.
#[test]
fn every_case_has_a_result() {
    let filter = std::env::var("CASE").unwrap_or_default();
    let cpu = Cpu::default();
    let (mut time, mut n) = (std::collections::BTreeMap::new(), 0);
    for case in cases::all().iter().filter(|c| c.name.contains(&filter)) {
        let start = Instant::now();
        if std::env::var_os("VERBOSE").is_some() {
            eprintln!("{}", case.name);
        }
        let inputs = case.inputs();
        for (name, t) in &inputs.0 {
            t.check().unwrap_or_else(|e| panic!("{}: {name}: {e}", case.name));
        }
        let want = case.expected_from(&inputs, cpu).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        case.compare(&want, &want).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let slot: &mut (usize, f64, f64, String) = time.entry(case.op).or_default();
        let t = start.elapsed().as_secs_f64();
        *slot = (
            slot.0 + 1,
            slot.1 + t,
            slot.2.max(t),
            if t > slot.2 { case.name.clone() } else { slot.3.clone() },
        );
        n += 1;
    }
    for (op, (n, t, worst, name)) in &time {
        println!("{op:18} {n:5} cases {t:7.2} s, slowest {worst:.2} s {name}");
    }
    println!("{n} cases");
}

#[test]
fn names_are_unique_and_seeds_come_from_them() {
    let all = cases::all();
    let names: HashSet<_> = all.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names.len(), all.len());
    let case =
        all.iter().find(|c| c.name == "GATED_DELTA_NET(heads=4,s=64,t=4,b=2,vrep=1,perm=1,kda=1)").unwrap();
    assert_eq!((case.origin, case.tolerance), (Origin::Upstream, Tolerance::Nmse(1e-7)));
    // Changing the generator changes every case: then this changes, deliberately.
    assert_eq!(case.seed, 3_248_734_609_863_811_751);
    assert_eq!(case.inputs().get("g").to_f32()[..3], [-14.611814, -15.734835, -6.4679937]);
}

#[test]
fn the_delta_net_list_is_complete() {
    let count = |f: &dyn Fn(&cases::Case) -> bool| cases::all().iter().filter(|c| f(c)).count();
    let upstream = |c: &cases::Case| c.op == "GATED_DELTA_NET" && c.origin == Origin::Upstream;
    assert_eq!(count(&upstream), 18 + 7 + 3 + 8);
}

#[test]
fn mistakes_are_caught() {
    let all = cases::all();
    let case = |name: &str| all.iter().find(|c| c.name.starts_with(name)).unwrap();
    let ties = case("ARGMAX(cols=33,rows=3,values=Ties)");
    let (inputs, want) = (ties.inputs(), ties.expected().unwrap());
    let last = Cpu::new(1).argmax(inputs.get("a")).unwrap();
    assert!(matches!(ties.compare(&want, &last), Err(Mismatch::Different { .. })), "the last maximum passes");

    // A state plane that ggml leaves alone is not compared; the last one that it writes is.
    let short = all.iter().find(|c| {
        matches!(c.kind, CaseKind::GatedDeltaNet { t: 2, snapshots: 4, kda: false, .. })
            && c.origin == Origin::Edge
    });
    let short = short.unwrap();
    let want = short.expected().unwrap();
    let mut got = want.clone();
    let at = 4 * short.defined();
    got.data[at..].fill(0x3f);
    assert_eq!(short.compare(&want, &got), Ok(0.0));
    got.data[at - 4..at].copy_from_slice(&1e3f32.to_le_bytes());
    assert!(matches!(short.compare(&want, &got), Err(Mismatch::Nmse { .. })));
}
