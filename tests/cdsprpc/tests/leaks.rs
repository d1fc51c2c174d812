//! What is left after failures and uses. One test, so that nothing else comes and goes in its process.
#![cfg(target_os = "linux")]

mod calls;

use std::time::{Duration, Instant};

use cdsprpc::standin::StandIn;

use calls::{FATAL, use_device};

/// Each failure once, and a use without any.
fn round(standin: &mut StandIn) {
    for (call, at, _) in FATAL {
        standin.configure(&format!("{call}=1@{at}"));
        use_device(standin).unwrap_err();
    }
    for config in
        ["crash=2", "rpcmem_to_fd=-1@1", "dsp.qurt_thread_create=1@2+", "REGISTER_STATUS_NOTIFICATIONS=1@1"]
    {
        standin.configure(config);
        let _ = use_device(standin);
    }
    standin.configure("");
    use_device(standin).unwrap();
    standin.is_clean();
}

/// Descriptors and threads of this process.
fn held() -> [usize; 2] {
    ["/proc/self/fd", "/proc/self/task"].map(|dir| std::fs::read_dir(dir).unwrap().count())
}

/// Descriptors, once there are only `own` threads. Linux takes a thread off the list a moment after its join
/// has returned, so the first look may still see it.
fn descriptors(own: usize) -> usize {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let [descriptors, threads] = held();
        if threads == own {
            return descriptors;
        }
        assert!(Instant::now() < end, "{threads} threads in place of {own}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_leaks() {
    let [_, own_threads] = held();
    let mut standin = StandIn::new("");
    // What is made once, such as the library's own state, is no leak.
    round(&mut standin);
    let before = descriptors(own_threads);
    for _ in 0..3 {
        round(&mut standin);
    }
    assert_eq!(descriptors(own_threads), before);
}
