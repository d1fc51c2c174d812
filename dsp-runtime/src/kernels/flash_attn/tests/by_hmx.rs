//! Attention of prompts by the matrix unit, against its definition in f64.

use super::*;

const FAST: Case = Case { fast: true, tokens: 40, ..CASE };

#[test]
fn probe() {
    let setup = setups()[0];
    for d in [64, 96, 128, 256] {
        for n_past in [0, 33, 300] {
            for group in [1, 4, 8] {
                let case = Case { d, dv: d, n_past, group, kv_heads: 1, ..FAST };
                let start = std::time::Instant::now();
                let y = case.run(setup, &[40]);
                let e = nmse(&y, &case.expected());
                std::eprintln!("D={d} past={n_past} group={group}: {e:.3e} {:?}", start.elapsed());
            }
        }
    }
}
