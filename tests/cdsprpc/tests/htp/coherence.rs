//! The stand-in finds what it is there to find: what a session leaves behind, and caches that nobody cared
//! for, which show in the text.

use cdsprpc::standin::StandIn;

/// What a generation of a few tokens leaves in the report.
fn report(config: &str) -> Vec<String> {
    report_of(&StandIn::new(config))
}

pub(crate) fn report_of(standin: &StandIn) -> Vec<String> {
    let prompt = ["run", "--no-repack-cache", "--temp", "0", "-n", "4", "def"];
    // Whatever it prints: old bytes are no text.
    standin.hexflash(&prompt).output().unwrap();
    standin.violations()
}

#[test]
fn a_clean_run_has_nothing_to_report() {
    assert_eq!(report(""), Vec::<String>::new());
}

/// Output of a generation of a few tokens, and whether it ends well.
fn printed(config: &str) -> (Vec<u8>, bool) {
    let prompt = ["run", "--no-repack-cache", "--temp", "0", "-n", "8", "def"];
    let output = StandIn::new(config).hexflash(&prompt).output().unwrap();
    (output.stdout, output.status.success())
}

#[test]
fn a_skel_that_forgets_its_caches_does_not_get_away_with_it() {
    let (text, well) = printed("");
    assert!(well && !text.is_empty());
    for forgets in ["flush", "invalidate"] {
        assert_ne!(printed(&format!("forget={forgets}")), (text.clone(), true), "{forgets}");
    }
}

#[test]
fn a_session_that_leaves_things_behind_is_found() {
    let found = report("forget=power");
    assert!(found.iter().any(|line| line.contains("votes for power were not withdrawn")), "{found:?}");
}
