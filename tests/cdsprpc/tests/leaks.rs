//! What is left after failures and uses. One test, so that nothing else comes and goes in its process.
#![cfg(target_os = "linux")]

mod calls;

use cdsprpc::standin::StandIn;

use calls::{FATAL, use_device};

/// Each failure once, and a use without any.
fn round(standin: &mut StandIn) {
    for (call, at, _) in FATAL {
        standin.configure(&format!("{call}=1@{at}"));
        use_device(standin).unwrap_err();
    }
    for config in
        ["crash=2", "rpcmem_to_fd=-1@1", "dsp.qurt_thread_create=1@2", "REGISTER_STATUS_NOTIFICATIONS=1@1"]
    {
        standin.configure(config);
        let _ = use_device(standin);
    }
    standin.configure("");
    use_device(standin).unwrap();
    standin.is_clean();
}

/// Descriptors and threads of this process.
fn left() -> [usize; 2] {
    ["/proc/self/fd", "/proc/self/task"].map(|dir| std::fs::read_dir(dir).unwrap().count())
}

#[test]
fn nothing_leaks() {
    let mut standin = StandIn::new("");
    // What is made once, such as the library's own state, is no leak.
    round(&mut standin);
    let before = left();
    for _ in 0..3 {
        round(&mut standin);
    }
    assert_eq!(left(), before);
}
